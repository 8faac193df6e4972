"""The bytes of a job's end that are hashed and signed: one text for server and workers.

They are the canonical JSON of the job's id, whether it went well, and the result or the error: no time, no node, no
token, so that anybody who has the result can check it. Integers keep all their digits; half a surrogate is refused.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import digest
from typing import Any

from semel.kernel.canonical import Integers, Surrogates, canonical, canonical_parsed


def canonical_bytes(value: Any) -> bytes:
    """The one text of a value; TypeError or ValueError for what is not JSON."""
    return canonical(value, Integers.EXACT, Surrogates.REFUSE)


def parsed_bytes(value: Any) -> bytes:
    """The same for a value that came out of a parser of ours."""
    return canonical_parsed(value, Integers.EXACT, Surrogates.REFUSE)


def report_bytes(job_id: str, ok: bool, value: bytes) -> bytes:
    """The hashed bytes: the report of a job around a value that is canonical already."""
    name = job_id.encode()
    if ok:
        return b'{"job_id":"%s","ok":true,"result":%s}' % (name, value)
    return b'{"error":%s,"job_id":"%s","ok":false}' % (value, name)


def proof_of(text: bytes, hmac_key: bytes | None) -> dict[str, str]:
    """The checksum of a report, and with a key its signature, in their wire form."""
    made = {"mode": "sha256", "sha256": sha256(text).hexdigest()}
    if hmac_key:
        made |= {"mode": "hmac", "sig": digest(hmac_key, text, sha256).hex()}
    return made
