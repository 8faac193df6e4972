"""Own writes that lost: what a change of another replica replaced, by last writer wins.

A loss is found when a page, the answer to a push or a checkpoint is applied, and stored in the same transaction. It
stays in the file until the application has taken it, so a crash in between does not lose it. At most `MOST_LOST` are
kept, the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from semel.client.deltas.drafts import row_id
from semel.client.deltas.file import LocalFile
from semel.client.deltas.outbox import Place
from semel.client.deltas.rows import Base, ReplicaCell, ReplicaChange, visible
from semel.client.deltas.values import LostWrite
from semel.kernel.json.canonical import parse
from semel.kernel.json.fragment import dump

MOST_LOST = 10_000


class OwnHold(NamedTuple):
    """What own writes hold of a row before a change of others."""

    cells: Mapping[str, ReplicaCell]
    """Columns whose visible value is an own one."""
    has_deleted: bool
    """Whether an own deletion that is not acknowledged hides the row."""


NO_HOLD = OwnHold({}, False)


class Loss(NamedTuple):
    """One loss, not stored yet."""

    column: str | None
    own: Any
    winning: Any
    is_row_deleted: bool
    was_pending: bool


def hold(base: Base, own: Sequence[ReplicaChange]) -> OwnHold:
    """What own writes hold of a row."""
    cells = visible(base, own)
    if cells is None:
        return OwnHold({}, any(change.op == "DELETE" for change in own))
    return OwnHold({name: cell for name, cell in cells.items() if cell.is_own}, False)


def losses(before: OwnHold, after: Mapping[str, ReplicaCell] | None) -> Iterator[Loss]:
    """The own writes that are not visible any more, unless the winning value is equal."""
    for name, cell in before.cells.items():
        now = None if after is None else after.get(name)
        winning = None if now is None else now.value
        is_same = after is not None and dump(cell.value) == dump(winning)
        if not is_same and not (now is not None and now.is_own):
            yield Loss(name, cell.value, winning, after is None, not cell.at)
    if before.has_deleted and after is not None:
        yield Loss(None, None, None, False, True)


def winner_of(column: str | None, changes: Iterable[ReplicaChange]) -> str | None:
    """The author of the last change that concerns a column; None if there is none."""
    winner = None
    for change in changes:
        if column is None or change.op != "UPDATE" or column in change.columns:
            winner = change.stamp.client
    return winner


class LostWrites:
    """The losses in a file, changed in its transactions."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def add(self, place: Place, loss: Loss, winner: str | None) -> None:
        """Store a loss; the oldest one above the limit is dropped."""
        own, winning = dump(loss.own).decode(), dump(loss.winning).decode()
        flags = (int(loss.is_row_deleted), int(loss.was_pending))
        self._file.execute(
            "INSERT INTO semel_lost (table_name, row_id, column_name, own, winning, winner, is_row_deleted, "
            "was_pending) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, loss.column, own, winning, winner, *flags),
        )
        self._file.execute(
            "DELETE FROM semel_lost WHERE sequence <= (SELECT max(sequence) FROM semel_lost) - ?", (MOST_LOST,)
        )

    def first(self, most: int, after: int = 0) -> list[tuple[int, LostWrite]]:
        """The oldest losses after a sequence number."""
        found = self._file.execute(
            "SELECT sequence, table_name, row_id, column_name, own, winning, winner, is_row_deleted, was_pending "
            "FROM semel_lost WHERE sequence > ? ORDER BY sequence LIMIT ?",
            (after, most),
        )
        return [(number, _lost(*fields)) for number, *fields in found]

    def remove(self, sequence: int) -> None:
        """Remove the losses up to a sequence number."""
        self._file.execute("DELETE FROM semel_lost WHERE sequence <= ?", (sequence,))

    def take(self, most: int) -> list[LostWrite]:
        """Remove and return the oldest losses."""
        with self._file.transaction():
            found = self.first(most)
            if found:
                self.remove(found[-1][0])
            return [lost for _, lost in found]


def _lost(
    table: str, row: str, column: str | None, own: str, winning: str, winner: str | None, gone: int, pending: int
) -> LostWrite:
    values = parse(own.encode()), parse(winning.encode())
    return LostWrite(table, row_id(row), column, *values, winner, bool(gone), bool(pending))
