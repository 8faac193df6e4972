"""Last writer wins, by column: the merged state of one row.

Every column has the stamp of its last write, and the row has the stamps of its last insert and its last delete. The
state is the fold of the row's deltas in the order of their stamps, stored so that a delta costs only its own columns:
the state depends only on the set of deltas, not on the order or the number of their arrivals. A value older than the
last tombstone is gone, even if the row comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from semel.kernel.hashes import columns_bytes, json_text, plain_column_bytes
from semel.kernel.json.canonical import parse
from semel.surfaces.deltas.limits import MAX_COLUMNS
from semel.surfaces.deltas.model import Delta, DeltaColumn, DeltaOp

_REMEMBERED = 2
"""Two authors are enough to know, for any client, the last change by another client."""


class DeltaStamp(NamedTuple):
    """The time and the author of a write; the greater stamp wins."""

    hlc: int
    client: str
    id: str


class DeltaCell(NamedTuple):
    """The last write of a column."""

    stamp: DeltaStamp
    value: str
    """The text of the value."""


class AuthorMark(NamedTuple):
    """The last entry of an author on a row, or in a gateway."""

    client: str
    position: int
    op: int = 0


Marks = tuple[AuthorMark, ...]
Values = dict[str, str]
"""Columns by name: the texts of their values."""


class RepairHint(NamedTuple):
    """What a row stores about an author that wrote to it without having received all of it."""

    client: str
    position: int = 0
    """The position of the last repair for it."""
    turn: int = 0
    """The position of the last repair that inserted or deleted the row; 0 without one."""
    op: int = 0
    """The operation of that repair."""
    inserted_at: int = 0
    """The end of the log when the author inserted the row without knowing the existing one; 0 if its copy came
    otherwise.
    """
    first: int = 0
    """The position at which the last repair begins: a repair may be two entries, of which the first is a DELETE."""
    columns: tuple[str, ...] | None = None
    """The columns of the last repair; None for all of them."""

    def above(self, position: int) -> RepairHint:
        """The part above a position; the part below has been delivered."""
        if not (self.position or self.turn or self.inserted_at):
            return self
        turn, op = (self.turn, self.op) if self.turn > position else (0, 0)
        at, inserted_at = (one if one > position else 0 for one in (self.position, self.inserted_at))
        return self._replace(position=at, turn=turn, op=op, inserted_at=inserted_at)


class VisibilityBasis(NamedTuple):
    """The columns that the sync rules read when they were saved; None for a row that did not exist."""

    version: int
    values: Values | None


@dataclass(slots=True)
class RowState:
    """One row of a gateway; changed in place while a push is decided, and stored at its end."""

    row: str
    deleted: DeltaStamp | None = None
    written: DeltaStamp | None = None
    cells: dict[str, DeltaCell] = field(default_factory=dict)
    """Columns newer than the last DELETE; older ones have no effect."""
    gone: dict[str, None] = field(default_factory=dict)
    """Names of columns that the row once had."""
    entries: Marks = ()
    """The last entries of the two latest authors."""
    turns: Marks = ()
    """The last inserts or deletes of the row by the two latest authors."""
    aids: tuple[RepairHint, ...] = ()
    """One for each author, the newest first."""
    basis: VisibilityBasis | None = None
    is_new: bool = False
    """Whether the current push has created the row."""

    @property
    def is_live(self) -> bool:
        """Whether the row exists, and is not deleted."""
        return self.written is not None and is_after(self.written, self.deleted)

    @property
    def last(self) -> DeltaStamp:
        """The stamp of the last write of the row."""
        if self.written is None or (self.deleted is not None and is_after(self.deleted, self.written)):
            assert self.deleted is not None, "a row has at least one delta"
            return self.deleted
        return self.written

    def aid_of(self, client: str) -> RepairHint:
        """The repair hint of an author."""
        return next((aid for aid in self.aids if aid.client == client), RepairHint(client))

    def values(self) -> Values | None:
        """The columns of an existing row; None for a deleted one."""
        return {name: cell.value for name, cell in self.cells.items()} if self.is_live else None

    def bury(self, names: Iterable[str]) -> None:
        """Store the names of removed columns; above the limit only the last ones."""
        for name in names:
            self.gone.pop(name, None)
            self.gone[name] = None
        while len(self.gone) > MAX_COLUMNS:
            del self.gone[next(iter(self.gone))]


def is_after(one: DeltaStamp, other: DeltaStamp | None) -> bool:
    """Whether one stamp is greater than another; equal times are decided by the authors, and then by the ids."""
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


class RowChange(NamedTuple):
    """The effect of one delta on its row."""

    was_live: bool
    is_live: bool
    was_deleted: bool
    """Whether the row was deleted before."""
    raised: bool
    """Whether the delta is the last DELETE."""
    won: tuple[DeltaColumn, ...]
    removed: tuple[str, ...]
    """Columns of an existing row that a late tombstone removed."""
    is_lost: bool
    """Whether any part of the delta had no effect."""


def apply(state: RowState, delta: Delta) -> RowChange:
    """Fold one delta into the state."""
    stamp = DeltaStamp(delta.hlc, delta.client, delta.id.hex())
    return _delete(state, stamp) if delta.op is DeltaOp.DELETE else _write(state, stamp, delta.columns)


def _delete(state: RowState, stamp: DeltaStamp) -> RowChange:
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
    return RowChange(was_live, is_live, was_deleted, raised, (), removed if is_live else (), is_lost=is_live)


def _write(state: RowState, stamp: DeltaStamp, columns: Sequence[DeltaColumn]) -> RowChange:
    was_live, was_deleted = state.is_live, state.deleted is not None
    if is_after(stamp, state.written):
        state.written = stamp
    if not is_after(stamp, state.deleted):
        state.bury(column.name for column in columns if column.name not in state.cells)
        return RowChange(was_live, state.is_live, was_deleted, False, (), (), is_lost=True)
    won = []
    for column in columns:
        known = state.cells.get(column.name)
        if known is None or is_after(stamp, known.stamp):
            state.cells[column.name] = DeltaCell(stamp, column.value)
            state.gone.pop(column.name, None)
            won.append(column)
    is_lost = len(won) < len(columns)
    return RowChange(was_live, state.is_live, was_deleted, False, tuple(won), (), is_lost)


def marked(marks: Marks, mark: AuthorMark) -> Marks:
    """The marks with one more: the newest first, one for each author, limited to those that `last_of_others` needs."""
    return (mark, *(one for one in marks if one.client != mark.client))[:_REMEMBERED]


def last_of_others(marks: Marks, client: str, above: int) -> AuthorMark | None:
    """The last change by another client, if it lies above a position."""
    for mark in marks:
        if mark.client != client:
            return mark if mark.position > above else None
    return None


# ---- Stored form: each stamp is written once and referenced, because most columns of a row are written together ----
#
# A row that one delta has created, and no other has changed, has a shorter form, which begins with an array: the stamp,
# the position and operation of its entry, and then the columns as they were pushed.

_FIRST = b'[%d,%b,"%b",%d,%d,%b]'


def load_state(row: str, stored: bytes) -> RowState:
    """The state from its stored form."""
    return _load_first(row, stored) if stored.startswith(b"[") else _load_whole(row, orjson.loads(stored))


def dump_state(state: RowState) -> bytes:
    """The stored form of a state."""
    return _dump_first(state) or _dump_whole(state)


def first_state(delta: Delta, client: bytes, position: int) -> bytes:
    """The stored form of a row that this delta has created; `client` is the text of the author's id, as JSON."""
    return _FIRST % (delta.hlc, client, delta.id.hex().encode(), position, delta.op, delta.columns_text)


def is_flat(columns: bytes, count: int) -> bool:
    """Whether the text of columns holds no nested values, as far as its brackets tell."""
    return columns.count(b"{") == count and columns.count(b"[") == 1


def _dump_first(state: RowState) -> bytes | None:
    """The shorter form; None if the state has more to store."""
    stamp, entries = state.written, state.entries
    if stamp is None or len(entries) != 1 or entries[0].client != stamp.client:
        return None
    if state.deleted is not None or state.gone or state.aids or state.basis is not None:
        return None
    if state.turns != _turns(entries) or any(cell.stamp != stamp for cell in state.cells.values()):
        return None
    columns = columns_bytes(plain_column_bytes(name, cell.value) for name, cell in state.cells.items())
    if not is_flat(columns, len(state.cells)):
        return None
    _, position, op = entries[0]
    return _FIRST % (stamp.hlc, orjson.dumps(stamp.client), stamp.id.encode(), position, op, columns)


def _load_first(row: str, stored: bytes) -> RowState:
    facts: Any = parse(stored)
    hlc, client, name, position, op, columns = facts
    stamp, entries = DeltaStamp(hlc, client, name), (AuthorMark(client, position, op),)
    cells = {one["column"]: DeltaCell(stamp, json_text(one["value"])) for one in columns}
    return RowState(row, None, stamp, cells, entries=entries, turns=_turns(entries))


def _turns(entries: Marks) -> Marks:
    """The inserts and deletes among the entries of a row that has one entry."""
    return () if entries[0].op == DeltaOp.UPDATE else entries


def _load_whole(row: str, facts: dict[str, Any]) -> RowState:
    stamps = [DeltaStamp(*one) for one in facts["s"]]
    basis = facts.get("b")
    return RowState(
        row,
        None if facts["d"] < 0 else stamps[facts["d"]],
        None if facts["w"] < 0 else stamps[facts["w"]],
        {name: DeltaCell(stamps[place], value) for name, place, value in facts["c"]},
        dict.fromkeys(facts.get("g", ())),
        load_marks(facts["e"]),
        load_marks(facts["t"]),
        tuple(map(_load_aid, facts.get("a", ()))),
        None if basis is None else VisibilityBasis(basis[0], basis[1]),
    )


def _load_aid(facts: list[Any]) -> RepairHint:
    aid = RepairHint(*facts)
    return aid if aid.columns is None else aid._replace(columns=tuple(aid.columns))


def _dump_whole(state: RowState) -> bytes:
    places: dict[DeltaStamp, int] = {}

    def place(stamp: DeltaStamp | None) -> int:
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
    return tuple(AuthorMark(*one) for one in facts)
