"""A loaded key range, kept in order while the batch changes rows.

Only what lies before the last loaded row is known, unless the store had no more: a change beyond that point must stay
out, because unloaded rows may stand before it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from semel.store.protocol import Range, Row
from semel.store.table import Key

_LIMIT = Range._fields.index("limit")


def same_rows(wanted: Range) -> tuple[Any, ...]:
    """Two ranges with equal names of this kind differ in nothing but their limit."""
    return wanted[:_LIMIT] + wanted[_LIMIT + 1 :]


class LoadedRange:
    """The loaded beginning of a range, as positions in its index."""

    def __init__(self, wanted: Range, rows: Sequence[Row], edge: Key | None) -> None:
        self._wanted = wanted
        self._keys: dict[Key, Key] = {}
        self._places: list[Key] = []
        self._edge = edge
        """The place of the last row that the store gave; None when it had no more to give."""
        for row in rows:
            self._add(wanted.table.key_of(row), row)

    def change(self, key: Key, before: Row | None, after: Row | None) -> None:
        """Follow one row."""
        if before is not None:
            place = self._wanted.table.index_key(self._wanted.by, before)
            if place in self._keys:
                del self._keys[place]
                del self._places[bisect_left(self._places, place)]
        if after is not None:
            self._add(key, after)

    def first(self, limit: int) -> list[Key] | None:
        """The keys of the first rows, None when that many are not known."""
        if len(self._places) < limit and self._edge is not None:
            return None
        places = self._places[-limit:][::-1] if self._wanted.reverse else self._places[:limit]
        return [self._keys[place] for place in places[:limit]]

    def _add(self, key: Key, row: Row) -> None:
        place = self._wanted.table.index_key(self._wanted.by, row)
        if self._wanted.holds(place) and self._is_known(place) and place not in self._keys:
            self._keys[place] = key
            insort(self._places, place)

    def _is_known(self, place: Key) -> bool:
        if self._edge is None:
            return True
        return place >= self._edge if self._wanted.reverse else place <= self._edge
