"""A minute, seen from its beginning and its end: counts that slide away, and a schedule that fires once an instant.

The minute begins with the first test of this folder, on two nodes over PostgreSQL, so that little of it is left here.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.harness.together import eventually
from tests.jobs.minute import KIND, PARAMS, QUEUE, SCHEDULE, Minute
from tests.jobs.wire import Jobs

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def later(minute: Minute) -> Jobs:
    """The server, 61 seconds after what was counted and past a whole minute of the clock."""
    time.sleep(max(0.0, minute.counted_at + 61 - time.monotonic()))
    return minute.jobs


def test_27_ten_hits_are_counted_and_gone_after_a_minute(minute: Minute, later: Jobs) -> None:
    names = ("idempotent_hits_1m", "idempotent_in_progress_1m", "accepted_1m", "completed_1m", "integrity_missing_1m")
    assert [minute.counts[name] for name in names] == [10, 10, 1, 1, 1]
    metrics = later.metrics()
    assert [metrics[name] for name in names[:2]] == [0, 0]
    assert metrics["idempotency_store_size"] >= 1
    totals = later.prometheus()
    assert totals['semel_jobs_idempotent_total{outcome="in_progress"}'] == 10


def test_a_schedule_fires_once_an_instant_on_two_nodes(minute: Minute, later: Jobs) -> None:
    # The next full minute, seen from the instant at which it was set; a minute may have ended around that.
    assert minute.started < minute.first <= minute.is_set + timedelta(minutes=1)
    assert (minute.first.second, minute.first.microsecond) == (0, 0)
    key = f"schedule/{SCHEDULE}/{minute.first:%Y-%m-%dT%H:%M:%SZ}"
    eventually(lambda: later.lookup(idempotency_key=key, expect=None).http == 200, "the job of the first whole minute")
    told = later.schedule(SCHEDULE)
    jobs = later.page(kind=KIND)["jobs"]
    last = datetime.fromisoformat(told["last_instant"])
    assert datetime.fromisoformat(told["next_instant"]) == last + timedelta(minutes=1)
    assert 1 <= len(jobs) <= (datetime.now(UTC) - minute.started) // timedelta(minutes=1) + 1
    found = later.get(later.lookup(idempotency_key=key)["job_id"])
    assert (found["kind"], found["params"], found["queue"]) == (KIND, PARAMS, QUEUE)
