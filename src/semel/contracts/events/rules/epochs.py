"""Epochs of the event log: the effect of a raise on ids, and the answer to a cursor of another history.

A raise skips every id that a lost future of the log can have given out: in any history fewer than a thousand are given
in a millisecond, so none is above a thousand times the time. The ids between the last one of the backup and the first
one of the new epoch are a gap, in which nothing is ever committed here. A cursor in a gap is of the lost future.

| cursor | is told |
|---|---|
| names another epoch than the log's | reset; agreed is what that epoch had at its end, and nothing if it is not known |
| lies in a gap, whatever it names | reset; agreed is the last id before the gap |
| above the last id of the log's epoch | what it was told before there were epochs: nothing new; it is counted |
| any other, and 0, with which everything begins | its page |
"""

from __future__ import annotations

from typing import NamedTuple

from semel.contracts.epoch import EPOCH, EPOCH_KEY, FIRST_EPOCH, EpochRow, Rows, earlier_epochs
from semel.contracts.events.limits import MAX_COMMITTED_ID
from semel.contracts.events.tables import EMPTY_LOG, EVENT_GAP, EVENT_HEAD, HEAD_KEY, EventGapRow, EventHeadRow
from semel.engine.contract import View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Range

IDS_A_MS = 1_000
"""More ids a millisecond than any server gives out."""
JUMP_LEAST = 1_000


class Jumped(NamedTuple):
    """The last id before a raise, and the id above which the log continues."""

    agreed_id: int
    next_last_id: int


class Reset(NamedTuple):
    """A cursor belongs to another history: the log's epoch, and the last id that both histories have."""

    log_epoch: int
    agreed_id: int


class Standing(NamedTuple):
    """The relation of a cursor to the log."""

    log_epoch: int
    reset: Reset | None = None
    is_ahead: bool = False
    """Whether it is above every id of its own epoch."""


def jump_of(rows: Rows, epoch: int) -> Jumped:
    """The effect of a raise to that epoch on the ids."""
    head = rows.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    return Jumped(head.last_id, max(head.last_id + JUMP_LEAST, epoch * IDS_A_MS))


def jump_flaw(rows: Rows, epoch: int) -> str | None:
    """Why the ids cannot be raised to that epoch, as a sentence."""
    head = rows.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    if epoch < head.updated_at:
        return "The clock is behind the time of the last event: set the clock right first."
    if jump_of(rows, epoch).next_last_id >= MAX_COMMITTED_ID - JUMP_LEAST:
        return f"There are not enough ids of events left above {head.last_id} for a new epoch."
    return None


def jump(view: View, epoch: int, now: Now) -> None:
    """Go on above every id that the lost future can have given out, and remember the gap."""
    head = view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    agreed_id, next_last_id = jump_of(view, epoch)
    view.put(EVENT_HEAD, EventHeadRow(b"", next_last_id, max(now.ms, head.updated_at), head.pruned_to))
    view.insert(EVENT_GAP, EventGapRow(next_last_id, agreed_id, epoch))


def standing(reading: Reading, since: int, epoch: int | None) -> Standing:
    """The standing of a cursor, which may name its epoch."""
    row = reading.get(EPOCH, EPOCH_KEY) or FIRST_EPOCH
    if since == 0:
        return Standing(row.number)
    gap = _gap_around(reading, since) if row.number else None
    if epoch is not None and epoch != row.number:
        return Standing(row.number, Reset(row.number, min(since, _agreed(reading, row, epoch))))
    if gap is not None:
        return Standing(row.number, Reset(row.number, gap.agreed_id))
    head = reading.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG
    # The greatest id of all is how the end of the log is asked for.
    return Standing(row.number, is_ahead=head.last_id < since < MAX_COMMITTED_ID)


def _gap_around(reading: Reading, since: int) -> EventGapRow | None:
    """The gap that a cursor lies in. Its upper end is the watermark of a new epoch, which clients get."""
    found: list[EventGapRow] = list(reading.range(Range(EVENT_GAP, "", (), 1, start=(since + 1,))))
    return found[0] if found and found[0].agreed_id < since else None


def _agreed(reading: Reading, row: EpochRow, epoch: int) -> int:
    """The last id of an epoch that has ended; 0 when this store never had it."""
    if epoch and epoch not in earlier_epochs(row):
        return 0
    found: list[EventGapRow] = list(reading.range(Range(EVENT_GAP, "epoch", (), 1, start=(epoch + 1,))))
    return found[0].agreed_id if found else 0
