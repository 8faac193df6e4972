"""Hashes of content: the identity of a delta, the signed bytes of a job report, and the fingerprint of a write.

The identity of a delta is the hash of the canonical JSON of author, columns, time, row and table, so that the same
change has the same name wherever it is sent. The operation and the other members of a delta are not hashed. Strings,
values and columns travel through the server as their canonical texts, which are made once here. Server and workers hash
and sign the same text of a job report. The fingerprint of a write tells a retry from another write under the same key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import digest
from types import NoneType
from typing import Any

import orjson

from semel.kernel.json.canonical import Integers, Json, Surrogates, canonical, canonical_parsed
from semel.kernel.json.number import print_double

_SAFE = 2**53
_ALWAYS = frozenset((str, bool, NoneType))
"""orjson prints every value of these types canonically, except for lone surrogates, which it refuses."""


def json_text(value: Json) -> str:
    """The canonical JSON of a parsed value. Lone surrogates are escaped, so that every text can be encoded."""
    kind = type(value)
    if kind in _ALWAYS or (kind is int and -_SAFE <= value <= _SAFE):  # type: ignore[operator]
        try:
            return orjson.dumps(value).decode()
        except orjson.JSONEncodeError:
            pass
    elif kind is float:
        return print_double(value)  # type: ignore[arg-type]
    return canonical_parsed(value, Integers.ROUND, Surrogates.ESCAPE).decode()


def plain_column(name: str, value: str) -> str:
    """The canonical JSON of a column that has a name and a value, from the canonical text of the value."""
    return f'{{"column":"{name}","value":{value}}}'


def columns_text(columns: Sequence[str]) -> str:
    """The canonical JSON of all columns, from the text of each."""
    return f"[{','.join(columns)}]"


def plain_column_bytes(name: str, value: str) -> bytes:
    """As `plain_column`, in UTF-8: a single wide character makes a Python string four times as large as its bytes."""
    return b'{"column":"%b","value":%b}' % (name.encode(), value.encode())


def columns_bytes(columns: Iterable[bytes]) -> bytes:
    """As `columns_text`, in UTF-8."""
    return b"[%b]" % b",".join(columns)


def delta_id(client: str, columns: str | bytes, hlc: int, row: str, table: str) -> bytes:
    """The 32 bytes that identify a delta; author, columns and row are canonical texts, the table is an identifier."""
    hashed = sha256(f'{{"clientId":{client},"columns":'.encode())
    hashed.update(columns if isinstance(columns, bytes) else columns.encode())
    hashed.update(f',"hlc":"{hlc}","rowId":{row},"table":"{table}"}}'.encode())
    return hashed.digest()


def canonical_bytes(value: Any) -> bytes:
    """The canonical JSON of a value; TypeError or ValueError for a value that is not JSON."""
    return canonical(value, Integers.EXACT, Surrogates.REFUSE)


def parsed_bytes(value: Any) -> bytes:
    """As `canonical_bytes`, for a value that one of our parsers made."""
    return canonical_parsed(value, Integers.EXACT, Surrogates.REFUSE)


def report_bytes(job_id: str, ok: bool, value: bytes) -> bytes:
    """The bytes of a job report that are hashed; `value` is canonical already."""
    name = job_id.encode()
    if ok:
        return b'{"job_id":"%s","ok":true,"result":%s}' % (name, value)
    return b'{"error":%s,"job_id":"%s","ok":false}' % (value, name)


def proof_of(text: bytes, hmac_key: bytes | None) -> dict[str, str]:
    """The checksum of a report, and its signature if there is a key, in their wire form."""
    made = {"mode": "sha256", "sha256": sha256(text).hexdigest()}
    if hmac_key:
        made |= {"mode": "hmac", "sig": digest(hmac_key, text, sha256).hex()}
    return made


def fingerprint(canonical_bytes: bytes) -> bytes:
    """The SHA-256 hash, 32 bytes."""
    return hashlib.sha256(canonical_bytes).digest()
