"""What is done at the beginning of a run, for tests that look at it a minute later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.jobs.wire import Jobs, serving

SCHEDULE = "every-minute"
KIND, PARAMS, QUEUE = "tick", {"every": "minute"}, "ticks"


class Minute(NamedTuple):
    """Two nodes with a schedule, and what they had counted when."""

    jobs: Jobs
    started: datetime
    """Before the schedule was set."""
    is_set: datetime
    """After that."""
    first: datetime
    """When it is due for the first time, as the server told it."""
    counts: dict[str, float]
    counted_at: float


@contextmanager
def begin_minute(data: Path) -> Iterator[Minute]:
    """One job, ten hits and its end; then a schedule that is due at the next full minute."""
    with serving(data, store="postgres") as jobs:
        for _ in range(11):
            jobs.submit("k", {}, key="counted", queue="counted")
        jobs.complete(jobs.claim_one("counted"), 1)
        counts, counted_at = jobs.metrics(), time.monotonic()
        started = datetime.now(UTC)
        told = jobs.set_schedule(SCHEDULE, cron="* * * * *", kind=KIND, params=PARAMS, queue=QUEUE)
        is_set, first = datetime.now(UTC), datetime.fromisoformat(told["next_instant"])
        yield Minute(jobs, started, is_set, first, counts, counted_at)
