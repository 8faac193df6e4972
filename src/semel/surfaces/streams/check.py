"""The check of streams: positions, content, receipts, producers, forks, retention and subscriptions.

The content of a stream has no checksum of its own. It is compared with the receipt of its append, if that has one and
the stream is not JSON; JSON content must parse into the number of messages that its row counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

import orjson

from semel.kernel.keys import pack
from semel.store.protocol import AnyTable, Range
from semel.store.table_check import Check, StoreFault, StoreWalk, fault, in_groups, passes_of, token_of
from semel.surfaces.epoch import EPOCH, EPOCH_KEY
from semel.surfaces.streams.subscriptions.tables import ENDED, FACT, GLOB, LINK, MOVED, SUBSCRIPTION, own_count_key
from semel.surfaces.streams.tables import (
    CHUNK,
    FORK,
    PRODUCER,
    RECEIPT,
    RETENTION,
    STREAM,
    TOMBSTONE,
    ReceiptRow,
    StreamRow,
)

_PAIR = Struct(">QQ")
_SEGMENT = Struct(">16sQ")
_READ_BYTES = 4 * 1024 * 1024
"""Content of about this many bytes is read at once."""


class _Bounds(NamedTuple):
    """Where the stored content of a stream begins."""

    base: int
    """0, or the fork point."""
    freed: int
    """Content up to here may have been deleted."""
    is_exact: bool
    """Whether all content above the greater of both is there, and none below."""


def content(walk: StoreWalk) -> Iterator[StoreFault]:
    """The chunks of each stream follow each other from its beginning to its tail."""
    epoch_row = walk.get(EPOCH, EPOCH_KEY)
    epoch = 0 if epoch_row is None else epoch_row.number
    chunks = 0
    for group in in_groups(walk.rows(STREAM)):
        kept = walk.find(RETENTION, [(stream.scope,) for stream in group])
        for stream in group:
            retention = kept.get((stream.scope,))
            freed = retention.freed if retention is not None and retention.id == stream.id else None
            bounds = _bounds(stream, freed)
            yield from _stream(stream, epoch)
            ends = 0
            for found in _content_of(walk, stream, bounds):
                if isinstance(found, int):
                    ends += found
                else:
                    yield found
            chunks += ends
    for grave in walk.rows(TOMBSTONE):
        chunks += sum(1 for _ in walk.keys_below(CHUNK, (grave.id,)))
    total = sum(1 for _ in walk.keys(CHUNK))
    if total != chunks:
        yield fault(CHUNK, "", f"{total - chunks} chunks belong to no stream and to no tombstone.")


def _bounds(stream: StreamRow, freed: int | None) -> _Bounds:
    base = max(stream.inherited, 0)
    if freed is not None:
        return _Bounds(base, freed, is_exact=True)
    is_trimmed = stream.floor is not None
    return _Bounds(base, stream.floor or 0, is_exact=not is_trimmed)


def _stream(stream: StreamRow, epoch: int) -> Iterator[StoreFault]:
    """The columns of one stream."""
    key = (stream.path,)
    if pack(stream.path) != stream.scope:
        yield fault(STREAM, key, "The stream is stored under another name than its own.")
    if not max(stream.inherited, 0) <= stream.tail:
        yield fault(STREAM, key, f"Its tail {stream.tail} is below the position {stream.inherited} of its fork.")
    if stream.floor is not None and not 0 <= stream.floor <= stream.tail:
        yield fault(STREAM, key, f"Its floor {stream.floor} is not between 0 and its tail {stream.tail}.")
    if stream.updated_at < stream.created_at:
        yield fault(STREAM, key, "It was changed before it was created.")
    pairs = [*_PAIR.iter_unpack(stream.past_epochs), (stream.epoch, stream.tail)]
    if any(not (one[0] < two[0] and one[1] <= two[1]) for one, two in pairwise(pairs)):
        yield fault(STREAM, key, "Its epochs, or the positions at which they ended, do not rise.")
    if stream.epoch > epoch:
        yield fault(STREAM, key, f"Its epoch {stream.epoch} is above the epoch {epoch} of the store.")


def _content_of(walk: StoreWalk, stream: StreamRow, bounds: _Bounds) -> Iterator[StoreFault | int]:
    """The faults of the content of one stream, and now and then a number of chunks that were read."""
    first = max(bounds.base, bounds.freed)
    position: int | None = first if bounds.is_exact else None
    is_json = stream.content_type.partition(b";")[0].strip().lower() == b"application/json"
    for keys in in_groups(walk.keys_below(CHUNK, (stream.id,))):
        yield len(keys)
        for page in _slices(walk, stream.id, [key[1] for key in keys]):
            for chunk in page:
                start = chunk.end_at - len(chunk.data)
                if position is None:
                    position = start if bounds.base <= start <= first else first
                if start != position:
                    yield fault(
                        CHUNK,
                        (stream.path, chunk.end_at),
                        f"The content begins at {start}, and the content before it ends at {position}.",
                    )
                position = chunk.end_at
                said = _messages(chunk.data, chunk.messages, is_json=is_json)
                if said:
                    yield fault(CHUNK, (stream.path, chunk.end_at), said)
    if position is None:
        position = stream.tail if first <= stream.tail else first
    if position != stream.tail:
        yield fault(STREAM, (stream.path,), f"The content ends at {position}, and the tail is {stream.tail}.")


def _slices(walk: StoreWalk, life: bytes, ends: list[int]) -> Iterator[Any]:
    """The chunks with these ends, in slices of bounded size: their ends tell how large they are."""
    first = 0
    while first < len(ends):
        last = first + 1
        while last < len(ends) and ends[last] - ends[first] <= _READ_BYTES:
            last += 1
        wanted = Range(CHUNK, "", (life,), last - first, start=(ends[first],), stop=(ends[last - 1] + 1,))
        yield walk.range(wanted)
        first = last


def _messages(data: bytes, messages: int, *, is_json: bool) -> str | None:
    if not data:
        return "The chunk is empty."
    if not is_json:
        return None if messages == 1 else f"The chunk counts {messages} messages instead of 1."
    text = b"[%b]" % data
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            found = json.loads(text)  # half of a surrogate pair, for one, is JSON too
        except ValueError:
            return "The content is not JSON."
    return None if len(found) == messages else f"The chunk counts {messages} messages and has {len(found)}."


def receipts(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each receipt of a living stream names the end of an append, and the append that it is the receipt of."""
    for age in (0, 1):
        for page in walk.pages(RECEIPT, age):
            streams = walk.find(STREAM, [(row.scope,) for row in page])
            kept = walk.find(RETENTION, streams)
            living = [row for row in page if _is_of(row, streams.get((row.scope,)))]
            # Without retention content is small enough to be compared; few receipts at a time, for chunks are large.
            for row in living:
                stream = streams[row.scope,]
                retention = kept.get((row.scope,))
                yield from _receipt(walk, row, stream, 0 if retention is None else retention.freed)


def _is_of(row: ReceiptRow, stream: StreamRow | None) -> bool:
    return stream is not None and row.id == stream.id


def _receipt(walk: StoreWalk, row: ReceiptRow, stream: StreamRow, freed: int) -> Iterator[StoreFault]:
    key = (stream.path, row.key)
    if row.tail > stream.tail:
        yield fault(RECEIPT, key, f"Its position {row.tail} is above the tail {stream.tail} of the stream.")
        return
    if row.closed and not (stream.closed and row.tail == stream.tail):
        yield fault(RECEIPT, key, "It is of the append that closed the stream, and the stream is open or longer.")
    if row.status not in (200, 204) or (row.epoch is None) != (row.seq is None):
        yield fault(RECEIPT, key, "It has an answer that no append gives.")
    if row.tail <= max(freed, stream.floor or 0):
        return
    found = walk.range(Range(CHUNK, "", (stream.id,), 1, start=(row.tail,), stop=(row.tail + 1,)))
    if not found:
        if row.tail != max(stream.inherited, 0) or not row.closed:
            yield fault(RECEIPT, key, f"No append of the stream ends at its position {row.tail}.")
        return
    is_json = stream.content_type.partition(b";")[0].strip().lower() == b"application/json"
    if is_json or row.epoch is not None:
        return
    head = b"close:-:" if row.closed else b"open:-:"
    bodies = (found[0].data, b"") if row.closed else (found[0].data,)
    if all(sha256(head + body).digest() != row.fingerprint for body in bodies):
        yield fault(RECEIPT, key, f"The content that ends at {row.tail} is not the one of this receipt.")


def producers(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each producer belongs to a stream, or to one that has ended and is not freed; so do closers."""
    for page in walk.pages(PRODUCER):
        streams = walk.find(STREAM, [(row.scope,) for row in page])
        others = [row for row in page if (one := streams.get((row.scope,))) is None or one.id != row.id]
        graves = walk.find(TOMBSTONE, [(row.id,) for row in others])
        for row in page:
            if min(row.epoch, row.seq) < 0:
                yield fault(PRODUCER, (row.scope, row.producer), "Its epoch or its sequence is below 0.")
        for row in others:
            if (row.id,) not in graves:
                yield fault(PRODUCER, (row.scope, row.producer), "It belongs to no stream and to no tombstone.")
    for group in in_groups(stream for stream in walk.rows(STREAM) if stream.closer_id is not None):
        found = walk.find(PRODUCER, [(one.scope, pack(one.closer_id or b"")) for one in group])
        for stream in group:
            state = found.get((stream.scope, pack(stream.closer_id or b"")))
            closer = (stream.id, stream.closer_epoch, stream.closer_seq)
            if not stream.closed or state is None or state[2:5] != closer:
                yield fault(STREAM, (stream.path,), "The producer that closed it is not there, or went on after it.")


def forks(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each fork has a source that is kept, and content; each source counts its forks."""
    count = 0
    for page in walk.pages(FORK):
        count += len(page)
        streams = walk.find(STREAM, [(row.source_scope,) for row in page])
        lives = {life for row in page for life, _ in _SEGMENT.iter_unpack(row.chain)}
        graves = walk.find(TOMBSTONE, [(life,) for life in {*lives, *(row.source_id for row in page)}])
        for row in page:
            source = streams.get((row.source_scope,))
            if (source is None or source.id != row.source_id) and (row.source_id,) not in graves:
                yield fault(FORK, (row.source_path,), "The source of the fork is neither there nor kept.")
            yield from _chain(walk, row)
    yield from _fork_counts(walk, count)
    for group in in_groups(stream for stream in walk.rows(STREAM) if stream.inherited >= 0):
        found = walk.find(FORK, [(stream.id,) for stream in group])
        for stream in group:
            fork = found.get((stream.id,))
            if fork is None:
                yield fault(STREAM, (stream.path,), "It is a fork, and the row that names its source is not there.")
                continue
            ends = [end for _, end in _SEGMENT.iter_unpack(fork.chain)]
            if (ends[-1] if ends else 0) != stream.inherited:
                yield fault(FORK, (stream.path,), "Its chain does not end at the fork point.")
    for stream in walk.rows(STREAM):
        if stream.gone and not stream.forks:
            yield fault(STREAM, (stream.path,), "It is gone, and no fork needs it.")


def _chain(walk: StoreWalk, row: Any) -> Iterator[StoreFault]:
    """The segments of a chain rise, and the end of each is in content that is there."""
    start = 0
    for life, end in _SEGMENT.iter_unpack(row.chain):
        if end <= start:
            yield fault(FORK, (row.source_path,), "The positions in its chain do not rise.")
        found = walk.range(Range(CHUNK, "", (life,), 1, start=(end,)))
        if not found or found[0].end_at - len(found[0].data) >= end:
            yield fault(FORK, (row.source_path,), f"The content that it inherits up to {end} is not there.")
        start = end


def _fork_counts(walk: StoreWalk, count: int) -> Iterator[StoreFault]:
    for number in range(passes := passes_of(count)):
        children = Counter(row.source_id for row in walk.rows(FORK) if token_of((row.source_id,)) % passes == number)
        for stream in walk.rows(STREAM):
            if token_of((stream.id,)) % passes == number and stream.forks != children[stream.id]:
                said = f"It counts {stream.forks} forks and has {children[stream.id]}."
                yield fault(STREAM, (stream.path,), said)
        for grave in walk.rows(TOMBSTONE):
            if token_of((grave.id,)) % passes == number and grave.forks != children[grave.id]:
                yield fault(TOMBSTONE, (grave.id,), f"It counts {grave.forks} forks and has {children[grave.id]}.")


def retention(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each retention belongs to a living stream, and has freed nothing above its floor."""
    for page in walk.pages(RETENTION):
        streams = walk.find(STREAM, [(row.scope,) for row in page])
        for row in page:
            stream = streams.get((row.scope,))
            if stream is None or stream.id != row.id or stream.floor is None:
                yield fault(RETENTION, (row.scope,), "It belongs to no stream that has a retention.")
            elif not 0 <= row.freed <= stream.floor:
                yield fault(RETENTION, (row.scope,), f"Content was freed up to {row.freed}, above {stream.floor}.")


def subscriptions(walk: StoreWalk) -> Iterator[StoreFault]:
    """Subscriptions are counted; links and patterns belong to one, or to one that has ended."""
    tables: tuple[AnyTable, ...] = (LINK, GLOB)
    count = sum(1 for _ in walk.keys(SUBSCRIPTION))
    fact = walk.get(FACT, (b"count",))
    if count != (0 if fact is None else fact.number):
        yield fault(FACT, "count", f"{0 if fact is None else fact.number} subscriptions are counted of {count}.")
    yield from _own_counts(walk)
    for table in tables:
        for page in walk.pages(table):
            found = walk.find(SUBSCRIPTION, [(row.name,) for row in page])
            ended = walk.find(ENDED, [(row.life,) for row in page])
            for row in page:
                owner = found.get((row.name,))
                if (owner is None or owner.life != row.life) and (row.life,) not in ended:
                    yield fault(table, (row.name,), "It belongs to no subscription.")
    for page in walk.pages(MOVED):
        streams = walk.find(STREAM, [(row.scope,) for row in page])
        for row in page:
            stream = streams.get((row.scope,))
            if stream is not None and stream.id == row.stream_id and row.tail > stream.tail:
                yield fault(MOVED, (stream.path,), f"Its mark {row.tail} is above the tail {stream.tail}.")


def _own_counts(walk: StoreWalk) -> Iterator[StoreFault]:
    """The subscriptions of each principal are counted."""
    counts = Counter(own_count_key(row.creator) for row in walk.rows(SUBSCRIPTION) if row.creator)
    stored = {(row.fact,): row.number for row in walk.rows(FACT) if row.fact.startswith(own_count_key(b"")[0])}
    for key in counts.keys() | stored.keys():
        if counts[key] != stored.get(key, 0):
            yield fault(FACT, key, f"{stored.get(key, 0)} subscriptions of a principal are counted of {counts[key]}.")


CHECKS: tuple[Check, ...] = (content, receipts, producers, forks, retention, subscriptions)
