"""Bodies of writes as most clients print them, read by one pattern instead of a JSON parser.

The pattern has one operation, which sets an entity without a condition, the members in the order of the reference, at
most one space behind a comma or a colon, and strings of printable ASCII without escapes. A text that it matches as a
whole is JSON with these members and no others. Any other body, valid or not, is left to `plain_bodies` and `bodies`,
which give the same values; `tests/ledger/wire/test_plain_bodies.py` compares them.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from hashlib import sha256
from struct import Struct

from semel.surfaces.ledger.commands import PreparedWrite
from semel.surfaces.ledger.limits import LedgerLimits
from semel.surfaces.ledger.model import LedgerPlace, SetEntity
from semel.surfaces.ledger.validation import NO_KEY

_WRITE = re.compile(
    rb'\{"clientId": ?"([ !#-\[\]-~]{1,256})", ?'
    rb'(?:"sequence": ?"([0-9]{1,19})", ?)?'  # every number of up to 19 digits has 64 bits
    rb'(?:"idempotencyKey": ?"([A-Za-z0-9+/]{22}==)", ?)?'
    rb'"operations": ?\[\{"setEntity": ?\{"key": ?"([ !#-\[\]-~]+)", ?"value": ?"([A-Za-z0-9+/]*={0,2})"\}\}\]\}'
)
_BULK = re.compile(rb'\{"transactions": ?\[')
_NEXT = re.compile(rb", ?")
_END = b"]}"
_LENGTH = Struct("<I")
_ONE_SET, _UNCONDITIONAL = b"\1\0\0\0\3", bytes(9)
"""What is before the key of the only operation of a transaction and behind its value: see `rules/chain.py`."""


def usual_write(body: bytes, place: LedgerPlace, limits: LedgerLimits) -> PreparedWrite | None:
    """The transaction in a body of the usual form; None if it has another form, or is not valid."""
    found = _WRITE.fullmatch(body)
    return None if found is None else _prepared(found, place, limits)


def usual_bulk(body: bytes, most: int, place: LedgerPlace, limits: LedgerLimits) -> list[PreparedWrite] | None:
    """The transactions in a body of at most `most`; None if it has another form, or one of them is not valid."""
    head = _BULK.match(body)
    if head is None:
        return None
    at = head.end()
    some: list[PreparedWrite] = []
    while len(some) < most:
        found = _WRITE.match(body, at)
        prepared = None if found is None else _prepared(found, place, limits)
        if found is None or prepared is None:
            return None
        some.append(prepared)
        at = found.end()
        gap = _NEXT.match(body, at)
        if gap is None:
            return some if body[at:] == _END else None
        at = gap.end()
    return None


def _prepared(found: re.Match[bytes], place: LedgerPlace, limits: LedgerLimits) -> PreparedWrite | None:
    """The transaction of a match, validated, encoded and hashed; None if it is not valid."""
    client, digits, key, name, content = found.groups()
    try:
        value = a2b_base64(content, strict_mode=True)
        named = b"" if key is None else a2b_base64(key, strict_mode=True)
    except ValueError:
        return None
    number = None if digits is None else int(digits)
    size, length = len(name), len(value)
    if (
        not (named if number is None else number)  # neither of them, or the sequence 0
        or named == NO_KEY
        or len(content) % 4
        or size > limits.max_key_bytes
        or length > limits.max_value_bytes
        or size + length > limits.max_payload_bytes
    ):
        return None
    encoded = b"".join((_ONE_SET, _LENGTH.pack(size), name, _LENGTH.pack(length), value, _UNCONDITIONAL))
    operations = (SetEntity(name, value),)
    return PreparedWrite(place, client, number, named, operations, encoded, sha256(encoded).digest())
