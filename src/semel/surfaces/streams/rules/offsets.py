"""Offsets and entity tags: positions in a stream as clients see them, across restores.

An offset is sixteen digits, an underscore, sixteen digits; opaque to clients, ordered bytewise, never `-1` or `now`.
The first half is the epoch in which the content before the position was appended, the second the number of content
bytes before it. The offset of a position never changes, and offsets rise with positions.

Raising the epoch changes no stream. The first append in a new epoch stores where the epoch before it ended; until then
the tail is that end. A stream therefore has one pair for each epoch in which it grew.

| offset | meaning |
|---|---|
| the offset of its position here | read as usual |
| of the store's epoch, beyond the tail; or of an epoch above the clock | the tail: nothing to read yet |
| any other | of content that a restore has lost: refused, with the offset up to which both histories agree |

Both histories agree up to the end of the offset's epoch. For an epoch in which this stream did not grow, or that the
store does not know because a raise was lost too, they agree on nothing: the reader begins again.

An entity tag is `"<id>-<start>-<end>"`, followed by `-e<epoch>` after a restore, and by `-c` if the stream is closed. A
writer that sends one in `If-Match` has read up to `end`; `start` is not compared.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.kernel.errors import Refusal, Refused
from semel.surfaces.epoch import Pair, Rows, dump_pairs, epoch_of, load_pairs
from semel.surfaces.streams.tables import StreamRow

_SHAPE = re.compile(rb"[0-9]{16}_[0-9]{16}")
OFFSET = b"%016d_%016d"
"""The form of an offset: epoch and position."""
_BEGINNING = b"-1"
_NOW = b"now"


class Offset(NamedTuple):
    """A parsed offset."""

    epoch: int
    position: int


BEGINNING = Offset(0, 0)
"""The beginning of every stream, in any epoch."""
EARLIEST = Offset(0, -1)
"""The first content that is retained: `-1`, or no offset."""


def format_offset(position: int, epoch: int = 0) -> bytes:
    """The offset of a position whose content was appended in that epoch."""
    return OFFSET % (epoch, position)


def parse_offset(text: bytes) -> Offset | None:
    """Parse an offset; None for `now`, `EARLIEST` for `-1`, a ValueError for anything else."""
    if text == _BEGINNING:
        return EARLIEST
    if text == _NOW:
        return None
    if _SHAPE.fullmatch(text) is None:
        raise ValueError("not an offset")
    return Offset(int(text[:16]), int(text[17:]))


KEPT_EPOCHS = 64
"""The number of ended epochs that a stream stores; offsets of older epochs are refused."""


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
    """The stream row with the epoch set, before content of that epoch is appended."""
    if stream.epoch == epoch:
        return stream
    ended = (*load_pairs(stream.past_epochs), Pair(stream.epoch, stream.tail))
    return stream._replace(epoch=epoch, past_epochs=dump_pairs(ended[-KEPT_EPOCHS:]))


def position_of(rows: Rows, stream: StreamRow, offset: Offset, now_ms: int) -> int:
    """The position of an offset; `Refused` if its content was lost by a restore, or dropped by retention.

    The epoch of the store is read only for an offset that does not belong to this stream.
    """
    epoch, position = offset
    floor = stream.floor or 0
    if offset == EARLIEST:
        return floor
    if position < floor:
        raise Refused.of(behind_floor(stream))
    if position <= stream.tail and (offset == BEGINNING or epoch_at(stream, position) == epoch):
        return position
    if epoch > now_ms or (position > stream.tail and epoch == epoch_of(rows)):
        return stream.tail
    agreed = offset_at(stream, max(floor, min(position, _agreed(stream, epoch))))
    detail = f"This offset is of content that was lost when a backup was restored; read on from {agreed.decode()}."
    raise Refused("STREAM_GONE", detail, headers=((b"stream-next-offset", agreed),))


def behind_floor(stream: StreamRow) -> Refusal:
    """The refusal of an offset whose content was dropped by retention."""
    first = offset_at(stream, stream.floor or 0)
    detail = f"The content at this offset was dropped by the retention of the stream; read on from {first.decode()}."
    return Refusal("STREAM_GONE", detail, headers=((b"stream-next-offset", first),))


def _agreed(stream: StreamRow, epoch: int) -> int:
    """The position up to which an epoch of another history had the same content."""
    if epoch == stream.epoch:
        return stream.tail
    return next((end for number, end in load_pairs(stream.past_epochs) if number == epoch), 0)


def format_etag(stream: StreamRow, start: int, end: int, *, is_final: bool) -> bytes:
    """The entity tag of the content between two positions."""
    return b'"%s-%d-%s"' % (stream.id.hex().encode(), start, _etag_end(stream, end, is_final))


def _etag_end(stream: StreamRow, end: int, is_final: bool) -> bytes:
    epoch = epoch_at(stream, end)
    return b"%d%s%s" % (end, b"-e%d" % epoch if epoch else b"", b"-c" if is_final else b"")


def names_etag(if_none_match: bytes, etag: bytes) -> bool:
    """Whether a header names this content: the client has it. Lists, weak tags and `*` count."""
    sent = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
    return etag in sent or b"*" in sent


def etag_names_tail(if_match: bytes, stream: StreamRow) -> bool:
    """Whether one of these tags is that of a read up to the tail, or `*`; weak tags never match."""
    return any(_is_etag_of_tail(tag.strip(), stream) for tag in if_match.split(b","))


def _is_etag_of_tail(tag: bytes, stream: StreamRow) -> bool:
    if tag == b"*":
        return True
    begins, ends = tag[:1] == b'"', tag[-1:] == b'"'
    life, _, rest = tag[1:-1].partition(b"-")
    start, _, end = rest.partition(b"-")
    is_read = begins and ends and start.isdigit() and life == stream.id.hex().encode()
    return is_read and end == _etag_end(stream, stream.tail, bool(stream.closed))
