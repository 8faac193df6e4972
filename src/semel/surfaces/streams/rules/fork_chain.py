"""The chain of a fork: which streams hold the content that it has inherited.

Content is found by the id of the stream that appended it. The chain of a fork lists these ids with the position at
which the part of each ends, from the beginning of the fork to its fork point. It is flattened: the fork of a fork
copies the chain of its source up to its own fork point, so that a read never walks from fork to source. A chain never
changes.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from semel.surfaces.streams.tables import ForkRow, StreamRow

MAX_SEGMENTS = 4_096
"""Limit on the segments of a chain: forks of forks in a row, each with content of its own."""

_SEGMENT = Struct(">16sQ")


class ChainSegment(NamedTuple):
    """A part of the content of a fork: the stream that holds it, and the position at which it ends."""

    id: bytes
    end: int


def chain_of(stream: StreamRow, fork: ForkRow | None) -> tuple[ChainSegment, ...]:
    """The segments of a stream up to its tail; one for a stream that is no fork."""
    inherited = () if fork is None else tuple(ChainSegment(*one) for one in _SEGMENT.iter_unpack(fork.chain))
    return inherited if stream.tail == max(stream.inherited, 0) else (*inherited, ChainSegment(stream.id, stream.tail))


def cut_chain(chain: tuple[ChainSegment, ...], position: int) -> tuple[ChainSegment, ...]:
    """The segments up to a position."""
    kept: list[ChainSegment] = []
    start = 0
    for segment in chain:
        if start >= position:
            break
        kept.append(ChainSegment(segment.id, min(segment.end, position)))
        start = segment.end
    return tuple(kept)


def dump_chain(chain: tuple[ChainSegment, ...]) -> bytes:
    """The stored form of a chain: 24 bytes a segment."""
    return b"".join(_SEGMENT.pack(*segment) for segment in chain)


def segments_from(chain: tuple[ChainSegment, ...], position: int) -> tuple[ChainSegment, ...]:
    """The segments with content after a position."""
    return tuple(segment for segment in chain if segment.end > position)
