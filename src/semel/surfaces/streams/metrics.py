"""The metrics of streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from semel.server.ops.metric_table import labelled


class StreamsMetrics:
    """The counters of streams. Used on the event loop only."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        """Appends by outcome."""
        self.pages: Counter[str] = Counter()
        """Pages for readers, by their source: `memory` or `store`."""
        self.tail_bytes = 0
        """Bytes of hot tails in memory."""

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        yield labelled("semel_streams_appends", "Appends by outcome", "outcome", self.outcomes)
        yield labelled("semel_streams_pages", "Pages for readers by source", "source", self.pages)
        yield GaugeMetricFamily("semel_streams_tail_bytes", "Bytes of hot tails in memory", self.tail_bytes)
