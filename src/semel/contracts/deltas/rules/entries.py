"""Entries for delivery: the effect of a delta on the merged row, so that a client can apply it without checks.

| before | after | operation | columns |
|---|---|---|---|
| absent | absent | DELETE, of a delta that is the last DELETE; else nothing | none |
| absent | live | INSERT, of an INSERT or on a row that was deleted before; else UPDATE | the delta's own |
| live | live | UPDATE | those that won, and null for those that a late tombstone took; nothing when there are none |
| live | absent | DELETE | none |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.contracts.deltas.model import Column, Delta, Op
from semel.contracts.deltas.rules.rows import Change
from semel.kernel.delta_id import columns_bytes, plain_column_bytes

NO_COLUMNS = b"[]"


class Effect(NamedTuple):
    """The part of an entry that depends on the row."""

    op: Op
    columns: bytes | None
    """Text; None when they are the delta's own."""


def effect_of(delta: Delta, change: Change) -> Effect | None:
    """The visible effect of a delta; None when there is none."""
    if change.was_live and change.is_live:
        return _altered(delta, change)
    if change.is_live:
        is_new = delta.op is Op.INSERT or change.was_deleted
        return Effect(Op.INSERT if is_new else Op.UPDATE, _own(delta))
    if change.was_live or change.raised:
        return Effect(Op.DELETE, None if not delta.columns else NO_COLUMNS)
    return None


def _altered(delta: Delta, change: Change) -> Effect | None:
    if delta.op is not Op.DELETE and len(change.won) == len(delta.columns):
        return Effect(Op.UPDATE, _own(delta)) if change.won else None
    told = [column_told(column) for column in change.won]
    told += [plain_column_bytes(name, "null") for name in change.removed]
    return Effect(Op.UPDATE, columns_bytes(told)) if told else None


def _own(delta: Delta) -> bytes | None:
    return None if all(column.has_value for column in delta.columns) else _told(delta.columns)


def _told(columns: Sequence[Column]) -> bytes:
    return columns_bytes([column_told(column) for column in columns])


def column_told(column: Column) -> bytes:
    """A column as it is delivered: as it was sent, with null for a value that was left out."""
    if column.has_value and column.text is not None:
        return column.text.encode()
    return plain_column_bytes(column.name, column.value)
