"""The tables of streams, and the migration that creates them.

The scope of a stream is its packed name. Each stream created under a name has its own id: chunks are found by the id,
and receipts and producers carry it, so a stream that is created again sees nothing of the one before it. Deleting a
stream deletes one row and inserts a tombstone; the sweeper frees the chunks and producers in small writes.

Look-ups: a stream by its name (STREAM), the content of a stream by position (CHUNK), an idempotency key by stream and
key (RECEIPT), a producer by stream and producer id (PRODUCER), streams by expiry and by full name (STREAM, indexes
`deadline` and `path`).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

from semel.store.row_checksum import PRIME
from semel.store.table import Table
from semel.surfaces.streams.subscriptions.tables import SUBSCRIPTION_TABLES


class StreamRow(NamedTuple):
    """One existing stream: its properties, and its tail."""

    scope: bytes
    path: bytes
    id: bytes
    content_type: bytes
    ttl_seconds: int | None
    expires_at: int | None
    expires_text: bytes | None
    deadline: int
    created_at: int
    updated_at: int
    tail: int
    closed: int
    last_seq: bytes | None
    closer_id: bytes | None
    closer_epoch: int | None
    closer_seq: int | None
    epoch: int = 0
    """The epoch of the last append, or of the creation of the stream."""
    past_epochs: bytes = b""
    """The earlier epochs and the tail at the end of each: see `rules.offsets`."""
    inherited: int = -1
    """The position up to which a fork has the content of its source; -1 if the stream is no fork."""
    forks: int = 0
    """The number of streams that were forked from this one and are not freed yet."""
    gone: int = 0
    """1 if the stream was deleted, 2 if it has expired, while forks need its content; otherwise 0."""
    floor: int | None = None
    """The first position that is still retained; None if the stream has no retention (`RETENTION`)."""
    subscribed: int = 0
    """1 if a subscription may be linked to the stream, so that its appends leave a mark."""
    checksum: int = 0


class ChunkRow(NamedTuple):
    """The content of one append; `end_at` is the position after it. JSON messages are joined by commas."""

    id: bytes
    end_at: int
    data: bytes
    messages: int
    committed_at: int
    checksum: int = 0


class ProducerRow(NamedTuple):
    """The state of one producer on one stream."""

    scope: bytes
    producer: bytes
    id: bytes
    epoch: int
    seq: int
    checksum: int = 0


class ReceiptRow(NamedTuple):
    """The receipt of a keyed append that took effect; a retry's answer is rendered from it."""

    scope: bytes
    key: bytes
    id: bytes
    fingerprint: bytes
    expires_at: int
    status: int
    tail: int
    closed: int
    epoch: int | None
    seq: int | None
    checksum: int = 0


class TombstoneRow(NamedTuple):
    """A stream that has ended and whose chunks and producers are still to be freed: not while it has forks."""

    id: bytes
    ended_at: int
    forks: int = 0
    checksum: int = 0


class ForkRow(NamedTuple):
    """A fork, by its own id: what it was forked from, and where its inherited content is stored.

    `chain` is flattened: the ids of the streams that hold the inherited content, with the position at which the part of
    each ends. A read therefore never walks from fork to source. The row is deleted when the source is released.
    """

    id: bytes
    source_scope: bytes
    source_id: bytes
    source_path: bytes
    position: int
    """The position of the fork offset, before the sub-offset was added."""
    sub_offset: int
    inherits_expiry: int
    chain: bytes
    checksum: int = 0


class RetentionRow(NamedTuple):
    """The retention of a stream: how much of its front is dropped, and when it is looked at next."""

    scope: bytes
    id: bytes
    max_age_ms: int | None
    max_bytes: int | None
    freed: int
    """The position up to which the content was deleted; it is below the floor while forks need the content."""
    due_at: int
    checksum: int = 0


def chunk_checksum(row: tuple[Any, ...]) -> int:
    """The checksum of a chunk; `end_at` is below 2**63, so each of its bits and of the other numbers counts."""
    return crc32(row[2], (row[1] ^ row[3] ^ row[4]) % PRIME)


def receipt_checksum(row: tuple[Any, ...]) -> int:
    """The checksum of a receipt."""
    numbers = row[4] ^ row[5] ^ row[6] ^ row[7]
    if row[8] is not None:
        numbers ^= row[8] ^ row[9] << 1
    return crc32(b"".join(row[:4]), numbers % PRIME)


def new_chunk(stream: StreamRow, data: bytes, messages: int, now_ms: int) -> ChunkRow:
    """The row of content that is appended to a stream."""
    row = ChunkRow(stream.id, stream.tail + len(data), data, messages, now_ms)
    return row._replace(checksum=chunk_checksum(row))


STREAM = Table(
    "stream",
    StreamRow,
    key=1,
    indexes={"deadline": ("deadline",), "path": ("path",)},
    cached=True,
    unsummed=("deadline",),
    unsummed_if=lambda row: row.ttl_seconds is not None,  # only use of such a stream extends it
)
CHUNK = Table("chunk", ChunkRow, key=2, bulky=True, checksum=chunk_checksum)
PRODUCER = Table("producer", ProducerRow, key=2, indexes={"life": ("id",)})
RECEIPT = Table("receipt", ReceiptRow, key=2, generational=True, bulky=True, log=True, checksum=receipt_checksum)
TOMBSTONE = Table("grave", TombstoneRow, key=1, indexes={"forks": ("forks",)})
FORK = Table("fork", ForkRow, key=1)
RETENTION = Table("retention", RetentionRow, key=1, indexes={"due": ("due_at",)})

TABLES = (STREAM, CHUNK, PRODUCER, RECEIPT, TOMBSTONE, FORK, RETENTION, *SUBSCRIPTION_TABLES)
