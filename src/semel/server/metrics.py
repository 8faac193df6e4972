"""Metrics of the process, for Prometheus and, with the same facts, as flat JSON.

Names are `semel_<surface>_<thing>_<unit>`; labels come from closed sets. The write path adds to plain numbers once a
batch or a request; Prometheus objects are made when metrics are scraped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import orjson
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from semel.engine.contract import EngineError
from semel.engine.engine import Engine
from semel.engine.observer import BatchReport
from semel.server.audit import AuditLog
from semel.server.budget import Budget
from semel.server.connection_limit import ConnectionLimit
from semel.server.jobs_metrics import SECOND_BUCKETS, SECONDS, families, named
from semel.server.meter import Meter
from semel.store.protocol import StoreAwayError, StoreHeldError, TryAgainError

_log = logging.getLogger("semel.engine")

_PASSING = (TryAgainError, StoreAwayError, StoreHeldError)
"""Errors that a database causes now and then without a fault of the server."""

_ITEM_OUTCOMES = ("committed", "replayed", "rejected", "not_processed")
_WRITE_OUTCOMES = ("committed", "replayed", "declined")
_PUSH_OUTCOMES = ("new", "duplicate")
_BATCH_WRITES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_BATCH_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0)


class Metrics:
    """Counts for one process; also the engine's observer."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.event_counts: Counter[str] = Counter()
        self.event_errors: Counter[str] = Counter()
        self.ledger_counts: Counter[str] = Counter()
        self.ledger_declined: Counter[str] = Counter()
        self.ledger_refused: Counter[str] = Counter()
        self.ledger_watchers: Callable[[], int] = int
        self.ledger_hot: Callable[[], int] = int
        self.deltas_counts: Counter[str] = Counter()
        self.deltas_refused: Counter[str] = Counter()
        self.deltas_sockets: Callable[[], int] = int
        self.deltas_held: Mapping[str, Budget] = {}
        """Memory budgets of deltas clients, by the name of the gauge."""
        self.event_connections: Callable[[], int] = int
        self.event_live: Callable[[], int] = int
        self._batch_writes = Histogram(
            "semel_engine_batch_writes", "Writes in one batch", registry=self.registry, buckets=_BATCH_WRITES
        )
        self._batch_seconds = Histogram(
            "semel_engine_batch_seconds", "Time of one batch", registry=self.registry, buckets=_BATCH_SECONDS
        )
        self.engine: Engine | None = None
        self.audit: AuditLog | None = None
        self.meter: Meter | None = None
        self.jobs_gauges: Callable[[], Awaitable[dict[str, float]]] = _no_gauges
        self.jobs_seconds = {
            name: Histogram(series, about, registry=self.registry, buckets=SECOND_BUCKETS)
            for name, series, about in SECONDS
        }
        self.gauges: Mapping[str, float] | None = {}
        """The state of the queue at the last read of metrics; None when the store could not be read."""
        self.connections: Callable[[], int] = int
        self.connection_limit: ConnectionLimit | None = None
        self.registry.register(_Live(self))

    async def look(self) -> None:
        """Read the gauges from the store; to be called right before metrics are rendered."""
        try:
            self.gauges = await self.jobs_gauges()
        except EngineError:
            self.gauges = None  # a store that is away must not hide how often it was

    def batch(self, report: BatchReport) -> None:
        """A batch has ended."""
        self.commits[report.commit.value] += 1
        self._batch_writes.observe(report.writes)
        self._batch_seconds.observe(report.seconds)
        for name in ("writes", "faults", "reruns", "deferred", "dropped"):
            self.events[name] += getattr(report, name)

    def fault(self, error_id: str, error: BaseException) -> None:
        """A decision raised."""
        _log.error("fault in a decision", exc_info=error, extra={"error_id": error_id})

    def store_failure(self, error: BaseException) -> None:
        """The store failed."""
        self.events["store_failures"] += 1
        if isinstance(error, _PASSING):
            _log.warning("the store is away, held or broke off", extra={"reason": str(error)})
        else:
            _log.error("the store failed", extra={"reason": str(error)}, exc_info=error)

    def clock_jump(self, ahead_ms: int) -> None:
        """The clock jumped."""
        self.events["clock_jumps"] += 1
        _log.warning("the clock jumped ahead; expiry waits", extra={"ahead_ms": ahead_ms})


async def _no_gauges() -> dict[str, float]:
    """Before there are jobs."""
    return {}


class _Live(Collector):
    """Converts the plain numbers to Prometheus families when they are collected."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        requests = CounterMetricFamily(
            "semel_http_requests", "Requests answered", labels=("surface", "method", "status")
        )
        for (surface, method, status), count in sorted(metrics.requests.items()):
            requests.add_metric((surface, method, str(status)), count)
        yield requests
        yield _labelled("semel_streams_appends", "Appends by outcome", "outcome", metrics.outcomes)
        items = {name: metrics.event_counts[name] for name in _ITEM_OUTCOMES}
        yield _labelled("semel_events_items", "Submitted items by outcome", "outcome", Counter(items))
        yield _labelled("semel_events_errors", "Error messages by code", "code", metrics.event_errors)
        yield _counted("semel_events_broadcasts", "Events sent live", metrics.event_counts["broadcasts"])
        yield _counted(
            "semel_events_slow_readers", "Clients cut off for not reading", metrics.event_counts["slow_readers"]
        )
        yield _counted("semel_events_resets", "Cursors of a lost epoch", metrics.event_counts["resets"])
        yield _counted("semel_events_cursors_ahead", "Cursors above every event", metrics.event_counts["cursors_ahead"])
        yield GaugeMetricFamily("semel_events_connections", "Open WebSocket connections", metrics.event_connections())
        yield GaugeMetricFamily("semel_events_live", "Connections that keep up with the log", metrics.event_live())
        yield from _ledger(metrics)
        yield from _deltas(metrics)
        yield _labelled("semel_engine_commits", "Batches by how they ended", "kind", metrics.commits)
        for name in ("writes", "faults", "reruns", "deferred", "dropped", "store_failures", "clock_jumps"):
            yield _counted(f"semel_engine_{name}", f"Engine {name.replace('_', ' ')}", metrics.events[name])
        yield GaugeMetricFamily("semel_http_connections", "Open connections", metrics.connections())
        if metrics.connection_limit is not None:
            refused = metrics.connection_limit.refused
            yield _labelled("semel_connections_refused", "Connections refused by reason", "reason", refused)
        yield from _gauges(metrics.engine)
        yield from _audit(metrics.audit)
        if metrics.meter is not None:
            yield from families(metrics.meter.totals, metrics.gauges)


def _ledger(metrics: Metrics) -> Iterator[Metric]:
    counts = metrics.ledger_counts
    judged = Counter({name: counts[name] for name in _WRITE_OUTCOMES})
    yield _labelled("semel_ledger_transactions", "Judged transactions by outcome", "outcome", judged)
    yield _labelled("semel_ledger_declined", "Domain errors of transactions by code", "code", metrics.ledger_declined)
    yield _labelled("semel_ledger_refused", "Calls refused before any rule by code", "code", metrics.ledger_refused)
    yield _counted("semel_ledger_operations", "Operations committed", counts["operations"])
    yield _counted("semel_ledger_slow_watchers", "Watchers cut off for not reading", counts["slow_watchers"])
    yield GaugeMetricFamily("semel_ledger_watchers", "Clients that follow blocks", metrics.ledger_watchers())
    yield GaugeMetricFamily("semel_ledger_hot_answers", "Answers remembered in memory", metrics.ledger_hot())


def _deltas(metrics: Metrics) -> Iterator[Metric]:
    counts = metrics.deltas_counts
    pushed = Counter({name: counts[name] for name in _PUSH_OUTCOMES})
    yield _labelled("semel_deltas_pushed", "Acknowledged deltas by outcome", "outcome", pushed)
    yield _labelled("semel_deltas_refused", "Refused calls by code", "code", metrics.deltas_refused)
    yield _counted("semel_deltas_entries_given", "Entries given to clients", counts["given"])
    yield GaugeMetricFamily("semel_deltas_sockets", "Open WebSockets of deltas", metrics.deltas_sockets())
    for name, budget in metrics.deltas_held.items():
        yield GaugeMetricFamily(f"semel_deltas_{name}_bytes", f"Bytes of {name} under way", budget.held)


def _audit(audit: AuditLog | None) -> Iterator[CounterMetricFamily]:
    if audit is None:
        return
    yield _counted("semel_audit_lines", "Audit lines written", audit.lines)
    yield _counted("semel_audit_lost_lines", "Audit lines that could not wait for the disk", audit.lost_lines)
    yield _counted("semel_audit_write_errors", "Failed writes of the audit log", audit.write_errors)


def _counted(name: str, about: str, count: int) -> CounterMetricFamily:
    family = CounterMetricFamily(name, about)
    family.add_metric((), count)
    return family


def _labelled(name: str, about: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, about, labels=(label,))
    for value, count in sorted(counts.items()):
        family.add_metric((value,), count)
    return family


def _gauges(engine: Engine | None) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    if engine is None:
        return
    yield GaugeMetricFamily("semel_engine_queue_writes", "Writes waiting for a commit", engine.waiting_writes)
    yield GaugeMetricFamily("semel_engine_queue_most_writes", "The most that ever waited", engine.most_waiting)
    yield _counted(
        "semel_engine_share_refusals", "Writes refused because their caller held its share", engine.share_refusals
    )
    yield GaugeMetricFamily("semel_engine_queue_bytes", "Bytes of waiting writes", engine.waiting_bytes)
    yield GaugeMetricFamily("semel_engine_soft_changes", "Soft changes not stored yet", len(engine.soft))
    yield GaugeMetricFamily("semel_live_readers", "Live readers waiting", len(engine.signals))


def render(metrics: Metrics, accept: str) -> tuple[bytes, bytes]:
    """Content type and body: JSON, unless the client names a Prometheus format."""
    if "text/plain" in accept or "application/openmetrics-text" in accept:
        encoder, content_type = choose_encoder(accept)
        return content_type.encode(), encoder(metrics.registry)
    names = named(metrics.meter.last_minute, metrics.gauges) if metrics.meter is not None else {}
    return b"application/json", orjson.dumps(
        names | dict(_flat(metrics.registry.collect())), option=orjson.OPT_INDENT_2
    )


def _flat(families: Iterable[Metric]) -> Iterator[tuple[str, float]]:
    for family in families:
        for sample in family.samples:
            if sample.name.endswith(("_created", "_bucket")):
                continue
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            yield (f"{sample.name}{{{labels}}}" if labels else sample.name), sample.value
