"""Schedules: how they are set, told and refused; `test_time` and `test_window` see them fire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.harness.together import at_once
from tests.jobs.wire import ABSENT, PATH, Jobs, Message, fresh

YEARLY = "0 0 1 1 *"


def new_year() -> datetime:
    """The next one."""
    return datetime(datetime.now(UTC).year + 1, 1, 1, tzinfo=UTC)


def test_a_schedule_is_made_changed_told_and_removed(jobs: Jobs) -> None:
    name = fresh("nightly")
    made = jobs.set_schedule(name, cron=YEARLY, kind="report", params={"a": 1}, queue="reports", priority=2)
    assert made.http == 201
    told = jobs.schedule(name)
    expected = {"cron": YEARLY, "kind": "report", "params": {"a": 1}, "queue": "reports", "priority": 2}
    expected |= {"catch_up": "last", "paused": False}
    assert expected.items() <= told.items()
    assert told.get("last_instant") is None
    assert datetime.fromisoformat(told["next_instant"]) == new_year()
    assert name in [one["name"] for one in jobs.call("GET", f"{PATH}/schedules")["schedules"]]

    jobs.set_schedule(name, cron=YEARLY, kind="report", params={"a": 1}, queue="reports", priority=2, expect=200)
    jobs.set_schedule(name, cron="30 12 1 1 *", kind="other", catch_up="none", max_attempts=2, expect=200)
    told = jobs.schedule(name)
    assert (told["kind"], told["params"], told["catch_up"], told["max_attempts"]) == ("other", {}, "none", 2)
    assert datetime.fromisoformat(told["next_instant"]) == new_year() + timedelta(hours=12, minutes=30)

    jobs.call("DELETE", f"{PATH}/schedules/{name}")
    assert jobs.schedule(name, expect=404)["error"] == "not_found"
    assert jobs.call("DELETE", f"{PATH}/schedules/{name}", expect=404)["error"] == "not_found"
    assert jobs.set_schedule(name, cron=YEARLY, kind="report").http == 201


def test_a_paused_schedule_has_no_next_instant_or_keeps_it_but_is_told_as_paused(jobs: Jobs) -> None:
    name = fresh("paused")
    jobs.set_schedule(name, cron="* * * * *", kind="k", paused=True)
    assert jobs.schedule(name)["paused"] is True


@pytest.mark.each_store
def test_one_schedule_made_by_many_is_new_once(jobs: Jobs) -> None:
    put = partial(jobs.set_schedule, fresh("racing"), cron=YEARLY, kind="k", expect=None)
    assert sorted(answer.http for answer in at_once([put] * 8)) == [200] * 7 + [201]


@pytest.mark.parametrize(
    "cron",
    ["*/15 * * * *", "0 9-17 * * 1-5", "5,35 0 1,15 * 0", "0 0 * * 7", "10-50/20 */6 1-7 2-12/2 *", "59 23 31 12 6"],
)
def test_good_crons_are_taken(jobs: Jobs, cron: str) -> None:
    name = fresh("good")
    jobs.set_schedule(name, cron=cron, kind="k", paused=True)
    assert jobs.schedule(name)["cron"] == cron


BAD: list[tuple[str, Any]] = [
    ("cron", ABSENT),
    ("cron", ""),
    ("cron", 5),
    ("cron", "* * * *"),
    ("cron", "* * * * * *"),
    ("cron", "60 * * * *"),
    ("cron", "* 24 * * *"),
    ("cron", "* * 0 * *"),
    ("cron", "* * 32 * *"),
    ("cron", "* * * 13 *"),
    ("cron", "* * * * 8"),
    ("cron", "5-1 * * * *"),
    ("cron", "*/0 * * * *"),
    ("cron", "1,,2 * * * *"),
    ("cron", "@yearly"),
    ("kind", ABSENT),
    ("kind", "with space"),
    ("params", None),
    ("params", []),
    ("queue", ""),
    ("queue", "q" * 65),
    ("priority", 10),
    ("max_attempts", 0),
    ("catch_up", "some"),
    ("paused", "no"),
]


@pytest.mark.parametrize(("field", "value"), BAD, ids=lambda value: ascii(value)[:24])
def test_a_bad_field_of_a_schedule_is_named(jobs: Jobs, field: str, value: Any) -> None:
    name = fresh("bad")
    fields: Message = {"cron": YEARLY, "kind": "k"} | {field: value}
    refused = jobs.set_schedule(name, **fields, expect=400)
    assert (refused["error"], refused["field"]) == ("invalid_request", field)
    assert jobs.schedule(name, expect=404)["error"] == "not_found"


@pytest.mark.parametrize("name", ["with%20space", "a%2Fb", "%C3%BC", "n" * 129])
def test_a_bad_name_of_a_schedule_is_refused(jobs: Jobs, name: str) -> None:
    refused = jobs.set_schedule(name, cron=YEARLY, kind="k", expect=400)
    assert (refused["error"], refused["field"]) == ("invalid_request", "name")
