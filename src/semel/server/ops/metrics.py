"""Metrics of the process, for Prometheus and, with the same facts, as flat JSON.

Names are `semel_<surface>_<thing>_<unit>`; labels come from closed sets. The write path updates plain numbers once for
each batch or request; Prometheus objects are made when metrics are scraped.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Protocol

import orjson
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from semel import __version__
from semel.engine.caller import WaitingCaller
from semel.engine.engine import Engine
from semel.engine.group_commit import BatchReport, Commit
from semel.kernel.namespace import DEFAULT
from semel.kernel.verdict import Verdict
from semel.server.auth.key_refresh import KeyRefresh
from semel.server.http.connection_limit import ConnectionLimit
from semel.server.ops.access_log import AccessLog
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.log_facts import callers_facts, namespace_fact
from semel.server.ops.meter import Meter
from semel.server.ops.metric_table import Count, PlainHistogram, counted, families, labelled, named
from semel.server.ops.namespace_metrics import NamespaceFamilies
from semel.server.ops.request_times import HTTP, LIVE, RequestTimes
from semel.server.ops.store_metrics import StoreMetrics
from semel.server.quotas.accounts import IN_FLIGHT, Quotas
from semel.store.protocol import StoreAwayError, StoreChangedError, StoreHeldError, StoreUnfitError, TryAgainError

_log = logging.getLogger("semel.engine")

_PASSING = (TryAgainError, StoreAwayError, StoreHeldError)
"""Errors that a database causes from time to time without a fault of the server."""

_BATCH_COUNTS = ("writes", "faults", "reruns", "deferred", "dropped")
"""The counts of a batch report, in its order."""
_BATCH_WRITES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_BATCH_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0)


AUTH_COUNTS = (
    Count("auth_success_active", ("auth_success_active_1m",), "semel_auth", ("outcome", "active")),
    Count("auth_success_next", ("auth_success_next_1m",), "semel_auth", ("outcome", "next")),
    Count("auth_fail", ("auth_fail_1m",), "semel_auth", ("outcome", "fail"), less="auth_fail_old_token"),
    Count("auth_fail_old_token", ("auth_fail_old_token_1m",), "semel_auth", ("outcome", "retired_token")),
)
_ABOUT = {"semel_auth": "Credentials by outcome"}


class SurfaceMetrics(Protocol):
    """The metrics of one surface."""

    @property
    def surface(self) -> str:
        """Its name."""

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt."""

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged writes by verdict."""

    async def measure(self) -> None:
        """Read the values that are not counted as they happen."""

    def collect(self) -> Iterator[Metric]:
        """The metric families of the surface."""

    def named(self) -> Mapping[str, float | None]:
        """Values under the surface's own names in the JSON form."""


class RetryCounts(Protocol):
    """What is counted about retries that were answered from a receipt."""

    noted: int
    dropped: int


class Metrics:
    """The metrics of one process; also the observer of the engine."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.commits: Counter[str] = Counter({kind.value: 0 for kind in Commit})
        self.events: Counter[str] = Counter()
        self.batch_writes = PlainHistogram("semel_engine_batch_writes", "Writes in one batch", _BATCH_WRITES)
        self.batch_seconds = PlainHistogram("semel_engine_batch_seconds", "Time of one batch", _BATCH_SECONDS)
        self.commit_seconds = PlainHistogram(
            "semel_engine_commit_seconds", "Time of one COMMIT with its sync, which is part of a batch", _BATCH_SECONDS
        )
        self.times = RequestTimes()
        self.store = StoreMetrics()
        self.namespace = DEFAULT
        """The namespace that this counts for."""
        self.store_kind = ""
        """The kind of the store: `sqlite`, `postgresql` or `memory`."""
        self.engine: Engine | None = None
        self.audit: AuditLog | None = None
        self.access: AccessLog | None = None
        """None if requests are not logged."""
        self.meter: Meter | None = None
        self.surfaces: list[SurfaceMetrics] = []
        """The metrics of each surface."""
        self.connections: list[Callable[[], Mapping[str, int]]] = []
        """Each counts the open connections of a listener by kind."""
        self.connection_limit: ConnectionLimit | None = None
        self.quotas: Quotas | None = None
        self.retries: RetryCounts | None = None
        self.key_refresh: KeyRefresh | None = None
        """None unless the keys of JWTs are fetched from a URL."""
        self.backup_age: Callable[[], float | None] = lambda: None
        """Seconds since the last backup; None if it is unknown."""
        self._others: Mapping[str, Metrics] = {}
        self.registry.register(_Live(self))
        ProcessCollector(registry=self.registry)

    def join(self, others: Mapping[str, Metrics]) -> None:
        """Show the metrics of other namespaces beside those of the default one: every sample then names its own."""
        self._others = others
        self.registry = self._joined(others)

    def seen_in(self, namespaces: Collection[str] | None) -> CollectorRegistry:
        """What a credential that is known in these namespaces may read, which is all of it without a limit."""
        if namespaces is None or not self._others:
            return self.registry
        return self._joined({name: one for name, one in self._others.items() if name in namespaces})

    def _joined(self, others: Mapping[str, Metrics]) -> CollectorRegistry:
        registry = CollectorRegistry()
        sources = {DEFAULT: self, **others}
        registry.register(NamespaceFamilies({name: _Live(one) for name, one in sources.items()}))
        ProcessCollector(registry=registry)
        return registry

    async def measure(self) -> None:
        """Read the values that are not counted as they happen, all at once; called right before the metrics are
        collected.
        """
        await asyncio.gather(
            *(() if self.engine is None else (self.store.measure(self.engine),)),
            *(surface.measure() for surface in self.surfaces),
            *(other.measure() for other in self._others.values()),
        )

    def answered(self, surface: str, method: str, status: int, began_at: float, is_live: bool = False) -> None:
        """Count an HTTP answer, and the time since its request began."""
        self.requests[surface, method, status] += 1
        self.times.of(surface, LIVE if is_live else HTTP).observe(monotonic() - began_at)

    def batch(self, report: BatchReport) -> None:
        """A batch has ended."""
        self.commits[report.commit.value] += 1
        self.batch_writes.observe(report.writes)
        self.batch_seconds.observe(report.seconds)
        if report.commit_seconds:
            self.commit_seconds.observe(report.commit_seconds)
        for name, count in zip(_BATCH_COUNTS, report[1:6], strict=True):
            if count:
                self.events[name] += count

    def fault(self, error_id: str, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """A decision raised an error."""
        facts = {"error_id": error_id, **self._of(callers)}
        _log.error("fault in a decision", exc_info=error, extra=facts)

    def store_failure(self, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """The store failed."""
        self.events["store_failures"] += 1
        facts = {"reason": str(error), **self._of(callers)}
        if isinstance(error, _PASSING):
            _log.warning("the store was unreachable, held a lock too long or aborted a transaction", extra=facts)
        elif isinstance(error, StoreUnfitError):
            _log.error("the store takes no writes", extra=facts)
        else:
            told = None if isinstance(error, StoreChangedError) else error  # its sentence says all
            _log.error("the store failed", extra=facts, exc_info=told)

    def clock_jump(self, ahead_ms: int) -> None:
        """The clock jumped."""
        self.events["clock_jumps"] += 1
        _log.warning(
            "the clock jumped ahead; rows do not expire until the jump is accepted",
            extra={"ahead_ms": ahead_ms, **self._of(())},
        )

    def _of(self, callers: Sequence[WaitingCaller]) -> dict[str, object]:
        """The requests and the namespace that a line is about; lines come from threads, so nothing else knows."""
        return {**callers_facts(callers), **namespace_fact(self.namespace)}


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
        yield metrics.times.family()
        replays = {one.surface: one.replays for one in metrics.surfaces}
        yield labelled("semel_doubles_prevented", "Repeated writes answered from their receipt", "surface", replays)
        for one in metrics.surfaces:
            yield from one.collect()
        yield metrics.batch_writes.family()
        yield metrics.batch_seconds.family()
        yield metrics.commit_seconds.family()
        yield labelled("semel_engine_commits", "Batches by outcome", "kind", metrics.commits)
        for name in ("writes", "faults", "reruns", "deferred", "dropped", "store_failures", "clock_jumps"):
            yield counted(f"semel_engine_{name}", f"Engine {name.replace('_', ' ')}", metrics.events[name])
        yield from _connections({kind: count for of in metrics.connections for kind, count in of().items()})
        if metrics.connection_limit is not None:
            refused = metrics.connection_limit.refused
            yield labelled("semel_connections_refused", "Connections refused by reason", "reason", refused)
        if metrics.quotas is not None:
            in_flight = 0 if metrics.engine is None else metrics.engine.in_flight_refusals
            refusals = {**metrics.quotas.refusals, IN_FLIGHT: in_flight}
            yield labelled("semel_quota_refusals", "Requests refused at a quota of their principal", "quota", refusals)
        yield _backup(metrics.backup_age())
        yield from _keys(metrics.key_refresh)
        yield from _gauges(metrics.engine)
        yield from metrics.store.collect()
        yield from _audit(metrics.audit)
        yield from _access(metrics.access)
        yield from _retries(metrics.retries)
        if metrics.meter is not None:
            yield from families(AUTH_COUNTS, (), _ABOUT, metrics.meter.totals, None)
        yield _build_info(metrics.store_kind)


def _build_info(store: str) -> GaugeMetricFamily:
    """Always 1; its labels tell what runs."""
    family = GaugeMetricFamily("semel_build_info", "What runs here; always 1", labels=("version", "python", "store"))
    family.add_metric((__version__, platform.python_version(), store), 1)
    return family


def _connections(counts: Mapping[str, int]) -> Iterator[GaugeMetricFamily]:
    """By kind; and those of the HTTP listeners together, which have a limit of their own."""
    http = sum(count for kind, count in counts.items() if kind != "grpc")
    yield GaugeMetricFamily("semel_http_connections", "Open connections, without those of gRPC", http)
    family = GaugeMetricFamily("semel_server_connections", "Open connections by kind", labels=("kind",))
    for kind, count in sorted(counts.items()):
        family.add_metric((kind,), count)
    yield family


def _backup(age: float | None) -> GaugeMetricFamily:
    """Without a value if it is unknown."""
    return GaugeMetricFamily("semel_backup_age_seconds", "Time since the instant of the last backup", age)


def _keys(keys: KeyRefresh | None) -> Iterator[Metric]:
    """Without an age if the keys are in a file, or were never fetched."""
    failures, age = (0, None) if keys is None else (keys.failures, keys.age_seconds())
    yield counted("semel_auth_key_fetch_failures", "Failed fetches of the keys of JWTs", failures)
    yield GaugeMetricFamily("semel_auth_key_age_seconds", "Time since the keys of JWTs were fetched", age)


def _access(access: AccessLog | None) -> Iterator[CounterMetricFamily]:
    lines, lost, errors = (0, 0, 0) if access is None else (access.lines, access.lost_lines, access.write_errors)
    yield counted("semel_access_lines", "Lines of requests written", lines)
    yield counted("semel_access_lost_lines", "Lines of requests lost because the disk did not keep up", lost)
    yield counted("semel_access_write_errors", "Failed writes of the access log or the slow log", errors)


def _retries(retries: RetryCounts | None) -> Iterator[CounterMetricFamily]:
    noted, dropped = (0, 0) if retries is None else (retries.noted, retries.dropped)
    yield counted("semel_writes_noted_retries", "Retries that were counted for the life of their write", noted)
    yield counted("semel_writes_dropped_retries", "Retries that were not, because too many waited", dropped)


def _audit(audit: AuditLog | None) -> Iterator[CounterMetricFamily]:
    if audit is None:
        return
    yield counted("semel_audit_lines", "Audit lines written", audit.lines)
    yield counted("semel_audit_lost_lines", "Audit lines lost because the queue was full", audit.lost_lines)
    yield counted("semel_audit_write_errors", "Failed writes of the audit log", audit.write_errors)


def _gauges(engine: Engine | None) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    if engine is None:
        return
    yield GaugeMetricFamily("semel_engine_queue_writes", "Writes waiting for a commit", engine.waiting_writes)
    yield GaugeMetricFamily("semel_engine_queue_most_writes", "The most writes that ever waited", engine.most_waiting)
    yield counted(
        "semel_engine_share_refusals", "Writes refused at their caller's share of the queue", engine.share_refusals
    )
    yield GaugeMetricFamily("semel_engine_queue_bytes", "Bytes of waiting writes", engine.waiting_bytes)
    yield GaugeMetricFamily("semel_engine_soft_changes", "Soft changes not stored yet", len(engine.soft))
    yield GaugeMetricFamily("semel_live_readers", "Live readers waiting", len(engine.signals))
    yield GaugeMetricFamily(
        "semel_engine_oldest_write_seconds",
        "Age of the oldest write that waits for its commit",
        engine.oldest_write_seconds,
    )


def render(metrics: Metrics, accept: str, namespaces: Collection[str] | None = None) -> tuple[bytes, bytes]:
    """Content type and body: JSON, unless the client names a Prometheus format; with `namespaces` of those alone."""
    registry = metrics.seen_in(namespaces)
    if "text/plain" in accept or "application/openmetrics-text" in accept:
        encoder, content_type = choose_encoder(accept)
        return content_type.encode(), encoder(registry)
    names = named(AUTH_COUNTS, (), metrics.meter.last_minute, None) if metrics.meter is not None else {}
    for surface in metrics.surfaces:
        names |= surface.named()
    return b"application/json", orjson.dumps(names | dict(_flat(registry.collect())), option=orjson.OPT_INDENT_2)


def _flat(families: Iterable[Metric]) -> Iterator[tuple[str, float]]:
    for family in families:
        for sample in family.samples:
            if sample.name.endswith(("_created", "_bucket")):
                continue
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            yield (f"{sample.name}{{{labels}}}" if labels else sample.name), sample.value
