"""The tables of streams, and the migration that creates them.

The scope of a stream is its packed name. Each stream created under a name has its own id: chunks are found by the id,
and receipts and producers carry it, so a stream that is created again sees nothing of the one before it. Deleting a
stream deletes one row and inserts a tombstone; the sweeper frees the chunks and producers in small writes.

Look-ups: a stream by its name (STREAM), the content of a stream by position (CHUNK), an idempotency key by stream and
key (RECEIPT), a producer by stream and producer id (PRODUCER), streams by expiry and by full name (STREAM, indexes
`deadline` and `path`).
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.table import Table


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


class ChunkRow(NamedTuple):
    """The content of one append; `end_at` is the position after it. JSON messages are joined by commas."""

    id: bytes
    end_at: int
    data: bytes
    messages: int
    committed_at: int


class ProducerRow(NamedTuple):
    """The state of one producer on one stream."""

    scope: bytes
    producer: bytes
    id: bytes
    epoch: int
    seq: int


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


class TombstoneRow(NamedTuple):
    """A stream that has ended and whose chunks and producers are still to be freed."""

    id: bytes
    ended_at: int


STREAM = Table("stream", StreamRow, key=1, indexes={"deadline": ("deadline",), "path": ("path",)}, cached=True)
CHUNK = Table("chunk", ChunkRow, key=2, bulky=True)
PRODUCER = Table("producer", ProducerRow, key=2, indexes={"life": ("id",)})
RECEIPT = Table("receipt", ReceiptRow, key=2, generational=True, bulky=True, log=True)
TOMBSTONE = Table("grave", TombstoneRow, key=1)

TABLES = (STREAM, CHUNK, PRODUCER, RECEIPT, TOMBSTONE)
