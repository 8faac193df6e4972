"""Gauges of the store: what it takes, the receipts in it, and how far its replicas and its sweeper are behind.

They are read when the metrics are asked for. While the store cannot be reached, or does not know a value, the family
has no sample: a number that may be wrong would silence an alert.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from semel.engine.engine import Engine
from semel.store.protocol import StoreError
from semel.store.usage import StoreUsage

MEASURE_SECONDS = 3.0
"""Time limit for a value that is read from the store; a scrape must not wait for a store that hangs."""


class StoreMetrics:
    """The gauges of one store. Used on the event loop only."""

    def __init__(self) -> None:
        self.receipts: Mapping[str, Sequence[str]] = {}
        """The tables with the receipts of each surface."""
        self.sweep_lag: Callable[[], float | None] = lambda: None
        """Seconds since the sweeper last found nothing to free; None on a node that does not sweep."""
        self._usage = StoreUsage()

    async def measure(self, engine: Engine) -> None:
        """Read the usage of the store."""
        try:
            async with asyncio.timeout(MEASURE_SECONDS):
                self._usage = await engine.usage()
        except (StoreError, TimeoutError):
            self._usage = StoreUsage()

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        usage = self._usage
        yield _gauge("semel_store_database_bytes", "Bytes of the database", usage.database_bytes)
        yield _gauge("semel_store_log_bytes", "Bytes of the write-ahead log of the database", usage.log_bytes)
        yield _gauge("semel_store_free_disk_bytes", "Free bytes on the disk of the database", usage.free_bytes)
        receipts = GaugeMetricFamily("semel_store_receipts", "Receipts that are kept, by surface", labels=("surface",))
        for surface, tables in self.receipts.items():
            if any(table in usage.log_rows for table in tables):
                receipts.add_metric((surface,), sum(usage.log_rows.get(table, 0) for table in tables))
        yield receipts
        yield _gauge("semel_store_replicas", "Connected replicas of the database", usage.replicas)
        yield _gauge(
            "semel_store_replica_lag_seconds", "Time by which the slowest replica is behind", usage.replica_lag_seconds
        )
        yield _gauge(
            "semel_store_replica_lag_bytes", "Log that the slowest replica has not applied", usage.replica_lag_bytes
        )
        index = usage.key_index
        keys = GaugeMetricFamily("semel_store_index_keys", "Idempotency keys in the index by place", labels=("place",))
        if index is not None:
            keys.add_metric(("memory",), index.memory_keys)
            keys.add_metric(("disk",), index.disk_keys)
        yield keys
        yield _gauge(
            "semel_store_index_bytes", "Memory of the index of keys", None if index is None else index.memory_bytes
        )
        yield _gauge(
            "semel_store_sweep_lag_seconds",
            "Time since the sweeper had freed all expired rows: the oldest of them is at most this old",
            self.sweep_lag(),
        )


def _gauge(name: str, about: str, value: float | None) -> GaugeMetricFamily:
    """One gauge; without a sample if the value is unknown."""
    return GaugeMetricFamily(name, about, value)
