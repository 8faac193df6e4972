"""Hours, days and a clock that is set back: the same data under servers whose clocks are ahead, one life after another.

Each life does what comes due then, and the tests look at what it left. Only SQLite: PostgreSQL has a clock of its own,
and memory forgets between two lives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.harness.server import path_with
from tests.harness.together import eventually
from tests.jobs.wire import SITE, Answer, Jobs, Message, ms_of, serving

HOUR = 3_600
DAY = 24 * HOUR
SCHEDULES = ("all", "last", "none", "paused", "deleted")
FULL = 1_000


@contextmanager
def life(data: Path, seconds_ahead: int) -> Iterator[Jobs]:
    env = path_with(SITE) | {"CLOCK_AHEAD_SECONDS": str(seconds_ahead)}
    settings = {"SEMEL_JOBS_QUEUE_ITEM_TTL_SEC": str(HOUR), "SEMEL_JOBS_MAX_QUEUE_DEPTH": "0"}
    settings["SEMEL_SWEEP_INTERVAL_MS"] = "50"
    with serving(data, store="sqlite", env=env | settings) as jobs:
        yield jobs


class Story:
    """What was seen in each life."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.made: dict[str, Answer] = {}
        self.seen: dict[str, Answer] = {}
        self.ticks: dict[str, list[Message]] = {}
        self.schedules: dict[str, Answer] = {}
        self.started = datetime.now(UTC)
        # Far from now, so that no instant comes due while a life lasts.
        self.first = (self.started + timedelta(minutes=30)).replace(second=0, microsecond=0)
        self._now()
        self._three_hours_later()
        self._the_next_day()
        self._the_clock_is_set_back()
        self._nine_days_later()

    def _now(self) -> None:
        with life(self.data, 0) as jobs:
            for name in ("completed", "deferred", "held", "forgotten"):
                self.made[name] = jobs.submit("k", {"n": 1}, key=name, queue=name)
            jobs.complete(jobs.claim_one("completed"), "result")
            jobs.defer(jobs.claim_one("deferred"), DAY * 1_000)
            self.held = jobs.claim_one("held")
            for name in SCHEDULES:
                catch_up = name if name in ("all", "last", "none") else "all"
                asked: Message = {"cron": f"{self.first.minute} * * * *", "kind": f"tick.{name}"}
                jobs.set_schedule(name, catch_up=catch_up, paused=name == "paused", queue=f"tick-{name}", **asked)
            jobs.call("DELETE", "/v1/jobs/schedules/deleted")

    def _three_hours_later(self) -> None:
        with life(self.data, 3 * HOUR) as jobs:
            self.seen["held"] = jobs.complete(self.held, "over the outage")
            self.seen["forgotten"] = _when(jobs, self.made["forgotten"]["job_id"], "failed")
            self.seen["deferred"] = jobs.get(self.made["deferred"]["job_id"])
            eventually(lambda: len(jobs.page(kind="tick.all")["jobs"]) >= 3, "three missed instants")
            eventually(lambda: len(jobs.page(kind="tick.last")["jobs"]) >= 1, "the last missed instant")
            for name in ("all", "last", "none"):
                eventually(partial(_is_up_to_date, jobs, name, 3 * HOUR), f"the schedule {name} has made up")
            self._look_at_ticks(jobs)
            self.keys = {
                name: [jobs.lookup(idempotency_key=key, expect=None).http for key in self._keys(name)]
                for name in ("all", "last", "none")
            }
            jobs.set_schedule("busy", cron="* * * * *", kind="tick.busy", catch_up="all")

    def _the_next_day(self) -> None:
        with life(self.data, DAY + HOUR) as jobs:
            self.seen["a day later"] = jobs.submit("k", {"n": 2}, key="completed", queue="later")
            self.seen["the old job"] = jobs.get(self.made["completed"]["job_id"])
            self.seen["pinned"] = jobs.submit("k", {"n": 1}, key="deferred")
            eventually(lambda: len(jobs.page(kind="tick.all")["jobs"]) >= 25, "a day of missed instants")
            # With the first of its jobs it is decided what is given up; making up for the others takes a while.
            eventually(lambda: bool(jobs.page(kind="tick.busy")["jobs"]), "the busy schedule has begun")
            self.before = jobs.page(kind="tick.all", limit=1_000)["jobs"]
        # All of its lines are written only when the server has stopped.
        self.skipped = {name: jobs.audit("SCHEDULE_SKIPPED", schedule=name) for name in ("last", "none", "busy")}

    def _the_clock_is_set_back(self) -> None:
        with life(self.data, 0) as jobs:
            self.seen["set back"] = jobs.submit("k", {}, key="set back", queue="later")
            self.seen["still the new one"] = jobs.submit("k", {"n": 2}, key="completed")
            time.sleep(0.3)
            self.after = jobs.page(kind="tick.all", limit=1_000)["jobs"]

    def _nine_days_later(self) -> None:
        with life(self.data, 9 * DAY) as jobs:
            job_id = self.made["completed"]["job_id"]
            eventually(lambda: jobs.get(job_id, expect=None).http == 404, "the old job is gone")
            self.seen["the old result"] = jobs.result(job_id, expect=404)
            self.seen["pinned for ever"] = jobs.submit("k", {"n": 1}, key="deferred")

    def _look_at_ticks(self, jobs: Jobs) -> None:
        time.sleep(0.3)
        for name in SCHEDULES:
            self.ticks[name] = jobs.page(kind=f"tick.{name}")["jobs"]
            self.schedules[name] = jobs.schedule(name, expect=404 if name == "deleted" else 200)

    @property
    def instants(self) -> list[datetime]:
        """Those between the first life and the second."""
        return [self.first + timedelta(hours=number) for number in range(3)]

    def _keys(self, name: str) -> list[str]:
        return [f"schedule/{name}/{one:%Y-%m-%dT%H:%M:%SZ}" for one in self.instants]


def _when(jobs: Jobs, job_id: str, state: str) -> Answer:
    eventually(lambda: bool(jobs.get(job_id)["state"] == state), f"{job_id} is {state}")
    return jobs.get(job_id)


def _is_up_to_date(jobs: Jobs, name: str, seconds_ahead: int) -> bool:
    """Whether no instant of a schedule is due."""
    now = datetime.now(UTC) + timedelta(seconds=seconds_ahead)
    return datetime.fromisoformat(jobs.schedule(name)["next_instant"]) > now


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("time") / "data")


# -- keys and jobs ----------------------------------------------------------------------------------------------------


def test_leases_live_on_after_an_outage(story: Story) -> None:
    assert story.seen["held"]["dedup"] is False


def test_a_job_that_nobody_claimed_in_time_fails_and_a_claimed_one_does_not(story: Story) -> None:
    told = story.seen["forgotten"]
    assert (told["reason"], told["attempt"], told["epoch"]) == ("queue_ttl", 0, 0)
    assert story.seen["deferred"]["state"] == "scheduled"


def test_a_key_is_new_a_day_after_the_end_and_pinned_before_it(story: Story) -> None:
    new = story.seen["a day later"]
    assert (new["status"], new["dedup"]) == ("accepted", False)
    assert new["job_id"] != story.made["completed"]["job_id"]
    assert story.seen["the old job"]["state"] == "completed"
    for when in ("pinned", "pinned for ever"):
        assert (story.seen[when]["status"], story.seen[when]["job_id"]) == (
            "in_progress",
            story.made["deferred"]["job_id"],
        )


def test_a_job_is_kept_for_a_week_after_its_end(story: Story) -> None:
    assert story.seen["the old result"]["error"] == "not_found"


def test_time_never_goes_back(story: Story) -> None:
    """A server whose clock was set back by a day goes on from the last instant that it committed."""
    assert ms_of(story.seen["set back"]["created_utc"]) >= ms_of(story.seen["a day later"]["created_utc"])
    assert story.seen["still the new one"]["job_id"] == story.seen["a day later"]["job_id"]


# -- schedules --------------------------------------------------------------------------------------------------------


def test_all_missed_instants_are_made_up_for_when_asked(story: Story) -> None:
    assert len(story.ticks["all"]) == 3
    assert story.keys["all"] == [200] * 3
    assert all(job["queue"] == "tick-all" for job in story.ticks["all"])


def test_usually_only_the_last_missed_instant_is(story: Story) -> None:
    assert len(story.ticks["last"]) == 1
    assert story.keys["last"] == [404, 404, 200]


def test_none_is_when_none_is_wanted(story: Story) -> None:
    assert story.ticks["none"] == []
    assert story.keys["none"] == [404] * 3


def test_a_schedule_that_rests_or_is_gone_does_nothing(story: Story) -> None:
    assert (story.ticks["paused"], story.ticks["deleted"]) == ([], [])


def test_a_schedule_tells_its_last_and_next_instant(story: Story) -> None:
    for name in ("all", "last"):
        told = story.schedules[name]
        assert datetime.fromisoformat(told["last_instant"]) == story.instants[-1]
        assert datetime.fromisoformat(told["next_instant"]) == story.instants[-1] + timedelta(hours=1)


def test_no_instant_fires_twice(story: Story) -> None:
    """Not after a restart, not when the clock steps back, and not when the keys of old ticks have expired."""
    job_ids = [job["job_id"] for job in story.before]
    assert [job["job_id"] for job in story.after] == job_ids
    assert len(job_ids) == len(set(job_ids)) == 25


def test_at_most_a_thousand_instants_are_made_up_for(story: Story) -> None:
    """Of the 1,320 minutes between two lives; what is given up is told, many instants in one line."""
    given_up = sum(line.get("instants", 1) for line in story.skipped["busy"])
    assert abs(given_up - (22 * 60 - FULL)) <= 2
    assert len(story.skipped["busy"]) <= given_up


def test_every_instant_that_is_given_up_is_told(story: Story) -> None:
    for name, expected in (("last", story.instants[:-1]), ("none", story.instants)):
        told = [datetime.fromisoformat(line["instant"]) for line in story.skipped[name]]
        assert told[: len(expected)] == expected
