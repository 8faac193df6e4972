"""The outbox: changes that the server has not acknowledged yet, and those that it refused.

A delta leaves the queue for two reasons: the server has acknowledged it, or it was refused for good and stands among
the dead letters. A crash, at whatever moment, leaves it in one of both places; one that was on its way is sent again,
byte for byte, and the server knows it by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from semel.client.deltas.drafts import Draft, row_id, stamped_again, written
from semel.client.deltas.file import LocalFile
from semel.client.deltas.rows import Op, Written
from semel.client.deltas.values import DeadLetter, PendingDelta

Place = tuple[str, str]
"""A table's name and the canonical JSON of a row's id."""
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


class Verdict(NamedTuple):
    """Why a delta was refused for good."""

    status: int
    code: str
    message: str


class Outbox:
    """The queue in a file; changes of it are made within a transaction of the file."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def add(self, draft: Draft) -> None:
        """Put a new delta at the end."""
        self._file.execute(
            "INSERT INTO semel_outbox (delta_id, table_name, row_id, body, state, tries) VALUES (?, ?, ?, ?, ?, 0)",
            (draft.delta_id, draft.table, draft.row, draft.body, _UNSENT),
        )

    def end(self) -> int:
        """The number of the last delta."""
        [[last]] = self._file.execute("SELECT coalesce(max(sequence), 0) FROM semel_outbox")
        return int(last)

    def head(self, end: int, most: int, most_bytes: int) -> list[Queued]:
        """The oldest deltas up to a number that fit into one request; at least one, if there is any."""
        batch: list[Queued] = []
        room = most_bytes
        for one in self._queued(_HEAD, end, most):
            room -= len(one.body) + 1
            if batch and room < 0:
                break
            batch.append(one)
        return batch

    def send(self, batch: Sequence[Queued]) -> None:
        """They are about to be sent."""
        self._change(batch, "UPDATE semel_outbox SET state = 'sending', tries = tries + 1 WHERE sequence = ?")

    def fail(self, batch: Sequence[Queued], error: str, *, is_unsettled: bool) -> None:
        """They were sent in vain. Once one was on its way without an answer, the server may have it."""
        for one in batch:
            state = _SENDING if is_unsettled or one.was_sent else _UNSENT
            self._change([one], "UPDATE semel_outbox SET state = ?, error = ? WHERE sequence = ?", state, error)

    def refuse(self, batch: Sequence[Queued], error: str) -> None:
        """The server has refused these deltas, and does not have them."""
        self._change(batch, "UPDATE semel_outbox SET state = 'pending', error = ? WHERE sequence = ?", error)

    def acknowledge(self, batch: Sequence[Queued]) -> None:
        """The server has these deltas, and its state includes them."""
        self._change(batch, "DELETE FROM semel_outbox WHERE sequence = ?")

    def own(self, place: Place) -> list[Written]:
        """Own changes of a row that the server has not acknowledged, in order of time."""
        found = self._file.execute("SELECT body FROM semel_outbox WHERE table_name = ? AND row_id = ?", place)
        return sorted((written(body) for [body] in found), key=lambda change: change.stamp.hlc)

    def places(self) -> list[Place]:
        """The rows that something is queued for."""
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

    def bury(self, one: Queued, verdict: Verdict, now_ms: int) -> DeadLetter:
        """Set a delta aside."""
        self._file.execute(
            "INSERT INTO semel_dead SELECT sequence, delta_id, table_name, row_id, body, tries, ?, ?, ?, ? "
            "FROM semel_outbox WHERE sequence = ?",
            (*verdict, now_ms, one.sequence),
        )
        self._file.execute("DELETE FROM semel_outbox WHERE sequence = ?", (one.sequence,))
        table, row = one.place
        return _letter(one.delta_id, table, row, one.body, verdict.status, verdict.code, verdict.message, now_ms)

    def dead(self) -> list[DeadLetter]:
        """Dead letters: refused changes that were set aside, oldest first."""
        return [_letter(*row) for row in self._file.execute(_DEAD)]

    def exhume(self, delta_id: str, *, again: bool) -> Place:
        """Take a dead letter out; back into its place in the queue, or away. KeyError when there is none."""
        if again:
            self._file.execute(_AGAIN, (delta_id,))
        gone = self._file.execute("DELETE FROM semel_dead WHERE delta_id = ? RETURNING table_name, row_id", (delta_id,))
        if not gone:
            raise KeyError(delta_id)
        place: Place = gone[0]
        return place

    def drifted(self) -> list[Queued]:
        """From the first one on that the server has refused because of its date: later ones are dated even later."""
        return self._queued(_FROM_DRIFTED, DRIFTED)

    def restamp(self, batch: Sequence[Queued], tick: Callable[[], int]) -> None:
        """Give new stamps to deltas that no server has: they get new ids, at the same places of the queue."""
        self._change(batch, "UPDATE semel_outbox SET delta_id = sequence, error = NULL WHERE sequence = ?")
        for one in batch:
            made = stamped_again(one.body, tick())
            self._change(
                [one], "UPDATE semel_outbox SET delta_id = ?, body = ? WHERE sequence = ?", made.delta_id, made.body
            )

    def latest(self, sequence: int) -> int:
        """The time of the last delta before that number; 0 without one."""
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
