"""Epochs of a stream: which content belongs to which, and the answer to an offset of another history.

A raise touches no stream. The first append in a new epoch writes down where the one before ended; until then the end is
the tail, because nothing has been appended. So a stream keeps one pair for each epoch in which it grew.

| offset | is |
|---|---|
| the one of its position here | read as ever |
| of the store's epoch, beyond the tail; or of an epoch above the clock | the tail: nothing to read yet |
| any other | of content that a restore has lost: refused, with the offset up to which both histories agree |

Agreed is what the epoch of the offset had when it ended. An epoch in which this stream did not grow, or which the store
does not know because a raise was lost too, agrees in nothing: its reader begins anew.
"""

from __future__ import annotations

from semel.contracts.epoch import Pair, Rows, dump_pairs, epoch_of, load_pairs
from semel.contracts.streams.offsets import BEGINNING, Offset, format_offset
from semel.contracts.streams.tables import StreamRow
from semel.kernel.errors import Refused

KEPT_EPOCHS = 64
"""Ended epochs that a stream remembers; offsets of older ones are refused."""


def epoch_at(stream: StreamRow, position: int) -> int:
    """The epoch in which the content before a position was appended."""
    if stream.past_epochs:
        for epoch, end in load_pairs(stream.past_epochs):
            if position <= end:
                return epoch
    return stream.epoch


def offset_at(stream: StreamRow, position: int) -> bytes:
    """The offset of a position."""
    return format_offset(position, epoch_at(stream, position))


def entered(stream: StreamRow, epoch: int) -> StreamRow:
    """The stream as it is when content of that epoch is about to be appended."""
    if stream.epoch == epoch:
        return stream
    ended = (*load_pairs(stream.past_epochs), Pair(stream.epoch, stream.tail))
    return stream._replace(epoch=epoch, past_epochs=dump_pairs(ended[-KEPT_EPOCHS:]))


def position_of(rows: Rows, stream: StreamRow, offset: Offset, now_ms: int) -> int:
    """The position of an offset; `Refused` when its content was lost by a restore.

    The epoch of the store is looked up only for an offset that is none of this stream.
    """
    epoch, position = offset
    if position <= stream.tail and (offset == BEGINNING or epoch_at(stream, position) == epoch):
        return position
    if epoch > now_ms or (position > stream.tail and epoch == epoch_of(rows)):
        return stream.tail
    agreed = offset_at(stream, min(position, _agreed(stream, epoch)))
    detail = f"This offset is of content that was lost when a backup was restored; read on from {agreed.decode()}."
    raise Refused("STREAM_GONE", detail, ((b"stream-next-offset", agreed),))


def _agreed(stream: StreamRow, epoch: int) -> int:
    """The position up to which an epoch of another history had the content that is here."""
    if epoch == stream.epoch:
        return stream.tail
    return next((end for number, end in load_pairs(stream.past_epochs) if number == epoch), 0)
