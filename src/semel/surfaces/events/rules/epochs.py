"""Epochs of the event log: the effect of a raise on ids, and the answer to a cursor of another history.

A raise skips every id that a lost future of the log can have assigned: any history assigns fewer than a thousand ids in
a millisecond, so none is above a thousand times the time. The ids between the last one of the backup and the first one
of the new epoch are a gap, in which no event is ever committed here. A cursor in a gap is from the lost future.

| cursor | answer |
|---|---|
| names another epoch than the log's | reset; agreed is the last id of that epoch, or 0 if it is unknown |
| lies in a gap, in any epoch | reset; agreed is the last id before the gap |
| above the last id of the log's epoch | as before there were epochs: nothing new; it is counted |
| any other, and 0, with which every client begins | its page |
"""

from __future__ import annotations

from typing import NamedTuple

from semel.engine.contract import View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Range
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, EpochRow, Rows, earlier_epochs
from semel.surfaces.events.limits import MAX_COMMITTED_ID
from semel.surfaces.events.tables import EMPTY_LOG, EVENT_GAP, EVENT_HEAD, HEAD_KEY, EventGapRow, EventHeadRow

IDS_PER_MS = 1_000
"""More ids in a millisecond than any server assigns."""
JUMP_LEAST = 1_000


class EpochJump(NamedTuple):
    """The last id before a raise, and the id above which the log continues."""

    agreed_id: int
    next_last_id: int


class CursorReset(NamedTuple):
    """A cursor belongs to another history: the log's epoch, and the last id that both histories share."""

    log_epoch: int
    agreed_id: int


class CursorStatus(NamedTuple):
    """The relation of a cursor to the log."""

    log_epoch: int
    reset: CursorReset | None = None
    is_ahead: bool = False
    """Whether it is above every id of its own epoch."""


def jump_of(rows: Rows, epoch: int) -> EpochJump:
    """The effect of a raise to that epoch on the ids."""
    head = rows.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    return EpochJump(head.last_id, max(head.last_id + JUMP_LEAST, epoch * IDS_PER_MS))


def jump_flaw(rows: Rows, epoch: int) -> str | None:
    """Why the ids cannot be raised to that epoch, as a sentence; None if they can."""
    head = rows.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    if epoch < head.updated_at:
        return "The clock is behind the time of the last event: set the clock right first."
    if jump_of(rows, epoch).next_last_id >= MAX_COMMITTED_ID - JUMP_LEAST:
        return f"There are not enough ids of events left above {head.last_id} for a new epoch."
    return None


def jump(view: View, epoch: int, now: Now) -> None:
    """Continue above every id that the lost future can have assigned, and store the gap."""
    head = view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    agreed_id, next_last_id = jump_of(view, epoch)
    view.put(EVENT_HEAD, EventHeadRow(b"", next_last_id, max(now.ms, head.updated_at), head.pruned_to))
    view.insert(EVENT_GAP, EventGapRow(next_last_id, agreed_id, epoch))


def cursor_status(reading: Reading, since: int, epoch: int | None) -> CursorStatus:
    """The status of a cursor, which may name its epoch."""
    row = reading.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH
    if since == 0:
        return CursorStatus(row.number)
    gap = _gap_around(reading, since) if row.number else None
    if epoch is not None and epoch != row.number:
        return CursorStatus(row.number, CursorReset(row.number, min(since, _agreed(reading, row, epoch))))
    if gap is not None:
        return CursorStatus(row.number, CursorReset(row.number, gap.agreed_id))
    head = reading.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    # Clients request the end of the log with the greatest possible id.
    return CursorStatus(row.number, is_ahead=head.last_id < since < MAX_COMMITTED_ID)


def _gap_around(reading: Reading, since: int) -> EventGapRow | None:
    """The gap that contains a cursor. Its upper end is the watermark of a new epoch, which clients do receive."""
    found: list[EventGapRow] = list(reading.range(gap_range(since)))
    return found[0] if found and found[0].agreed_id < since else None


def gap_range(position: int) -> Range:
    """The row of the first gap that ends above a position."""
    return Range(EVENT_GAP, "", (), 1, start=(position + 1,))


def _agreed(reading: Reading, row: EpochRow, epoch: int) -> int:
    """The last id of an ended epoch; 0 if this store never had it."""
    if epoch and epoch not in earlier_epochs(row):
        return 0
    found: list[EventGapRow] = list(reading.range(Range(EVENT_GAP, "epoch", (), 1, start=(epoch + 1,))))
    return found[0].agreed_id if found else 0
