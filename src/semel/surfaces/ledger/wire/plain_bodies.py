"""Bodies of writes in the form that most clients send: parsed without the readers of members.

A body is plain if every name in it is spelled in lowerCamelCase, every value has the usual JSON type, and every
operation sets an entity without a condition. Any other body, valid or not, is left to `bodies`, which gives the same
values for a plain one; `tests/ledger/wire/test_plain_bodies.py` compares the two.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

from semel.kernel.errors import Refused
from semel.kernel.json.parse import load
from semel.surfaces.ledger.commands import PreparedWrite
from semel.surfaces.ledger.limits import LedgerLimits
from semel.surfaces.ledger.model import LedgerPlace, Operation, SetEntity
from semel.surfaces.ledger.rules.idempotency import KEY_BYTES
from semel.surfaces.ledger.validation import prepare
from semel.surfaces.ledger.wire.bodies import WriteDraft
from semel.surfaces.ledger.wire.usual_bodies import usual_bulk, usual_write

_KEY_CHARACTERS = 24
"""Sixteen bytes in base64."""
_WRITE = frozenset({"clientId", "sequence", "idempotencyKey", "operations"})
_SET = frozenset({"key", "value"})
_OPERATION = frozenset({"setEntity"})
_BULK = frozenset({"transactions"})
_DIGITS = 19
"""Every number of up to this many digits has 64 bits."""


def plain_write(body: bytes, place: LedgerPlace, limits: LedgerLimits) -> PreparedWrite | None:
    """The transaction in a plain body; None if the body is not plain, or not valid."""
    usual = usual_write(body, place, limits)
    if usual is not None:
        return usual
    loaded = load(body)
    return None if loaded is None else _prepared(loaded.value, place, limits)


def plain_bulk(
    body: bytes, max_transactions: int, place: LedgerPlace, limits: LedgerLimits
) -> list[PreparedWrite] | None:
    """The transactions in a plain body of many; None if the body is not plain, or a transaction is not valid."""
    usual = usual_bulk(body, max_transactions, place, limits)
    if usual is not None:
        return usual
    loaded = load(body)
    if loaded is None or not isinstance(loaded.value, dict) or loaded.value.keys() != _BULK:
        return None
    values = loaded.value["transactions"]
    if not isinstance(values, list) or not 1 <= len(values) <= max_transactions:
        return None
    found = []
    for value in values:
        prepared = _prepared(value, place, limits)
        if prepared is None:
            return None
        found.append(prepared)
    return found


def _prepared(value: Any, place: LedgerPlace, limits: LedgerLimits) -> PreparedWrite | None:
    """The transaction in a plain object, validated, encoded and hashed; None if it is not plain, or not valid."""
    draft = plain_draft(value, limits.max_operations)
    if draft is None:
        return None
    try:
        return prepare(limits, place, draft.client.encode(), draft.sequence, draft.key, draft.operations)
    except Refused:
        return None


def plain_draft(value: Any, max_operations: int) -> WriteDraft | None:
    """The transaction in a plain object; None if the object is not plain."""
    if value.__class__ is not dict or not value.keys() <= _WRITE:
        return None
    client, listed = value.get("clientId"), value.get("operations")
    if client.__class__ is not str or listed.__class__ is not list or not 1 <= len(listed) <= max_operations:
        return None
    sequence, key = value.get("sequence"), value.get("idempotencyKey")
    if not _is_number(sequence) or not (key is None or (key.__class__ is str and len(key) == _KEY_CHARACTERS)):
        return None
    named = b"" if key is None else _bytes(key)
    operations = tuple(map(_operation, listed))
    if named is None or len(named) not in (0, KEY_BYTES) or None in operations:
        return None
    number = None if sequence is None else int(sequence)
    return WriteDraft(client, number, named, operations, False)  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    """Whether a value is absent, or a number in digits that surely has 64 bits."""
    if value is None:
        return True
    return value.__class__ is str and len(value) <= _DIGITS and value.isascii() and value.isdigit()


def _operation(value: Any) -> Operation | None:
    if value.__class__ is not dict or value.keys() != _OPERATION:
        return None
    inner = value["setEntity"]
    if inner.__class__ is not dict or inner.keys() != _SET:
        return None
    key, content = inner["key"], inner["value"]
    if key.__class__ is not str or content.__class__ is not str:
        return None
    data = _bytes(content)
    return None if data is None else SetEntity(key.encode(), data)


def _bytes(text: str) -> bytes | None:
    """Padded base64 in the usual alphabet; None for anything else."""
    if len(text) % 4 or text.endswith("==="):
        return None  # the decoder accepts more padding than there should be
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
