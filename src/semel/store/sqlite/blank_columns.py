"""Columns of a wide table that are 0 or empty in new rows: an INSERT has them as literals and binds only the others.

Of the 42 columns of a new job 22 are blank, and to bind a value takes as long as to store it. The columns are those
that were blank in all rows which this process has inserted: a row with another value in one of them makes the set
smaller for good, so there are at most as many texts of statements as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from semel.store.protocol import AnyTable
from semel.store.table import ColumnKind

WIDE_COLUMNS = 24
"""A table with fewer columns gains nothing."""
LEAST_BLANK = 8
"""Fewer blank columns are bound like the others."""
_LITERALS = {ColumnKind.I64: "0", ColumnKind.BYTES: "x''"}


class BlankColumns:
    """The blank columns of one table, by their places in the row. Used by the writer only."""

    def __init__(self, table: AnyTable, places: Sequence[int]) -> None:
        columns = table.columns
        self._table = table
        self._places = places
        literals = {place: _LITERALS[columns[place].kind] for place in places}
        others = [place for place in range(len(columns)) if place not in literals]
        self._blank = itemgetter(*places)
        self._others = itemgetter(*others)
        self.row = f"({', '.join(literals.get(place, '?') for place in range(len(columns)))})"
        """One row of VALUES."""
        self.payloads = [itemgetter(at) for at, place in enumerate(others) if columns[place].kind is ColumnKind.BYTES]
        """The payloads among the bound values."""

    def fitting(self, rows: Sequence[Any]) -> BlankColumns | None:
        """The columns that are blank in these rows too; None if there are too few of them."""
        if not any(map(any, map(self._blank, rows))):
            return self
        return _of(self._table, [place for place in self._places if not any(row[place] for row in rows)])

    def bound(self, rows: Sequence[Any]) -> list[Any]:
        """The values of these rows in the other columns."""
        return list(map(self._others, rows))


def blank_columns(table: AnyTable) -> BlankColumns | None:
    """All columns that can be blank, before the first row; None for a table that is not wide.

    The last two columns are never among them: the checksum, and a payload that may be large and is written in pieces.
    """
    if len(table.columns) < WIDE_COLUMNS:
        return None
    places = range(table.key, len(table.columns) - 2)
    return _of(table, [at for at in places if table.columns[at].kind in _LITERALS and not table.columns[at].nullable])


def _of(table: AnyTable, places: Sequence[int]) -> BlankColumns | None:
    return BlankColumns(table, places) if len(places) >= LEAST_BLANK else None
