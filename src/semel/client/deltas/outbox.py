"""The outbox of a replica: unacknowledged changes, and dead letters.

A delta leaves the queue when the server has acknowledged it, or has permanently refused it: then it is a dead letter.
After a crash at any point it is in one of the two tables. A delta that was being sent is sent again, byte for byte, and
the server recognizes it by its id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from semel.client.deltas.drafts import ReplicaDraft, row_id, stamped_again, written
from semel.client.deltas.file import LocalFile
from semel.client.deltas.rows import Op, ReplicaChange
from semel.client.deltas.values import DeadLetter, PendingDelta

Place = tuple[str, str]
"""Table name and canonical JSON of the row id."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSENT, _SENDING = "pending", "sending"
DRIFTED = "CLOCK_DRIFT"

_HEAD = """SELECT sequence, delta_id, table_name, row_id, body, state FROM semel_outbox
    WHERE state IN ('pending', 'sending') AND sequence <= ? ORDER BY sequence LIMIT ?"""
_FROM_DRIFTED = """SELECT sequence, delta_id, table_name, row_id, body, state FROM semel_outbox
    WHERE state = 'pending' AND sequence >=
        (SELECT min(sequence) FROM semel_outbox WHERE state = 'pending' AND error = ?)
    ORDER BY sequence"""
_DEAD = """SELECT delta_id, table_name, row_id, body, status, code, message, refused_ms FROM semel_dead
    ORDER BY sequence"""
_AGAIN = """INSERT INTO semel_outbox (sequence, delta_id, table_name, row_id, body, state, tries)
    SELECT sequence, delta_id, table_name, row_id, body, 'pending', tries FROM semel_dead WHERE delta_id = ?"""


class Queued(NamedTuple):
    """One delta of the queue."""

    sequence: int
    delta_id: str
    place: Place
    body: bytes
    was_sent: bool
    """Whether it was sent before without an answer."""


class ReplicaVerdict(NamedTuple):
    """Why a delta was permanently refused."""

    status: int
    code: str
    message: str


class ReplicaOutbox:
    """The queue in a file, changed only in transactions of the file."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def add(self, draft: ReplicaDraft) -> None:
        """Append a new delta."""
        self._file.execute(
            "INSERT INTO semel_outbox (delta_id, table_name, row_id, body, state, tries) VALUES (?, ?, ?, ?, ?, 0)",
            (draft.delta_id, draft.table, draft.row, draft.body, _UNSENT),
        )

    def end(self) -> int:
        """The sequence number of the last delta."""
        [[last]] = self._file.execute("SELECT coalesce(max(sequence), 0) FROM semel_outbox")
        return int(last)

    def head(self, end: int, most: int, most_bytes: int) -> list[Queued]:
        """The oldest deltas that fit into one request; at least one if there is any."""
        batch: list[Queued] = []
        room = most_bytes
        for one in self._queued(_HEAD, end, most):
            room -= len(one.body) + 1
            if batch and room < 0:
                break
            batch.append(one)
        return batch

    def send(self, batch: Sequence[Queued]) -> None:
        """Mark deltas as being sent."""
        self._change(batch, "UPDATE semel_outbox SET state = 'sending', tries = tries + 1 WHERE sequence = ?")

    def fail(self, batch: Sequence[Queued], error: str, *, is_unsettled: bool) -> None:
        """Record a failed attempt. The server may have a delta that was sent and not answered."""
        for one in batch:
            state = _SENDING if is_unsettled or one.was_sent else _UNSENT
            self._change([one], "UPDATE semel_outbox SET state = ?, error = ? WHERE sequence = ?", state, error)

    def refuse(self, batch: Sequence[Queued], error: str) -> None:
        """Record that the server refused these deltas and does not have them."""
        self._change(batch, "UPDATE semel_outbox SET state = 'pending', error = ? WHERE sequence = ?", error)

    def acknowledge(self, batch: Sequence[Queued]) -> None:
        """Remove acknowledged deltas."""
        self._change(batch, "DELETE FROM semel_outbox WHERE sequence = ?")

    def own(self, place: Place) -> list[ReplicaChange]:
        """Unacknowledged own changes of a row, in order of time."""
        found = self._file.execute("SELECT body FROM semel_outbox WHERE table_name = ? AND row_id = ?", place)
        return sorted((written(body) for [body] in found), key=lambda change: change.stamp.hlc)

    def places(self) -> list[Place]:
        """The rows with queued changes."""
        return self._file.execute("SELECT DISTINCT table_name, row_id FROM semel_outbox")

    def pending(self) -> list[PendingDelta]:
        """Unacknowledged changes, oldest first."""
        found = self._file.execute(
            "SELECT delta_id, table_name, row_id, body, state, tries, error FROM semel_outbox "
            "WHERE state IN ('pending', 'sending') ORDER BY sequence"
        )
        return [
            PendingDelta(*_told(delta_id, table, row, body), state == _SENDING, tries, error)
            for delta_id, table, row, body, state, tries, error in found
        ]

    def bury(self, one: Queued, verdict: ReplicaVerdict, now_ms: int) -> DeadLetter:
        """Turn a delta into a dead letter."""
        self._file.execute(
            "INSERT INTO semel_dead SELECT sequence, delta_id, table_name, row_id, body, tries, ?, ?, ?, ? "
            "FROM semel_outbox WHERE sequence = ?",
            (*verdict, now_ms, one.sequence),
        )
        self._file.execute("DELETE FROM semel_outbox WHERE sequence = ?", (one.sequence,))
        table, row = one.place
        return _letter(one.delta_id, table, row, one.body, verdict.status, verdict.code, verdict.message, now_ms)

    def dead(self) -> list[DeadLetter]:
        """The dead letters, oldest first."""
        return [_letter(*row) for row in self._file.execute(_DEAD)]

    def exhume(self, delta_id: str, *, again: bool) -> Place:
        """Move a dead letter back to its place in the queue, or delete it. Raises KeyError for an unknown id."""
        if again:
            self._file.execute(_AGAIN, (delta_id,))
        gone = self._file.execute("DELETE FROM semel_dead WHERE delta_id = ? RETURNING table_name, row_id", (delta_id,))
        if not gone:
            raise KeyError(delta_id)
        place: Place = gone[0]
        return place

    def drifted(self) -> list[Queued]:
        """Deltas from the first one that was refused because of its timestamp; later ones have later timestamps."""
        return self._queued(_FROM_DRIFTED, DRIFTED)

    def restamp(self, batch: Sequence[Queued], tick: Callable[[], int]) -> None:
        """Give new timestamps and ids to deltas that the server does not have, at the same places in the queue."""
        self._change(batch, "UPDATE semel_outbox SET delta_id = sequence, error = NULL WHERE sequence = ?")
        for one in batch:
            made = stamped_again(one.body, tick())
            self._change(
                [one], "UPDATE semel_outbox SET delta_id = ?, body = ? WHERE sequence = ?", made.delta_id, made.body
            )

    def latest(self, sequence: int) -> int:
        """The time of the last delta before a sequence number, or 0."""
        found = self._file.execute(
            "SELECT body FROM semel_outbox WHERE sequence < ? ORDER BY sequence DESC LIMIT 1", (sequence,)
        )
        return written(found[0][0]).stamp.hlc if found else 0

    def _queued(self, statement: str, *values: Any) -> list[Queued]:
        return [
            Queued(sequence, delta_id, (table, row), body, state == _SENDING)
            for sequence, delta_id, table, row, body, state in self._file.execute(statement, values)
        ]

    def _change(self, batch: Sequence[Queued], statement: str, *values: Any) -> None:
        for one in batch:
            self._file.execute(statement, (*values, one.sequence))


def _told(delta_id: str, table: str, row: str, body: bytes) -> tuple[str, Op, str, str, Mapping[str, Any], int]:
    change = written(body)
    return delta_id, change.op, table, row_id(row), dict(change.columns), change.stamp.hlc


def _letter(
    delta_id: str, table: str, row: str, body: bytes, status: int, code: str, message: str, ms: int
) -> DeadLetter:
    refused = _EPOCH + timedelta(milliseconds=ms)
    return DeadLetter(*_told(delta_id, table, row, body), status, code, message, refused)
