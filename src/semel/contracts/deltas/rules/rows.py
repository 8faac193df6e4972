"""Last writer wins: the merged state of a row, with the stamp of every column and of its last tombstone.

The state is the fold of the row's deltas in the order of their stamps, kept so that each delta costs its own columns:
whatever order deltas arrive in, and however often, the state is that of their set. A value older than the last
tombstone is gone, also when the row comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from semel.contracts.deltas.limits import MAX_COLUMNS
from semel.contracts.deltas.model import Column, Delta, Op

_REMEMBERED = 2
"""Two authors are enough to know, for any client, the last change by another."""


class Stamp(NamedTuple):
    """The time and the author of a write; the greater stamp wins."""

    hlc: int
    client: str
    id: str


class Cell(NamedTuple):
    """The last write of a column."""

    stamp: Stamp
    value: str
    """Text."""


class Mark(NamedTuple):
    """The last entry of an author on a row, or in a gateway."""

    client: str
    position: int
    op: int = 0


Marks = tuple[Mark, ...]
Values = dict[str, str]
"""Columns by name: the texts of their values."""


class Aid(NamedTuple):
    """What a row records of an author that wrote to it without having received all of it."""

    client: str
    position: int = 0
    """The position of the last repair for it."""
    turn: int = 0
    """The position of the last repair that inserted or deleted the row; 0 without one."""
    op: int = 0
    """The operation of that repair."""
    inserted_at: int = 0
    """The end of the log when it inserted the row itself, not knowing of another's; 0 when its copy was not made so."""
    first: int = 0
    """The position at which the last repair begins: it may be two entries, of which the first is a DELETE."""
    columns: tuple[str, ...] | None = None
    """The columns of the last repair; None for all of them."""

    def above(self, position: int) -> Aid:
        """The part that lies above a position; what lies below has been delivered."""
        if not (self.position or self.turn or self.inserted_at):
            return self
        turn, op = (self.turn, self.op) if self.turn > position else (0, 0)
        at, inserted_at = (one if one > position else 0 for one in (self.position, self.inserted_at))
        return self._replace(position=at, turn=turn, op=op, inserted_at=inserted_at)


class Basis(NamedTuple):
    """The columns that the sync rules read when they were saved; None for a row that did not exist."""

    version: int
    values: Values | None


@dataclass(slots=True)
class RowState:
    """One row of a gateway; changed in place while a push is decided, and stored at its end."""

    row: str
    deleted: Stamp | None = None
    written: Stamp | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    """Columns that the last DELETE has not outlived; what is older decides nothing any more."""
    gone: dict[str, None] = field(default_factory=dict)
    """Names of columns that the row once had."""
    entries: Marks = ()
    """The last entries of the two latest authors."""
    turns: Marks = ()
    """The same for entries that insert or delete the row."""
    aids: tuple[Aid, ...] = ()
    """One an author, the newest first."""
    basis: Basis | None = None
    is_new: bool = False
    """Whether the push that is being decided has made it."""

    @property
    def is_live(self) -> bool:
        """Whether there is a row."""
        return self.written is not None and is_after(self.written, self.deleted)

    @property
    def last(self) -> Stamp:
        """The last word on the row."""
        if self.written is None or (self.deleted is not None and is_after(self.deleted, self.written)):
            assert self.deleted is not None, "a row has at least one delta"
            return self.deleted
        return self.written

    def aid_of(self, client: str) -> Aid:
        """The record of an author."""
        return next((aid for aid in self.aids if aid.client == client), Aid(client))

    def values(self) -> Values | None:
        """The columns of a live row; None for a deleted one."""
        return {name: cell.value for name, cell in self.cells.items()} if self.is_live else None

    def bury(self, names: Iterable[str]) -> None:
        """Remember of some columns that there were such; of all too many, the last ones."""
        for name in names:
            self.gone.pop(name, None)
            self.gone[name] = None
        while len(self.gone) > MAX_COLUMNS:
            del self.gone[next(iter(self.gone))]


def is_after(one: Stamp, other: Stamp | None) -> bool:
    """Whether one stamp wins over another; equal times are decided by the authors, and then by the ids."""
    if other is None:
        return True
    if one.hlc != other.hlc:
        return one.hlc > other.hlc
    if one.client != other.client:
        return _code_units(one.client) > _code_units(other.client)
    return one.id > other.id


def _code_units(text: str) -> bytes:
    """An id in the order of UTF-16 code units, from its text."""
    plain: str = json.loads(text)
    return plain.encode("utf-16-be", "surrogatepass")


class Change(NamedTuple):
    """The effect of one delta on its row."""

    was_live: bool
    is_live: bool
    was_deleted: bool
    """Whether the row had ever been deleted before."""
    raised: bool
    """Whether it is the last DELETE."""
    won: tuple[Column, ...]
    removed: tuple[str, ...]
    """Columns of a live row that a late tombstone took away."""
    is_lost: bool
    """Whether any part of it had no effect."""


def apply(state: RowState, delta: Delta) -> Change:
    """Fold one delta into the state."""
    stamp = Stamp(delta.hlc, delta.client, delta.id.hex())
    return _delete(state, stamp) if delta.op is Op.DELETE else _write(state, stamp, delta.columns)


def _delete(state: RowState, stamp: Stamp) -> Change:
    was_live, was_deleted = state.is_live, state.deleted is not None
    raised = is_after(stamp, state.deleted)
    removed: tuple[str, ...] = ()
    if raised:
        state.deleted = stamp
        removed = tuple(name for name, cell in state.cells.items() if not is_after(cell.stamp, stamp))
        for name in removed:
            del state.cells[name]
        state.bury(removed)
    is_live = state.is_live
    return Change(was_live, is_live, was_deleted, raised, (), removed if is_live else (), is_lost=is_live)


def _write(state: RowState, stamp: Stamp, columns: tuple[Column, ...]) -> Change:
    was_live, was_deleted = state.is_live, state.deleted is not None
    if is_after(stamp, state.written):
        state.written = stamp
    if not is_after(stamp, state.deleted):
        state.bury(column.name for column in columns if column.name not in state.cells)
        return Change(was_live, state.is_live, was_deleted, False, (), (), is_lost=True)
    won = []
    for column in columns:
        known = state.cells.get(column.name)
        if known is None or is_after(stamp, known.stamp):
            state.cells[column.name] = Cell(stamp, column.value)
            state.gone.pop(column.name, None)
            won.append(column)
    is_lost = len(won) < len(columns)
    return Change(was_live, state.is_live, was_deleted, False, tuple(won), (), is_lost)


def marked(marks: Marks, mark: Mark) -> Marks:
    """The marks with one more: the newest first, one for each author, limited to those that `last_of_others` needs."""
    return (mark, *(one for one in marks if one.client != mark.client))[:_REMEMBERED]


def last_of_others(marks: Marks, client: str, above: int) -> Mark | None:
    """The last change by another client, if it lies above a position."""
    for mark in marks:
        if mark.client != client:
            return mark if mark.position > above else None
    return None


# ---- As it is stored: stamps are written once and pointed to, for most columns of a row were written together ----


def load_state(row: str, stored: bytes) -> RowState:
    """The state from its stored form."""
    facts: dict[str, Any] = orjson.loads(stored)
    stamps = [Stamp(*one) for one in facts["s"]]
    basis = facts.get("b")
    return RowState(
        row,
        None if facts["d"] < 0 else stamps[facts["d"]],
        None if facts["w"] < 0 else stamps[facts["w"]],
        {name: Cell(stamps[place], value) for name, place, value in facts["c"]},
        dict.fromkeys(facts.get("g", ())),
        load_marks(facts["e"]),
        load_marks(facts["t"]),
        tuple(map(_load_aid, facts.get("a", ()))),
        None if basis is None else Basis(basis[0], basis[1]),
    )


def _load_aid(facts: list[Any]) -> Aid:
    aid = Aid(*facts)
    return aid if aid.columns is None else aid._replace(columns=tuple(aid.columns))


def dump_state(state: RowState) -> bytes:
    """The stored form of a state."""
    places: dict[Stamp, int] = {}

    def place(stamp: Stamp | None) -> int:
        return -1 if stamp is None else places.setdefault(stamp, len(places))

    facts: dict[str, Any] = {
        "d": place(state.deleted),
        "w": place(state.written),
        "c": [(name, places.setdefault(stamp, len(places)), value) for name, (stamp, value) in state.cells.items()],
        "e": state.entries,
        "t": state.turns,
    }
    facts["s"] = list(places)
    if state.gone:
        facts["g"] = list(state.gone)
    if state.aids:
        facts["a"] = state.aids
    if state.basis is not None:
        facts["b"] = state.basis
    return orjson.dumps(facts, default=tuple)


def load_marks(facts: list[list[Any]]) -> Marks:
    """Marks from their stored form."""
    return tuple(Mark(*one) for one in facts)
