"""What a store takes: bytes, rows, memory, and the lag of its replicas; for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class KeyIndexSize(NamedTuple):
    """The size of a store's index of idempotency keys."""

    memory_keys: int
    """Keys in memory."""
    disk_keys: int
    """Older keys, which are looked up on disk."""
    memory_bytes: int
    """The memory that both take, as far as it is known."""


class StoreUsage(NamedTuple):
    """What a store takes, and how far its replicas are behind. None is a value that this store does not know."""

    database_bytes: int | None = None
    log_bytes: int | None = None
    """The write-ahead log."""
    free_bytes: int | None = None
    """Free bytes on the disk of the database, for a user without special rights."""
    log_rows: Mapping[str, int] = MappingProxyType({})
    """Rows of the log tables by the name of the table, which a database may only estimate."""
    key_index: KeyIndexSize | None = None
    """The index of keys that the store keeps in memory; None if the database itself finds keys."""
    replicas: int | None = None
    replica_lag_seconds: float | None = None
    """The time by which the slowest replica is behind."""
    replica_lag_bytes: int | None = None
    """The bytes of the log that the slowest replica has not applied."""
