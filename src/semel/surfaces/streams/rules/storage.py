"""What appends store for the quotas of a principal: bytes of content, and idempotency keys until they expire.

Positions of a stream count bytes, so a container is a part of 64 KiB of one stream. Retention gives back whole parts;
the end of a stream gives back all of them, when its content was freed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from semel.engine.storage_meter import RowMeter, StorageCharge, StorageRelease
from semel.store.protocol import AnyTable
from semel.surfaces.streams.tables import (
    CHUNK,
    RECEIPT,
    RETENTION,
    TOMBSTONE,
    ChunkRow,
    ReceiptRow,
    RetentionRow,
    TombstoneRow,
)

PART_BITS = 16
_LAST_PART = 2**64 - 1
_SHORT_MS, _HOUR_MS = 60_000, 3_600_000


def _part(stream_id: bytes, number: int) -> bytes:
    return b"sc" + stream_id + number.to_bytes(8, "big")


def chunk_items(before: ChunkRow | None, after: ChunkRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """Content that was appended; what is freed is told by the other rows."""
    if before is None and after is not None:
        yield StorageCharge(_part(after.id, (after.end_at - 1) >> PART_BITS), 0, len(after.data))


def retention_items(before: RetentionRow | None, after: RetentionRow | None, now_ms: int) -> Iterator[StorageRelease]:
    """Parts of the front of a stream that retention has freed."""
    if before is None or after is None or before.id != after.id:
        return
    first, end = before.freed >> PART_BITS, after.freed >> PART_BITS
    if first < end:
        yield StorageRelease(_part(after.id, first), _part(after.id, end - 1))


def tombstone_items(before: TombstoneRow | None, after: TombstoneRow | None, now_ms: int) -> Iterator[StorageRelease]:
    """The whole content of a stream that has ended, when the last of it was freed."""
    if before is not None and after is None:
        yield StorageRelease(_part(before.id, 0), _part(before.id, _LAST_PART))


def receipt_items(before: ReceiptRow | None, after: ReceiptRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """A key, until it expires: containers are times of expiry, rounded up to a second, a minute or ten minutes."""
    if after is None or after == before:
        return
    life = after.expires_at - now_ms
    width = 1_000 if life <= _SHORT_MS else 60_000 if life <= _HOUR_MS else 600_000
    until = -(-after.expires_at // width) * width
    yield StorageCharge(b"sk" + until.to_bytes(8, "big"), 1, 0, until=until)


STORAGE: Mapping[AnyTable, RowMeter] = MappingProxyType(
    {CHUNK: chunk_items, RETENTION: retention_items, TOMBSTONE: tombstone_items, RECEIPT: receipt_items}
)
