"""The metrics of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from semel.kernel.verdict import Verdict
from semel.server.ops.metric_table import counted, labelled

_ITEM_OUTCOMES = ("committed", "replayed", "rejected", "not_processed")


class EventsMetrics:
    """The counters of events. Used on the event loop only."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.connections: Callable[[], int] = int
        self.live: Callable[[], int] = int

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Submitted items by verdict."""
        refused = self.counts["rejected"] + self.counts["not_processed"]
        return {
            Verdict.FRESH: self.counts["committed"],
            Verdict.REPLAY: self.counts["replayed"],
            Verdict.REFUSED: refused,
        }

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        items = {name: self.counts[name] for name in _ITEM_OUTCOMES}
        yield labelled("semel_events_items", "Submitted items by outcome", "outcome", items)
        yield labelled("semel_events_errors", "Error messages by code", "code", self.errors)
        yield counted("semel_events_broadcasts", "Events sent live", self.counts["broadcasts"])
        yield counted(
            "semel_events_slow_readers", "Clients disconnected because they did not read", self.counts["slow_readers"]
        )
        yield counted("semel_events_resets", "Cursors of a lost epoch", self.counts["resets"])
        yield counted("semel_events_cursors_ahead", "Cursors above every event", self.counts["cursors_ahead"])
        yield GaugeMetricFamily("semel_events_connections", "Open WebSocket connections", self.connections())
        yield GaugeMetricFamily("semel_events_live", "Connections that keep up with the log", self.live())
