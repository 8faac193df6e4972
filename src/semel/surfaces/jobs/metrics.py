"""Metrics of jobs and of credentials, under their names in both forms of `/metrics`: one table.

The meter counts events under a name. A row of the table has the name in JSON, where the value covers the last minute,
and the name as a Prometheus counter, where the value covers the time since the start. Gauges are read when a client
asks for them. Labels come from closed sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from prometheus_client.core import Metric

from semel.engine.contract import EngineError
from semel.kernel.verdict import Verdict
from semel.server.ops.meter import Meter
from semel.server.ops.metric_table import Count, Gauge, PlainHistogram, families, named
from semel.server.ops.store_metrics import MEASURE_SECONDS

COUNTS = (
    Count(
        "idempotent_in_progress",
        ("idempotent_in_progress_1m",),
        "semel_jobs_idempotent",
        ("outcome", "in_progress"),
        less="idempotent_revived",
    ),
    Count("idempotent_completed", ("idempotent_completed_1m",), "semel_jobs_idempotent", ("outcome", "completed")),
    Count("idempotent_failed", ("idempotent_failed_1m",), "semel_jobs_idempotent", ("outcome", "failed")),
    Count("idempotent_revived", (), "semel_jobs_idempotent", ("outcome", "revived")),
    Count("idempotent_collisions", ("idempotent_collisions_1m",), "semel_jobs_idempotency_collisions"),
    Count("idempotency_evicted", ("idempotency_evicted_1m",), "semel_jobs_idempotency_evicted"),
    Count("queue_drop", ("queue_drop_1m",), "semel_jobs_refused", ("reason", "backpressure")),
    Count("idempotency_store_full", (), "semel_jobs_refused", ("reason", "idempotency_store_full")),
    Count("inflight_saturated", ("inflight_saturated_1m",), "semel_jobs_saturated"),
    Count("rate_limited", ("rate_limited_1m",), "semel_jobs_rate_limited"),
    Count("retry_scheduled", ("retry_scheduled_1m", "retry_rate_1m"), "semel_jobs_retries"),
    Count("reaped_leases", ("reaped_leases_1m",), "semel_jobs_leases_reaped"),
    Count("timeouts", ("timeouts_1m",), "semel_jobs_timeouts"),
    Count("offers_lapsed", ("offers_lapsed_1m",), "semel_jobs_offers_lapsed"),
    Count("lease_fenced", ("lease_fenced_1m",), "semel_jobs_lease_fenced"),
    Count("accepted", ("accepted_1m",), "semel_jobs_submitted"),
    Count("unique", ("unique_1m",), "semel_jobs_joined", ("reason", "unique")),
    Count("debounced", ("debounced_1m",), "semel_jobs_joined", ("reason", "debounce")),
    Count("completed", ("completed_1m",), "semel_jobs_finished", ("status", "completed")),
    Count("failed", ("failed_1m",), "semel_jobs_finished", ("status", "failed")),
    Count("integrity_verified", ("integrity_verified_1m",), "semel_jobs_integrity", ("outcome", "verified")),
    Count("integrity_missing", ("integrity_missing_1m",), "semel_jobs_integrity", ("outcome", "missing")),
    Count("integrity_fail", ("integrity_fail_1m",), "semel_jobs_integrity", ("outcome", "fail")),
)

GAUGES = (
    Gauge("idempotency_store_size", ("idempotency_store_size",), "semel_jobs_idempotency_records"),
    Gauge("queue_depth", ("queue_depth",), "semel_jobs_queue_depth"),
    Gauge("scheduled", ("scheduled_jobs",), "semel_jobs_scheduled"),
    Gauge("inflight", ("inflight", "inflight_jobs"), "semel_jobs_inflight"),
    Gauge("ready_to_dispatch", ("ready_to_dispatch",), "semel_jobs_ready"),
    Gauge("dlq_size", ("dlq_size",), "semel_jobs_dead"),
    Gauge("backpressure_active", ("backpressure_active",), "semel_jobs_backpressure"),
    Gauge("oldest_ready_age_sec", ("oldest_ready_age_sec",), "semel_jobs_oldest_ready_seconds"),
)

HITS = "idempotent_hits_1m"
HIT_PARTS = ("idempotent_in_progress", "idempotent_completed", "idempotent_failed")
"""The outcomes of a repeated submission that was recognised; their sum is reported, so there is no separate counter."""

SECONDS = (
    ("submit", "semel_jobs_submit_seconds", "Time from a submission to its answer"),
    ("wait", "semel_jobs_wait_seconds", "Time from when a job was ready to its claim"),
    ("run", "semel_jobs_run_seconds", "Time from a claim to its outcome"),
)
"""Histograms: the name for observations, the name of the series, and its help text."""

SECOND_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 3_600.0)

_ABOUT = {
    "semel_jobs_idempotent": "Repeated submissions by the state of the first",
    "semel_jobs_idempotency_collisions": "Submissions with another payload under a used key",
    "semel_jobs_idempotency_evicted": "Keys evicted before their expiry for lack of space",
    "semel_jobs_idempotency_records": "Keys that are kept",
    "semel_jobs_refused": "Submissions refused because a limit was reached",
    "semel_jobs_saturated": "Claims refused at the limit on running jobs",
    "semel_jobs_rate_limited": "Claims that found jobs only in queues at their rate limit",
    "semel_jobs_retries": "Failed runs after which the job runs again",
    "semel_jobs_leases_reaped": "Leases that expired",
    "semel_jobs_timeouts": "Runs that took longer than allowed",
    "semel_jobs_offers_lapsed": "Offers that no worker confirmed",
    "semel_jobs_lease_fenced": "Reports under an ended lease",
    "semel_jobs_submitted": "Jobs accepted",
    "semel_jobs_joined": "Submissions for which the job of an earlier one stands",
    "semel_jobs_finished": "Jobs that ended",
    "semel_jobs_integrity": "Results by the outcome of their integrity check",
    "semel_jobs_queue_depth": "Jobs that wait for a worker",
    "semel_jobs_scheduled": "Jobs that wait for their time",
    "semel_jobs_inflight": "Jobs that are running",
    "semel_jobs_ready": "Jobs that a worker could claim",
    "semel_jobs_dead": "Dead letters",
    "semel_jobs_backpressure": "1 while new jobs are refused",
    "semel_jobs_oldest_ready_seconds": "Age of the oldest job that a worker could claim",
}


class JobsMetrics:
    """The metrics of jobs."""

    surface = "jobs"

    def __init__(self, meter: Meter, gauges: Callable[[], Awaitable[Mapping[str, float]]]) -> None:
        """`gauges` reads the state of the queue."""
        self._meter = meter
        self._read = gauges
        self._gauges: Mapping[str, float] | None = {}
        """As last read; None if the store could not be read."""
        self.seconds = {name: PlainHistogram(series, about, SECOND_BUCKETS) for name, series, about in SECONDS}

    async def measure(self) -> None:
        """Read the state of the queue."""
        try:
            async with asyncio.timeout(MEASURE_SECONDS):
                self._gauges = await self._read()
        except (EngineError, TimeoutError):
            self._gauges = None  # the counters must stay visible while the store is unreachable

    @property
    def replays(self) -> int:
        """Submissions that got the job of an earlier one; not those that started a failed job again."""
        totals = self._meter.totals
        return sum(totals.get(part, 0) for part in HIT_PARTS) - totals.get("idempotent_revived", 0)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Submissions by verdict."""
        totals = self._meter.totals
        refused = totals.get("queue_drop", 0) + totals.get("idempotency_store_full", 0)
        return {
            Verdict.FRESH: totals.get("accepted", 0),
            Verdict.REPLAY: self.replays,
            Verdict.MISMATCH: totals.get("idempotent_collisions", 0),
            Verdict.REFUSED: refused,
        }

    def collect(self) -> Iterator[Metric]:
        """The series for Prometheus."""
        yield from families(COUNTS, GAUGES, _ABOUT, self._meter.totals, self._gauges)
        for histogram in self.seconds.values():
            yield histogram.family()

    def named(self) -> dict[str, float | None]:
        """The names and values for JSON."""
        found = named(COUNTS, GAUGES, self._meter.last_minute, self._gauges)
        return {HITS: sum(self._meter.last_minute(part) for part in HIT_PARTS), **found}
