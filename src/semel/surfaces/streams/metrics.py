"""The metrics of streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from semel.kernel.verdict import Verdict
from semel.server.ops.metric_table import labelled


class StreamsMetrics:
    """The counters of streams. Used on the event loop only."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        """Appends by outcome."""
        self.pages: Counter[str] = Counter()
        """Pages for readers, by their source: `memory` or `store`."""
        self.deliveries: Counter[str] = Counter()
        """Webhook attempts by result."""
        self.wakes: Counter[str] = Counter()
        """Wakes by the type of their subscription."""
        self.pending_subscriptions: int | None = 0
        """Subscriptions with a wake, a retry or a lease; None while the store cannot be read."""
        self.tail_bytes = 0
        """Bytes of hot tails in memory."""

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Appends by verdict."""
        found = self.outcomes
        replays = found["replay"] + found["duplicate"]
        return {Verdict.FRESH: found["stored"], Verdict.REPLAY: replays, Verdict.REFUSED: found["refused"]}

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        yield labelled("semel_streams_appends", "Appends by outcome", "outcome", self.outcomes)
        yield labelled("semel_streams_pages", "Pages for readers by source", "source", self.pages)
        yield labelled("semel_streams_webhooks", "Webhook attempts by result", "result", self.deliveries)
        yield labelled("semel_streams_wakes", "Wakes of subscriptions by type", "type", self.wakes)
        yield GaugeMetricFamily(
            "semel_streams_pending_subscriptions",
            "Subscriptions with a wake, a retry or a lease",
            self.pending_subscriptions,
        )
        yield GaugeMetricFamily("semel_streams_tail_bytes", "Bytes of hot tails in memory", self.tail_bytes)
