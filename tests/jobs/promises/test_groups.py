"""Groups and children over real sockets: the job that waits is ready once, when the last of its members has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.harness.together import at_once, eventually
from tests.jobs.wire import PATH, Answer, Jobs, Message, fresh

MISSING = "job_01a1e2562b43800080001a497240b442"
"""An id that no job here has."""


def join(jobs: Jobs, queue: str, **fields: Any) -> Answer:
    return jobs.submit("join", {}, queue=f"{queue}-join", join=fields)


def member(jobs: Jobs, queue: str, group: str, **fields: Any) -> Answer:
    return jobs.submit("member", {}, queue=queue, group=group, **fields)


def child(jobs: Jobs, queue: str, parent: Message, name: str, params: Any = None, **fields: Any) -> Answer:
    under = {"job_id": parent["job_id"], "lease_token": parent["lease_token"], "name": name}
    return jobs.submit("child", params or {}, queue=queue, parent=under, **fields)


def pages(jobs: Jobs, job_id: str, limit: int) -> list[Message]:
    found: list[Message] = []
    path = f"{PATH}/{job_id}/members?limit={limit}"
    page = jobs.call("GET", path)
    found += page["members"]
    while page["next"] is not None:
        assert len(page["members"]) == limit
        page = jobs.call("GET", f"{path}&after={page['next']}")
        found += page["members"]
    return found


def test_the_join_runs_once_when_all_members_have_ended_and_reads_their_states(jobs: Jobs, queue: str) -> None:
    first = join(jobs, queue, size=3)
    group = first["job_id"]
    assert first["state"] == "scheduled"
    ids = [member(jobs, queue, group)["job_id"] for _ in range(3)]
    shown = jobs.get(group)
    assert shown["run_at_utc"] is None
    assert shown["join"] == {
        "size": 3,
        "on_failure": "wait",
        "closed": True,
        "members": 3,
        "ended": 0,
        "failed": 0,
        "waits": True,
    }
    assert jobs.get(ids[0])["group"] == group
    taken = jobs.claim(queue, max=3)["jobs"]
    jobs.complete(taken[0])
    jobs.fail(taken[1], retryable=False)
    assert jobs.claim(f"{queue}-join")["jobs"] == []
    jobs.complete(taken[2])
    job = jobs.claim_one(f"{queue}-join")
    assert job["job_id"] == group
    assert jobs.claim(f"{queue}-join")["jobs"] == []
    for limit in (1, 2, 3, 100):
        found = pages(jobs, group, limit)
        assert [(one["job_id"], one["state"], one["reason"]) for one in found] == [
            (taken[0]["job_id"], "completed", None),
            (taken[1]["job_id"], "failed", "permanent"),
            (taken[2]["job_id"], "completed", None),
        ]
    jobs.complete(job, "joined")
    assert jobs.get(group)["join"]["failed"] == 1


@pytest.mark.each_store
def test_members_that_end_at_the_same_time_make_the_join_ready_once(jobs: Jobs, queue: str) -> None:
    group = join(jobs, queue, size=12)["job_id"]
    jobs.batch([{"kind": "m", "queue": queue, "group": group} for _ in range(12)])
    taken = jobs.claim(queue, max=12)["jobs"]
    at_once([partial(jobs.complete, job) for job in taken])
    told = at_once([partial(jobs.claim, f"{queue}-join", worker_id=fresh("w")) for _ in range(6)])
    assert sum(len(answer["jobs"]) for answer in told) == 1


@pytest.mark.each_store
def test_a_long_poll_for_the_join_wakes_with_the_end_of_the_last_member(jobs: Jobs, queue: str) -> None:
    group = join(jobs, queue, size=1)["job_id"]
    member(jobs, queue, group)
    job = jobs.claim_one(queue)
    both: list[Callable[[], Message]] = [
        partial(jobs.claim_one, f"{queue}-join", wait_ms=20_000, worker_id=fresh("w")),
        partial(jobs.complete, job),
    ]
    told = at_once(both)
    assert told[0]["job_id"] == group


def test_a_group_without_a_size_is_closed_by_its_owner(jobs: Jobs, queue: str) -> None:
    group = join(jobs, queue)["job_id"]
    member(jobs, queue, group)
    jobs.complete(jobs.claim_one(queue))
    assert jobs.claim(f"{queue}-join")["jobs"] == []
    for _ in range(2):
        closed = jobs.post(f"{PATH}/{group}/close", {})
        assert (closed["join"]["closed"], closed["join"]["members"]) == (True, 1)
    refused = jobs.submit("member", {}, queue=queue, group=group, expect=409)
    assert (refused["error"], refused["group"]) == ("group_closed", group)
    assert jobs.claim_one(f"{queue}-join")["job_id"] == group


def test_the_first_failure_cancels_the_others_if_that_was_asked_for(jobs: Jobs, queue: str) -> None:
    group = join(jobs, queue, size=20, on_failure="cancel")["job_id"]
    jobs.batch([{"kind": "m", "queue": queue, "group": group} for _ in range(10)])
    first, second = jobs.claim(queue, max=2)["jobs"]
    jobs.fail(first, retryable=False)
    jobs.submit("member", {}, queue=queue, group=group, expect=409)
    eventually(lambda: jobs.get(group)["join"]["ended"] == 9, "the waiting members are cancelled")
    eventually(lambda: jobs.heartbeat(second)["cancel_requested"], "the worker of the other is asked to stop")
    assert jobs.claim(f"{queue}-join")["jobs"] == []
    jobs.fail(second)
    assert jobs.claim_one(f"{queue}-join")["job_id"] == group
    assert jobs.get(group)["join"]["failed"] == 10


def test_a_group_is_deleted_by_cancelling_its_join_with_its_members(jobs: Jobs, queue: str) -> None:
    group = join(jobs, queue)["job_id"]
    ids = [member(jobs, queue, group)["job_id"] for _ in range(3)]
    assert jobs.cancel(group, members=True)["state"] == "failed"
    for job_id in ids:
        eventually(lambda job_id=job_id: jobs.get(job_id)["reason"] == "cancelled", "a member is cancelled")  # type: ignore[misc]


@pytest.mark.each_store
def test_a_child_is_made_once_and_its_parent_waits_for_it(jobs: Jobs, queue: str) -> None:
    top = f"{queue}-parent"
    jobs.submit("parent", {}, queue=top)
    parent = jobs.claim_one(top)
    told = at_once([partial(child, jobs, queue, parent, "a") for _ in range(6)])
    assert len({answer["job_id"] for answer in told}) == 1
    assert [answer["dedup"] for answer in told].count(False) == 1
    second = child(jobs, queue, parent, "b")
    assert jobs.get(second["job_id"])["parent"] == {"job_id": parent["job_id"], "name": "b"}
    assert child(jobs, queue, parent, "a", {"n": 2}, expect=409)["error"] == "IDEMPOTENCY_KEY_COLLISION"
    for _ in range(2):
        waiting = jobs.post(
            f"{PATH}/{parent['job_id']}/defer", {"lease_token": parent["lease_token"], "wait_children": True}
        )
        assert waiting["next_run_utc"] is None
    assert jobs.get(parent["job_id"])["children"] == {"members": 2, "ended": 0, "failed": 0, "waits": True}
    assert child(jobs, queue, parent, "c", expect=409)["error"] == "lease_lost"
    for _ in range(2):
        assert jobs.claim(top)["jobs"] == []
        jobs.complete(jobs.claim_one(queue), "done")
    again = jobs.claim_one(top)
    assert (again["job_id"], again["attempt"]) == (parent["job_id"], 1)
    known = child(jobs, queue, again, "a")
    assert (known["dedup"], known["status"], known["cached_result"]) == (
        True,
        "completed",
        {"ok": True, "result": "done"},
    )
    assert {(one["name"], one["state"]) for one in pages(jobs, parent["job_id"], 1)} == {
        ("a", "completed"),
        ("b", "completed"),
    }


def test_a_join_has_its_key_like_any_job(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    told = [jobs.submit("join", {}, queue=queue, key=key, join={"size": 2}) for _ in range(2)]
    assert told[0]["job_id"] == told[1]["job_id"]
    assert told[1]["dedup"] is True


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"group": 1}, "group"),
        ({"group": "job_x"}, "group"),
        ({"join": 1}, "join"),
        ({"join": {"size": 0}}, "join.size"),
        ({"join": {"size": 10_001}}, "join.size"),
        ({"join": {"on_failure": "panic"}}, "join.on_failure"),
        ({"join": {}, "delay_ms": 1}, "delay_ms"),
        ({"join": {}, "run_at": "2026-01-01T00:00:00Z"}, "run_at"),
        ({"join": {}, "unique": {}}, "unique"),
        ({"group": MISSING, "debounce": {"key": "k", "delay_ms": 1}}, "debounce"),
        ({"group": MISSING, "parent": {}}, "parent"),
        ({"parent": {"lease_token": "x", "name": "n"}}, "parent.job_id"),
        ({"parent": {"job_id": MISSING, "name": "n"}}, "parent.lease_token"),
        ({"parent": {"job_id": MISSING, "lease_token": "x"}}, "parent.name"),
        (
            {"parent": {"job_id": MISSING, "lease_token": "x", "name": "n"}, "idempotency_key": "k"},
            "idempotency_key",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(jobs: Jobs, queue: str, fields: dict[str, Any], field: str) -> None:
    assert jobs.submit("k", {}, queue=queue, expect=400, **fields)["field"] == field


def test_groups_and_parents_that_are_not_there_are_told(jobs: Jobs, queue: str) -> None:
    assert jobs.submit("k", {}, queue=queue, group=MISSING, expect=404)["error"] == "not_found"
    under = {"job_id": MISSING, "lease_token": "0" * 32, "name": "n"}
    assert jobs.submit("k", {}, queue=queue, parent=under, expect=404)["error"] == "not_found"
    alone = jobs.submit("k", {}, queue=queue)["job_id"]
    assert jobs.submit("k", {}, queue=queue, group=alone, expect=404)["error"] == "not_found"
    jobs.post(f"{PATH}/{alone}/close", {}, expect=404)
    assert jobs.call("GET", f"{PATH}/{alone}/members")["members"] == []
    jobs.call("GET", f"{PATH}/{MISSING}/members", expect=404)
