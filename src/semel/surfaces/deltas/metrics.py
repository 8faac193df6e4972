"""The metrics of deltas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from semel.kernel.verdict import Verdict
from semel.server.memory_budget import Budget
from semel.server.ops.metric_table import counted, labelled

_PUSH_OUTCOMES = ("new", "duplicate")


class DeltasMetrics:
    """The counters of deltas. Used on the event loop only."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.sockets: Callable[[], int] = int
        self.held: Mapping[str, Budget] = {}
        """Memory budgets of clients, by the name of the gauge."""

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Pushed deltas, and refused calls, by verdict."""
        return {
            Verdict.FRESH: self.counts["new"],
            Verdict.REPLAY: self.counts["duplicate"],
            Verdict.REFUSED: self.refused.total(),
        }

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        pushed = {name: self.counts[name] for name in _PUSH_OUTCOMES}
        yield labelled("semel_deltas_pushed", "Acknowledged deltas by outcome", "outcome", pushed)
        yield labelled("semel_deltas_refused", "Refused calls by code", "code", self.refused)
        yield counted("semel_deltas_entries_given", "Entries given to clients", self.counts["given"])
        yield GaugeMetricFamily("semel_deltas_sockets", "Open WebSockets of deltas", self.sockets())
        for name, budget in self.held.items():
            yield GaugeMetricFamily(f"semel_deltas_{name}_bytes", f"Bytes of {name} in progress", budget.held)
