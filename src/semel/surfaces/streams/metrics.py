"""The metrics of streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from semel.server.ops.metric_table import labelled


class StreamsMetrics:
    """The counters of streams. Used on the event loop only."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        """Appends by outcome."""

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        yield labelled("semel_streams_appends", "Appends by outcome", "outcome", self.outcomes)
