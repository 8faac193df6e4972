"""Metric names of jobs and credentials, for Prometheus and for JSON: one table.

What happens is counted in the meter under a name; a row says what that name is called in JSON, where it means the last
minute, and as a Prometheus counter, where it means everything since the start. The state of the queue is read when
metrics are read. Labels come from closed sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class Count(NamedTuple):
    """A counter: something that happens."""

    name: str
    """In the meter."""
    json: tuple[str, ...]
    """Its names in JSON, for the last minute."""
    series: str
    """Its name for Prometheus, without the final `_total`."""
    label: tuple[str, str] | None = None
    less: str = ""
    """Another name of the meter whose count is part of this one's, and has a sample of its own."""


class Gauge(NamedTuple):
    """A gauge: a current value."""

    name: str
    json: tuple[str, ...]
    series: str


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
    Count("retry_scheduled", ("retry_scheduled_1m", "retry_rate_1m"), "semel_jobs_retries"),
    Count("reaped_leases", ("reaped_leases_1m",), "semel_jobs_leases_reaped"),
    Count("timeouts", ("timeouts_1m",), "semel_jobs_timeouts"),
    Count("offers_lapsed", ("offers_lapsed_1m",), "semel_jobs_offers_lapsed"),
    Count("lease_fenced", ("lease_fenced_1m",), "semel_jobs_lease_fenced"),
    Count("accepted", ("accepted_1m",), "semel_jobs_submitted"),
    Count("completed", ("completed_1m",), "semel_jobs_finished", ("status", "completed")),
    Count("failed", ("failed_1m",), "semel_jobs_finished", ("status", "failed")),
    Count("integrity_verified", ("integrity_verified_1m",), "semel_jobs_integrity", ("outcome", "verified")),
    Count("integrity_missing", ("integrity_missing_1m",), "semel_jobs_integrity", ("outcome", "missing")),
    Count("integrity_fail", ("integrity_fail_1m",), "semel_jobs_integrity", ("outcome", "fail")),
    Count("auth_success_active", ("auth_success_active_1m",), "semel_auth", ("outcome", "active")),
    Count("auth_success_next", ("auth_success_next_1m",), "semel_auth", ("outcome", "next")),
    Count("auth_fail", ("auth_fail_1m",), "semel_auth", ("outcome", "fail"), less="auth_fail_old_token"),
    Count("auth_fail_old_token", ("auth_fail_old_token_1m",), "semel_auth", ("outcome", "retired_token")),
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
"""A repeat that was recognised is one of these, so their sum is taken and not a count of its own."""

SECONDS = (
    ("submit", "semel_jobs_submit_seconds", "Time from a submission to its answer"),
    ("wait", "semel_jobs_wait_seconds", "Time from a job's being ready to its claim"),
    ("run", "semel_jobs_run_seconds", "Time from a claim to its outcome"),
)
"""Histograms: the name for observations, the name of the series, and its help text."""

SECOND_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 3_600.0)

_ABOUT = {
    "semel_jobs_idempotent": "Repeated submissions by what became of the first",
    "semel_jobs_idempotency_collisions": "Submissions under a key of another payload",
    "semel_jobs_idempotency_evicted": "Keys forgotten before their time for lack of room",
    "semel_jobs_idempotency_records": "Keys that are honoured",
    "semel_jobs_refused": "Submissions refused for lack of room",
    "semel_jobs_saturated": "Claims that got nothing because enough jobs are worked on",
    "semel_jobs_retries": "Failed runs after which the job runs again",
    "semel_jobs_leases_reaped": "Leases that ran out",
    "semel_jobs_timeouts": "Runs that took longer than allowed",
    "semel_jobs_offers_lapsed": "Offers that no worker confirmed",
    "semel_jobs_lease_fenced": "Reports under a lease that is over",
    "semel_jobs_submitted": "Jobs accepted",
    "semel_jobs_finished": "Jobs that ended",
    "semel_jobs_integrity": "Results by what came of their proof",
    "semel_jobs_queue_depth": "Jobs that wait for a worker",
    "semel_jobs_scheduled": "Jobs that wait for their time",
    "semel_jobs_inflight": "Jobs that are worked on",
    "semel_jobs_ready": "Jobs that a worker could claim",
    "semel_jobs_dead": "Dead letters",
    "semel_jobs_backpressure": "1 while new jobs are refused",
    "semel_jobs_oldest_ready_seconds": "How long the oldest claimable job has been so",
    "semel_auth": "Credentials by what came of them",
}


def named(last_minute: Callable[[str], int], gauges: Mapping[str, float] | None) -> dict[str, float | None]:
    """The names and values for JSON; a gauge is null when the store could not be read."""
    counts = {one.name: last_minute(one.name) for one in COUNTS}
    found: dict[str, float | None] = {HITS: sum(counts[part] for part in HIT_PARTS)}
    for count in COUNTS:
        found.update((name, counts[count.name]) for name in count.json)
    for gauge in GAUGES:
        value = None if gauges is None else gauges.get(gauge.name, 0)
        found.update((name, value) for name in gauge.json)
    return found


def families(totals: Mapping[str, int], gauges: Mapping[str, float] | None) -> Iterator[Metric]:
    """The series for Prometheus; gauges are left out when the store could not be read."""
    counters: dict[str, CounterMetricFamily] = {}
    for count in COUNTS:
        labels = (count.label[0],) if count.label else None
        family = counters.get(count.series)
        if family is None:
            family = counters[count.series] = CounterMetricFamily(count.series, _ABOUT[count.series], labels=labels)
        value = totals.get(count.name, 0) - totals.get(count.less, 0)
        family.add_metric((count.label[1],) if count.label else (), value)
    yield from counters.values()
    for gauge in GAUGES if gauges is not None else ():
        yield GaugeMetricFamily(gauge.series, _ABOUT[gauge.series], (gauges or {}).get(gauge.name, 0))
