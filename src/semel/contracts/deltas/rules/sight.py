"""Visibility data of an entry: the merged row before and after it, in the columns that sync rules name.

It is kept with the entry, because the row goes on changing, and only the columns that the rules name. The first change
of a row after the rules were saved also keeps how the row stood then: older entries are judged by that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from semel.contracts.deltas.rules.buckets import Rules, columns_for
from semel.contracts.deltas.rules.rows import Basis, RowState, Values


class Sight(NamedTuple):
    """The columns that rules of one version name, before and after an entry; None where there was no row."""

    version: int
    before: Values | None
    after: Values | None


class Eye(NamedTuple):
    """The rules of a gateway while a push is decided."""

    version: int
    rules: Rules

    def look(self, table: str, state: RowState) -> Values | None:
        """The columns of a row that the rules read."""
        if not state.is_live:
            return None
        cells = state.cells
        return {name: cells[name].value for name in columns_for(self.rules, table) if name in cells}

    def settle(self, table: str, state: RowState) -> None:
        """Before a row changes: keep its state, if that is its first change under these rules."""
        if state.basis is None or state.basis.version != self.version:
            state.basis = Basis(self.version, self.look(table, state))


def dump_sight(sight: Sight) -> bytes:
    """The stored form."""
    return orjson.dumps(tuple(sight))


def load_sight(stored: bytes) -> Sight:
    """From the stored form."""
    facts: list[Any] = orjson.loads(stored)
    return Sight(*facts)
