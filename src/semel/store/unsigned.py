"""Unsigned 64-bit numbers for databases without them: eight bytes, big endian, so that byte order is number order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from semel.store.protocol import AnyTable, Row
from semel.store.table import Key, Kind


class Unsigned:
    """Converts the unsigned columns of one table's rows and keys on write and read."""

    def __init__(self, table: AnyTable) -> None:
        self._table = table
        self._places = [place for place, column in enumerate(table.columns) if column.kind is Kind.U64]
        self._key_places = [place for place in self._places if place < table.key]

    def rows_out(self, rows: Sequence[Row]) -> Sequence[Any]:
        """Rows as the database takes them."""
        return [_replace(row, self._places, pack) for row in rows] if self._places else rows

    def key_out(self, key: Key) -> Key:
        """A key as the database takes it."""
        return _replace(key, self._key_places, pack) if self._key_places else key

    def prefix_out(self, prefix: Key) -> Key:
        """The beginning of a key as the database takes it."""
        places = [place for place in self._key_places if place < len(prefix)]
        return _replace(prefix, places, pack) if places else prefix

    def key_in(self, values: Any) -> Key:
        """A key as the contracts know it."""
        return _replace(values, self._key_places, unpack) if self._key_places else tuple(values)

    def row_in(self, values: Any) -> Row:
        """A row as the contracts know it."""
        return self._table.row._make(_replace(values, self._places, unpack) if self._places else values)

    def value_out(self, column: str, value: Any) -> Any:
        """One column's value as the database takes it."""
        return pack(value) if self._table.columns[self._table.position(column)].kind is Kind.U64 else value

    def value_in(self, column: str, value: Any) -> Any:
        """One column's value as the contracts know it."""
        return unpack(value) if self._table.columns[self._table.position(column)].kind is Kind.U64 else value


def pack(number: int) -> bytes:
    """A number as eight bytes."""
    return number.to_bytes(8, "big")


def unpack(stored: bytes) -> int:
    """The number behind them."""
    return int.from_bytes(stored, "big")


def _replace(values: Any, places: list[int], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    changed = list(values)
    for place in places:
        if changed[place] is not None:
            changed[place] = change(changed[place])
    return tuple(changed)
