"""Integrity of results: each is hashed over its canonical bytes, and signed where there is a key.

A value that is not JSON is refused before it is sent.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.errors import IntegrityError
from semel.kernel.job_report import canonical_bytes, proof_of, report_bytes

__all__ = ["Checked", "canonical_bytes", "check", "proof"]


class Checked(NamedTuple):
    """A checksum that fits, and whether a signature did."""

    sha256: str
    is_signed: bool


def proof(job_id: str, ok: bool, value: bytes, hmac_key: bytes | None) -> dict[str, str]:
    """The checksum, and with a key the signature, that go with a report."""
    return proof_of(report_bytes(job_id, ok, value), hmac_key)


def check(job_id: str, ok: bool, value: Any, given: Mapping[str, Any], hmac_key: bytes | None) -> Checked:
    """Verify an outcome; an IntegrityError if it does not match its checksum or signature.

    With a key the signature must be there: one who could change the result could also leave the signature out.
    """
    made = proof(job_id, ok, canonical_bytes(value), hmac_key)
    if not _same(made["sha256"], given.get("sha256")):
        raise IntegrityError(f"The result of {job_id} does not have the checksum that came with it.")
    if hmac_key is not None and not _same(made["sig"], given.get("sig")):
        raise IntegrityError(f"The result of {job_id} does not have a signature that fits.")
    return Checked(made["sha256"], hmac_key is not None)


def _same(made: str, given: object) -> bool:
    return isinstance(given, str) and hmac.compare_digest(made.encode(), given.encode("utf-8", "replace"))
