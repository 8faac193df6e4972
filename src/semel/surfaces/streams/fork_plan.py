"""The plan of a fork: what a read of the source says about its fork offset and sub-offset.

Appended content never changes, so what was read holds for the commit if the source is still the same stream; the
decision checks that. The append that a sub-offset cuts may be large, so it is read and cut here, in a thread.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.errors import Refusal
from semel.kernel.json.messages import first_messages
from semel.store.protocol import Range
from semel.surfaces.streams.commands import NO_CONTENT, Content, Fork
from semel.surfaces.streams.rules.expiry import living
from semel.surfaces.streams.rules.fork_chain import chain_of, segments_from
from semel.surfaces.streams.rules.media_type import DEFAULT_MEDIA_TYPE, is_json
from semel.surfaces.streams.rules.offsets import BEGINNING, Offset, behind_floor, epoch_at
from semel.surfaces.streams.tables import CHUNK, FORK, STREAM, ChunkRow, StreamRow


class ForkRequest(NamedTuple):
    """The fork headers of a PUT. Without an offset the fork point is the tail."""

    source_scope: bytes
    source_path: bytes
    offset: Offset | None
    sub_offset: int


class ForkPlan(NamedTuple):
    """A planned fork, and the content type of its source."""

    fork: Fork
    content_type: bytes


_BEYOND = Refusal("INVALID_FORK", "Stream-Fork-Offset is not an offset of the source; use one that a read of it gave.")
_NO_APPEND = Refusal("INVALID_FORK", "Stream-Fork-Sub-Offset needs an append after the fork offset; there is none.")


def plan_fork(reading: Reading, wanted: ForkRequest, *, inherits_type: bool) -> ForkPlan:
    """Plan a fork of the present source."""
    source = living(reading.get(STREAM, (wanted.source_scope,)), reading.now)
    position = None if wanted.offset is None else wanted.offset.position
    fork = Fork(
        wanted.source_scope,
        wanted.source_path,
        b"" if source is None else source.id,
        position,
        wanted.sub_offset,
        position,
        NO_CONTENT,
        inherits_type,
    )
    if source is None:
        return ForkPlan(fork, DEFAULT_MEDIA_TYPE)
    return ForkPlan(_placed(reading, source, fork, wanted), source.content_type)


def _placed(reading: Reading, source: StreamRow, fork: Fork, wanted: ForkRequest) -> Fork:
    """The fork with its fork point in this source, or with the reason why it has none."""
    if wanted.offset is None:
        return fork._replace(flaw=_NO_APPEND) if wanted.sub_offset else fork
    epoch, position = wanted.offset
    if position > source.tail or (wanted.offset != BEGINNING and epoch_at(source, position) != epoch):
        return fork._replace(flaw=_BEYOND)
    if position < (source.floor or 0):
        return fork._replace(flaw=behind_floor(source))
    if not _is_end_of_append(reading, source, position):
        return fork._replace(flaw=_BEYOND)
    if not wanted.sub_offset:
        return fork
    following = _append_after(reading, source, position)
    return fork._replace(flaw=_NO_APPEND) if following is None else _cut(source, following, fork)


def _is_end_of_append(reading: Reading, source: StreamRow, position: int) -> bool:
    if position in (0, source.tail, source.floor, source.inherited):
        return True
    before = _holder(reading, source, position - 1)
    return bool(reading.keys(Range(CHUNK, "", (before,), 1, start=(position,), stop=(position + 1,))))


def _append_after(reading: Reading, source: StreamRow, position: int) -> ChunkRow | None:
    if position >= source.tail:
        return None
    life = _holder(reading, source, position)
    return next(iter(reading.range(Range(CHUNK, "", (life,), 1, start=(position + 1,)))), None)


def _holder(reading: Reading, source: StreamRow, position: int) -> bytes:
    """The id of the stream that holds the content after a position of the source."""
    fork = reading.get(FORK, (source.id,)) if position < source.inherited else None
    return source.id if fork is None else segments_from(chain_of(source, fork), position)[0].id


def _cut(source: StreamRow, following: ChunkRow, fork: Fork) -> Fork:
    """Cut the first messages, or bytes, out of an append; all of them are shared instead of copied."""
    is_text = is_json(source.content_type)
    size = following.messages if is_text else len(following.data)
    if fork.sub_offset > size:
        unit = "messages" if is_text else "bytes"
        return fork._replace(
            flaw=Refusal("INVALID_FORK", f"Stream-Fork-Sub-Offset is beyond the next append, which has {size} {unit}.")
        )
    if fork.sub_offset == size:
        return fork._replace(position=following.end_at)
    count = fork.sub_offset
    data = first_messages(following.data, count) if is_text else following.data[:count]
    return fork._replace(prefix=Content(data, count if is_text else 1))
