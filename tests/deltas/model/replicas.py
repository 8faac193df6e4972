"""Clients with a database of their own: one that believes whatever it is sent, and one that knows better.

| | `PlainReplica`, as LakeSync clients are | `UpsertReplica`, as a client should be |
|---|---|---|
| INSERT | a plain INSERT: on a row that is there the whole page fails | makes the row if need be, sets the columns |
| UPDATE | a plain UPDATE: on a row that is not there nothing happens | the same |
| cursor | of every answer, a push's too; not of an empty page | of pages alone |
| pulls | when everything of its own has been acknowledged | whenever it likes |
"""

from __future__ import annotations

import json
import random
from typing import Protocol

from semel.kernel.hashes import json_text
from semel.kernel.hlc import DriftError, receive, tick
from semel.surfaces.deltas.model import Delta, DeltaColumn, DeltaEntry, DeltaOp
from tests.deltas.model.requests import make_column, make_delta
from tests.deltas.model.rig import Pulled
from tests.harness.simulation import DisagreementError

TABLE = "todos"
COLUMNS = ("a", "b", "c")
PUSHED_AT_ONCE = 4

Row = dict[str, str]


class DoubledRowError(DisagreementError):
    """A plain INSERT of a row that is there: the page is rolled back, and will be for ever."""


class Replica(Protocol):
    """What both can do."""

    name: str
    pending: list[Delta]
    cursor: int

    @property
    def rows(self) -> dict[str, Row]:
        """Its rows; a column without a value is null or not there at all."""

    def write(self, chance: random.Random, fresh_row: str, physical_ms: int) -> Delta | None:
        """Change something and put it in the queue."""

    def pushed(self, sent: tuple[Delta, ...], cursor: int) -> None:
        """What was sent is acknowledged."""

    def apply(self, page: Pulled, physical_ms: int) -> None:
        """Take a page in, whole or not at all."""


class PlainReplica:
    """Believes whatever it is sent; `hears` is whether its clock follows those of others."""

    def __init__(self, name: str, *, hears: bool) -> None:
        self.name = json_text(name)
        self.pending: list[Delta] = []
        self.cursor = 0
        self._rows: dict[str, Row] = {}
        self._hlc = 0
        self._hears = hears

    @property
    def rows(self) -> dict[str, Row]:
        """As they stand."""
        return self._rows

    def write(self, chance: random.Random, fresh_row: str, physical_ms: int) -> Delta | None:
        """Insert a row, or change or delete one that is there."""
        choice = choose(chance, self._rows, fresh_row)
        if choice is None:
            return None
        self._hlc = tick(self._hlc, physical_ms)
        op, row, columns = choice
        delta = make_delta(op, TABLE, row, self.name, self._hlc, columns)
        _put(self._rows, op, row, {column.name: column.value for column in columns})
        self.pending.append(delta)
        return delta

    def begin_again(self) -> None:
        """With an empty database, from the beginning of the log."""
        self._rows, self.cursor = {}, 0

    def pushed(self, sent: tuple[Delta, ...], cursor: int) -> None:
        """They leave the queue, and the answer is the cursor."""
        self.pending = [delta for delta in self.pending if delta not in sent]
        self.cursor = cursor

    def apply(self, page: Pulled, physical_ms: int) -> None:
        """Statement by statement, in one transaction."""
        rows = {name: dict(row) for name, row in self._rows.items()}
        for entry in page.entries:
            self._apply(rows, entry)
            if self._hears:
                self._hlc = _heard(self._hlc, entry.hlc, physical_ms)
        self._rows = rows
        if page.entries:
            self.cursor = page.cursor

    @staticmethod
    def _apply(rows: dict[str, Row], entry: DeltaEntry) -> None:
        if entry.op is DeltaOp.DELETE:
            rows.pop(entry.row, None)
            return
        if entry.op is DeltaOp.INSERT and entry.row in rows:
            raise DoubledRowError(f"{entry.row} is inserted twice")
        if entry.op is DeltaOp.INSERT:
            rows[entry.row] = {}
        if entry.row in rows:
            rows[entry.row].update(values_of(entry))


class UpsertReplica:
    """Keeps what it was told apart from what it has written: nothing that comes can overwrite what is still to go."""

    def __init__(self, name: str) -> None:
        self.name = json_text(name)
        self.pending: list[Delta] = []
        self.cursor = 0
        self._told: dict[str, Row] = {}
        self._acknowledged: list[Delta] = []
        """Not told of yet."""
        self._hlc = 0

    @property
    def rows(self) -> dict[str, Row]:
        """What it was told, and over it what it has written."""
        rows = {name: dict(row) for name, row in self._told.items()}
        for delta in (*self._acknowledged, *self.pending):
            _put(rows, delta.op, delta.row, {column.name: column.value for column in delta.columns})
        return rows

    def write(self, chance: random.Random, fresh_row: str, physical_ms: int) -> Delta | None:
        """Insert a row, or change or delete one that is there."""
        choice = choose(chance, self.rows, fresh_row)
        if choice is None:
            return None
        self._hlc = tick(self._hlc, physical_ms)
        op, row, columns = choice
        delta = make_delta(op, TABLE, row, self.name, self._hlc, columns)
        self.pending.append(delta)
        return delta

    def pushed(self, sent: tuple[Delta, ...], cursor: int) -> None:
        """They leave the queue; the cursor is that of the last page."""
        self.pending = [delta for delta in self.pending if delta not in sent]
        self._acknowledged += sent

    def apply(self, page: Pulled, physical_ms: int) -> None:
        """Entry by entry, its own among them: what it was told is then what everyone is told."""
        for entry in page.entries:
            self._hlc = _heard(self._hlc, entry.hlc, physical_ms)
            _put(self._told, entry.op, entry.row, values_of(entry))
        self.cursor = page.cursor
        if not page.has_more:
            self._acknowledged = []


def _put(rows: dict[str, Row], op: DeltaOp, row: str, values: Row) -> None:
    if op is DeltaOp.DELETE:
        rows.pop(row, None)
    else:
        rows.setdefault(row, {}).update(values)


def choose(
    chance: random.Random, rows: dict[str, Row], fresh_row: str
) -> tuple[DeltaOp, str, tuple[DeltaColumn, ...]] | None:
    """A change that a user could make who sees these rows."""
    draw = chance.random()
    if not rows or draw < 0.25:
        return None if fresh_row in rows else (DeltaOp.INSERT, fresh_row, _columns(chance))
    row = chance.choice(sorted(rows))
    return (DeltaOp.DELETE, row, ()) if draw < 0.45 else (DeltaOp.UPDATE, row, _columns(chance))


def _columns(chance: random.Random) -> tuple[DeltaColumn, ...]:
    names = chance.sample(COLUMNS, chance.randrange(1, len(COLUMNS) + 1))
    return tuple(make_column(name, chance.randrange(1_000)) for name in names)


def values_of(entry: DeltaEntry) -> Row:
    """The columns of an entry: the text of each value."""
    return {column["column"]: json_text(column["value"]) for column in json.loads(entry.columns)}


def _heard(state: int, remote: int, physical_ms: int) -> int:
    """A clock that is too far ahead is not believed."""
    try:
        return receive(state, remote, physical_ms)
    except DriftError:
        return state
