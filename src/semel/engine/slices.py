"""Load planning: which rows are fetched together, so that heavy tables are loaded within their byte limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from semel.store.protocol import AnyTable
from semel.store.table import Key

LOADED_AT_ONCE = 32
"""Limit of rows of a heavy table that are fetched before their bytes are counted."""


def in_slices(keys: Mapping[AnyTable, Iterable[Key]], first: int) -> Iterator[Mapping[AnyTable, Iterable[Key]]]:
    """All keys at once, if those of heavy tables are few; else the rest of those in further slices, each twice as long
    as the one before: where little may be held, the first ones tell how large the rows are.
    """
    heavy = [(table, key) for table, wanted in keys.items() if table.heavy for key in wanted]
    if len(heavy) <= first:
        yield keys
        return
    some: dict[AnyTable, list[Key]] = {table: list(wanted) for table, wanted in keys.items() if not table.heavy}
    start, count = 0, first
    while start < len(heavy):
        for table, key in heavy[start : start + count]:
            some.setdefault(table, []).append(key)
        yield some
        some = {}
        start, count = start + count, min(2 * count, LOADED_AT_ONCE)
