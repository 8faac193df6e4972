"""Rows that a decision requests while it runs: collected and loaded at once, so that it runs again only once."""

from __future__ import annotations

from collections.abc import Iterable

from semel.engine.contract import MissingRowsError, Stage, View
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key


def demand(view: View, keys: Iterable[tuple[AnyTable, Key]]) -> None:
    """Go on only when all of these have been loaded."""
    missing = []
    for table, key in keys:
        try:
            view.get(table, key)
        except MissingRowsError:
            missing.append((table, key))
    if missing:
        raise MissingRowsError(Stage(keys=missing))


def demand_ranges(view: View, ranges: Iterable[Range]) -> None:
    """The same for ranges."""
    missing = []
    for wanted in ranges:
        try:
            view.range(wanted)
        except MissingRowsError:
            missing.append(wanted)
    if missing:
        raise MissingRowsError(Stage(ranges=missing))
