"""The table of counts: names in both forms, each once, and sums that hold."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from semel.engine.contract import UnavailableError
from semel.server.ops.meter import Meter
from semel.server.ops.metric_table import Count, Gauge, families
from semel.server.ops.metrics import AUTH_COUNTS, Metrics, render
from semel.surfaces.jobs.metrics import COUNTS as JOBS_COUNTS
from semel.surfaces.jobs.metrics import GAUGES, HIT_PARTS, HITS, JobsMetrics

COUNTS = (*JOBS_COUNTS, *AUTH_COUNTS)


def test_names_are_unique() -> None:
    rows: list[Count | Gauge] = [*COUNTS, *GAUGES]
    assert len({one.name for one in rows}) == len(rows)
    names = [name for one in rows for name in one.json]
    assert len(set(names)) == len(names)
    assert all(name.endswith("_1m") for one in COUNTS for name in one.json)
    samples = [(one.series, one.label) for one in COUNTS]
    assert len(set(samples)) == len(samples)
    assert {one.less for one in COUNTS} - {""} <= {one.name for one in COUNTS}


def test_hits_are_the_sum_of_their_parts() -> None:
    meter = Meter(lambda: 0)
    for number, name in enumerate(HIT_PARTS):
        meter.add(name, number + 1)
    assert JobsMetrics(meter, nothing).named()[HITS] == 6


def test_samples_of_a_series_do_not_overlap() -> None:
    totals = Counter({"auth_fail": 5, "auth_fail_old_token": 2, "idempotent_in_progress": 7, "idempotent_revived": 3})
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(COUNTS, GAUGES, defaultdict(str), totals, {"inflight": 4})
        for sample in family.samples
    }
    assert samples["semel_auth_total", "fail"] == 3
    assert samples["semel_auth_total", "retired_token"] == 2
    assert samples["semel_jobs_idempotent_total", "in_progress"] == 4
    assert samples["semel_jobs_idempotent_total", "revived"] == 3
    assert samples["semel_jobs_inflight",] == 4


async def nothing() -> dict[str, float]:
    return {}


def made(gauges: Callable[[], Awaitable[dict[str, float]]]) -> Metrics:
    metrics = Metrics()
    metrics.meter = Meter(lambda: 0)
    metrics.surfaces.append(JobsMetrics(metrics.meter, gauges))
    return metrics


def test_what_is_counted_is_told_in_both_forms() -> None:
    async def two_wait() -> dict[str, float]:
        return {"queue_depth": 2}

    metrics = made(two_wait)
    assert metrics.meter is not None
    metrics.meter.add("retry_scheduled", 3)
    asyncio.run(metrics.measure())
    told = json.loads(render(metrics, "*/*")[1])
    assert (told["retry_scheduled_1m"], told["retry_rate_1m"], told["queue_depth"]) == (3, 3, 2)
    text = render(metrics, "text/plain")[1].decode()
    assert "\nsemel_jobs_retries_total 3.0\n" in text
    assert "\nsemel_jobs_queue_depth 2.0\n" in text


def test_a_store_that_is_away_hides_its_gauges_and_nothing_else() -> None:
    async def away() -> dict[str, float]:
        raise UnavailableError("The store is away.")

    metrics = made(away)
    asyncio.run(metrics.measure())
    told = json.loads(render(metrics, "*/*")[1])
    assert told["queue_depth"] is None
    assert told["accepted_1m"] == 0
    text = render(metrics, "text/plain")[1].decode()
    assert "semel_jobs_queue_depth" not in text
    assert "semel_jobs_submitted_total" in text
