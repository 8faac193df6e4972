"""The metrics of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from semel.kernel.verdict import Verdict
from semel.server.ops.metric_table import counted, labelled

_WRITE_OUTCOMES = ("committed", "replayed", "declined")


class LedgerMetrics:
    """The counters of the ledger. Used on the event loop only."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.declined: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.watchers: Callable[[], int] = int
        self.remembered: Callable[[], int] = int

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Decided transactions by verdict."""
        reused, gaps = self.declined["IDEMPOTENCY_KEY_REUSED"], self.declined["SEQUENCE_GAP"]
        return {
            Verdict.FRESH: self.counts["committed"],
            Verdict.REPLAY: self.counts["replayed"],
            Verdict.MISMATCH: reused,
            Verdict.GAP: gaps,
            Verdict.REFUSED: self.counts["declined"] - reused - gaps,
        }

    def collect(self) -> Iterator[Metric]:
        """The metric families, for Prometheus."""
        judged = {name: self.counts[name] for name in _WRITE_OUTCOMES}
        yield labelled("semel_ledger_transactions", "Decided transactions by outcome", "outcome", judged)
        yield labelled("semel_ledger_declined", "Domain errors of transactions by code", "code", self.declined)
        yield labelled("semel_ledger_refused", "Calls refused before any rule by code", "code", self.refused)
        yield counted("semel_ledger_operations", "Operations committed", self.counts["operations"])
        yield counted(
            "semel_ledger_slow_watchers",
            "Watchers disconnected because they did not read",
            self.counts["slow_watchers"],
        )
        yield GaugeMetricFamily("semel_ledger_watchers", "Clients that follow blocks", self.watchers())
        yield GaugeMetricFamily("semel_ledger_hot_answers", "Answers in the replay cache", self.remembered())
