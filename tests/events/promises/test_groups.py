"""Consumer groups: leases, acknowledgements, redelivery, parked events; on every store, on two nodes in turn."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.events.group_member import GROUPS, Group, ok, refused, submit
from tests.events.wire import Events, Message, fresh, item
from tests.harness.together import at_once, eventually

SHORT_MS = 300
"""A lease that a test waits for."""


def test_members_get_every_event_of_the_partitions_in_order(events: Events) -> None:
    room, other = fresh("room"), fresh("other")
    group = Group(events, room)
    mine = submit(events, room, count=3)
    submit(events, other)
    mine += submit(events, room, other)
    first = group.fetch(batch=2)
    assert (first.ids, first.deliveries) == (mine[:2], [1, 1])
    assert first.body["replayed"] is False
    stored = events.http.get("/v1/events", params={"partition": room}).json()["events"]
    assert [{**one, "deliveries": 1} for one in stored[:2]] == first.body["events"]
    assert group.fetch().ids == [], "strict order: the partition is with the first member"
    assert group.ack(first.lease, *first.ids) == {"acked": 2, "replayed": False, "floor_committed_id": mine[1]}
    second = group.fetch("another")
    assert second.ids == mine[2:]
    group.ack(second.lease, up_to=second.ids[-1])
    assert group.fetch().ids == []
    shown = group.shown()
    assert (shown["delivered"], shown["acked"], shown["pending"], shown["leased"]) == (4, 4, 0, 0)
    assert shown["floor_committed_id"] >= mine[-1]


def test_a_repeated_fetch_has_the_same_events_and_the_same_lease(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=3)
    first = group.fetch("m", "once", batch=2)
    for _ in range(3):
        again = group.fetch("m", "once", batch=2)
        assert (again.lease, again.ids, again.deliveries) == (first.lease, mine[:2], [1, 1])
        assert again.body["replayed"] is True
        assert again.body["events"] == first.body["events"]
    refused(group.post("fetch", member="another", fetch_id="once"), 409, "fetch_conflict")
    group.ack(first.lease, mine[0])
    assert group.fetch("m", "once").ids == [mine[1]], "an acknowledged event does not come again"
    group.ack(first.lease, mine[1])
    over = group.fetch("m", "once")
    assert (over.ids, over.lease, over.body["replayed"]) == ([], None, True)
    assert group.fetch().ids == mine[2:]


def test_fetches_with_one_id_at_once_make_one_lease(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=5)
    fetch_id = fresh("f")
    answers = at_once([lambda: group.fetch("m", fetch_id) for _ in range(4)])
    assert {answer.lease for answer in answers} == {answers[0].lease}
    assert all(answer.ids == mine for answer in answers)
    assert group.shown()["delivered"] == 5


def test_a_repeated_ack_is_a_replay(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=3)
    lease = group.fetch().lease
    for call in ({"committed_ids": mine[:2]}, {"up_to_committed_id": mine[1]}, {"committed_ids": mine[:1]}):
        answer = ok(group.post("ack", lease=lease, **call))
        assert answer["replayed"] is (call != {"committed_ids": mine[:2]})
    assert ok(group.post("ack", lease=lease, committed_ids=mine))["acked"] == 1, "the last one is new"
    assert group.shown()["acked"] == 3


def test_an_ended_lease_is_fenced(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, lease_ms=SHORT_MS)
    mine = submit(events, room, count=2)
    first = group.fetch("slow")
    second = group.fetch("fast", wait_ms=25_000)
    assert (second.ids, second.deliveries) == (mine, [2, 2])
    assert second.lease != first.lease
    late = refused(group.post("ack", lease=first.lease, committed_ids=mine), 409, "lease_ended")
    assert late["details"]["committed_ids"] == mine
    refused(group.post("nack", lease=first.lease, committed_ids=mine), 409, "lease_ended")
    refused(group.post("extend", lease=first.lease), 409, "lease_ended")
    assert group.fetch("slow", wait_ms=0).ids == []


def test_a_lease_of_another_group_or_of_no_group_is_fenced(events: Events) -> None:
    room = fresh("room")
    one, other = Group(events, room), Group(events, room)
    mine = submit(events, room)
    lease = one.fetch().lease
    other.fetch()
    refused(other.post("ack", lease=lease, committed_ids=mine), 409, "lease_ended")
    refused(one.post("ack", lease="A" * 27, committed_ids=mine), 409, "lease_ended")
    refused(one.post("ack", lease="short", committed_ids=mine), 400, "bad_request")
    one.ack(lease, *mine)


def test_an_extended_lease_lasts(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, lease_ms=2_000)
    mine = submit(events, room)
    lease = group.fetch().lease
    assert ok(group.post("extend", lease=lease)) == {"lease_ms": 2_000, "events": 1}
    group.ack(lease, *mine)
    refused(group.post("extend", lease=lease), 409, "lease_ended")


def test_a_nack_redelivers_now_or_later(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=3)
    first = group.fetch()
    # In strict order what stands behind the event goes back with it, and was not tried.
    answer = group.nack(first.lease, mine[1])
    assert (answer["returned"], answer["parked"], answer["replayed"]) == (2, 0, False)
    assert group.nack(first.lease, mine[1])["replayed"] is True
    assert group.fetch().ids == [], "an earlier event is still with the first member"
    group.ack(first.lease, mine[0])
    second = group.fetch()
    assert (second.ids, second.deliveries) == (mine[1:], [2, 1])
    group.nack(second.lease, mine[1], delay_ms=300)
    assert group.fetch().ids == []
    third = group.fetch(wait_ms=20_000)
    assert (third.ids, third.deliveries) == (mine[1:], [3, 1])


def test_strict_order_refuses_an_ack_before_its_predecessor(events: Events) -> None:
    room, other = fresh("room"), fresh("other")
    group = Group(events, room, other)
    mine = [*submit(events, room), *submit(events, other), *submit(events, room)]
    lease = group.fetch().lease
    early = refused(group.post("ack", lease=lease, committed_ids=[mine[2]]), 409, "out_of_order")
    assert early["details"]["committed_id"] == mine[0]
    group.ack(lease, mine[1])
    group.ack(lease, mine[0], mine[2])


def test_strict_order_blocks_a_partition_and_not_the_others(events: Events) -> None:
    left, right = fresh("left"), fresh("right")
    group = Group(events, left, right)
    lefts = submit(events, left, count=2)
    first = group.fetch("one", batch=1)
    assert first.ids == lefts[:1]
    rights = submit(events, right, count=2)
    both = submit(events, left, right)
    rights += submit(events, right)
    second = group.fetch("two")
    assert second.ids == rights[:2], "an event of both waits for the left one, and what is behind it too"
    group.ack(second.lease, *second.ids)
    assert group.fetch("two").ids == []
    group.ack(first.lease, *first.ids)
    assert group.fetch("two").ids == [lefts[1], *both, rights[2]]


def test_unordered_members_get_different_events(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, order="unordered", batch=2)
    mine = submit(events, room, count=5)
    leases = [group.fetch(f"m{number}") for number in range(3)]
    assert [lease.ids for lease in leases] == [mine[:2], mine[2:4], mine[4:]]
    group.ack(leases[1].lease, mine[3])
    assert group.shown()["floor_committed_id"] == mine[0] - 1
    group.nack(leases[0].lease, mine[0])
    again = group.fetch("m4")
    assert (again.ids, again.deliveries) == (mine[:1], [2])
    group.ack(again.lease, mine[0])
    group.ack(leases[0].lease, mine[1])
    assert group.shown()["floor_committed_id"] == mine[2] - 1


def test_racing_members_never_share_an_event(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, order="unordered", batch=3)
    mine = submit(events, room, count=40)
    got: list[int] = []

    def member(name: str) -> None:
        while (lease := group.fetch(name)).ids:
            got.extend(lease.ids)
            group.ack(lease.lease, *lease.ids)

    at_once([lambda name=f"m{number}": member(name) for number in range(4)])  # type: ignore[misc]
    assert sorted(got) == mine
    assert group.shown()["acked"] == 40


def test_an_event_is_parked_after_the_last_delivery(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, max_deliveries=2)
    mine = submit(events, room, count=2)
    for parked_now in (0, 1):
        lease = group.fetch(batch=1).lease
        assert group.nack(lease, mine[0], reason="no stock")["parked"] == parked_now
    [parked] = group.parked()
    assert (parked["committed_id"], parked["deliveries"], parked["reason"]) == (mine[0], 2, "no stock")
    assert parked["event"]["committed_id"] == mine[0]
    after = group.fetch()
    assert after.ids == mine[1:], "a parked event blocks nothing"
    group.ack(after.lease, *after.ids)
    assert group.shown()["floor_committed_id"] >= mine[1]
    assert ok(group.post("parked/replay", committed_ids=mine)) == {"replayed": 1, "left": 0}
    assert ok(group.post("parked/replay", committed_ids=mine)) == {"replayed": 0, "left": 0}
    replayed = group.fetch()
    assert (replayed.ids, replayed.deliveries) == (mine[:1], [1])
    group.nack(replayed.lease, mine[0])
    group.nack(group.fetch().lease, mine[0])
    assert ok(group.post("parked/drop", limit=10)) == {"dropped": 1, "left": 0}
    assert (group.parked(), group.fetch().ids) == ([], [])


def test_an_event_whose_leases_end_is_parked(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, max_deliveries=1, lease_ms=SHORT_MS)
    mine = submit(events, room)
    group.fetch()
    eventually(lambda: not group.fetch().ids and len(group.parked()) == 1, "it is parked")
    [parked] = group.parked()
    assert parked["committed_id"] == mine[0]
    assert "lease" in parked["reason"]


def test_a_full_list_of_parked_events_drops_nothing(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, order="unordered", max_deliveries=1, max_parked=1)
    mine = submit(events, room, count=2)
    first = group.fetch()
    assert group.nack(first.lease, *mine)["parked"] == 1
    again = group.fetch()
    assert (again.ids, again.deliveries) == (mine[1:], [2])


def test_an_event_that_was_parked_before_a_reset_is_parked_again_or_acknowledged(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, max_deliveries=1)
    mine = submit(events, room, count=2)
    for reason in ("no stock", "still none"):
        assert group.nack(group.fetch().lease, *mine, reason=reason)["parked"] == 2
        assert [(one["committed_id"], one["reason"]) for one in group.parked()] == [(one, reason) for one in mine]
        ok(group.post("reset", start="beginning"))
    group.ack(group.fetch().lease, mine[0])
    assert [one["committed_id"] for one in group.parked()] == mine[1:]
    assert group.shown()["parked"] == 1


def test_in_flight_is_bounded(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, order="unordered", max_in_flight=3, batch=2)
    mine = submit(events, room, count=5)
    leases = [group.fetch(), group.fetch(), group.fetch()]
    assert [lease.ids for lease in leases] == [mine[:2], mine[2:3], []]
    group.ack(leases[0].lease, mine[0])
    assert group.fetch().ids == mine[3:4]


def test_a_waiting_fetch_gets_the_next_event(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    with_event: list[Any] = []
    waiting = threading.Thread(target=lambda: with_event.append(group.fetch(wait_ms=25_000)))
    waiting.start()
    mine = submit(events, room)
    waiting.join(60)
    assert [one.ids for one in with_event] == [mine]


def test_a_waiting_fetch_gets_what_an_ack_or_a_nack_frees(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=2)
    first = group.fetch(batch=1)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(group.fetch(wait_ms=25_000, batch=1))) for _ in "ab"]
    for thread in threads:
        thread.start()
    group.ack(first.lease, *first.ids)
    eventually(lambda: len(answers) == 1, "one of them has the second event")
    group.nack(answers[0].lease, mine[1])
    for thread in threads:
        thread.join(60)
    assert [one.ids for one in answers] == [mine[1:], mine[1:]]


STARTS = {"beginning": 0, "now": 2, 1: 1}


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_a_group_begins_where_it_is_told(events: Events, start: str | int) -> None:
    room = fresh("room")
    mine = submit(events, room, count=2)
    where = mine[0] if start == 1 else start
    group = Group(events, room, start=where)
    mine += submit(events, room)
    assert group.fetch().ids == mine[STARTS[start] :]
    assert group.shown()["start"] == where


def test_a_start_above_the_log_is_refused(events: Events) -> None:
    definition = {"partitions": ["a"], "start": 2**53 - 1}
    document = refused(events.http.put(f"{GROUPS}/{fresh('group')}", json=definition), 400, "bad_request")
    assert document["details"]["watermark"] < 2**53 - 1


def test_a_reset_ends_leases_and_goes_back(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=3)
    done = group.fetch(batch=1)
    group.ack(done.lease, *done.ids)
    held = group.fetch(batch=1)
    shown = ok(group.post("reset", start="beginning", reset_id="r1"))
    assert (shown["replayed"], shown["resets"], shown["pending"], shown["floor_committed_id"]) == (False, 1, 0, 0)
    refused(group.post("ack", lease=held.lease, committed_ids=held.ids), 409, "lease_ended")
    first = group.fetch(batch=1)
    assert first.ids == mine[:1]
    again = ok(group.post("reset", start="beginning", reset_id="r1"))
    assert (again["replayed"], again["resets"], again["pending"]) == (True, 1, 1)
    group.ack(first.lease, *first.ids)
    ok(group.post("reset", start=mine[1]))
    assert group.fetch().ids == mine[2:]


def test_a_group_is_created_once(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    again = events.http.put(group.url, json=group.definition)
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    refused(events.http.put(group.url, json=group.definition | {"batch": 7}), 409, "group_exists")
    refused(events.http.put(group.url, json=group.definition | {"partitions": ["x"]}), 409, "group_exists")


def test_a_deleted_group_is_forgotten(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, max_deliveries=1)
    mine = submit(events, room, count=2)
    first = group.fetch(batch=1)
    group.nack(first.lease, *first.ids)
    held = group.fetch("m", "again")
    assert ok(events.http.delete(group.url)) == {"deleted": True}
    assert ok(events.http.delete(group.url)) == {"deleted": False}
    refused(events.http.get(group.url), 404, "group_not_found")
    refused(group.post("fetch", member="m", fetch_id="f"), 404, "group_not_found")
    refused(group.post("ack", lease=held.lease, committed_ids=mine), 404, "group_not_found")
    new = Group(events, room, name=group.name)
    assert new.parked() == []
    assert new.fetch("m", "again").ids == mine
    refused(new.post("ack", lease=held.lease, committed_ids=mine[1:]), 409, "lease_ended")


def test_groups_are_listed_in_pages(events: Events) -> None:
    prefix = fresh("list")
    names = [f"{prefix}-{number}" for number in range(5)]
    for name in names:
        Group(events, "a", name=name)
    found: list[str] = []
    after, has_more = prefix, True
    while has_more and (not found or found[-1] < names[-1]):
        page = ok(events.http.get(GROUPS, params={"after": after, "limit": 2}))
        found += [one["group"] for one in page["groups"]]
        after, has_more = page["next_after"], page["has_more"]
    assert [name for name in found if name.startswith(prefix)] == names


def test_parked_events_are_listed_in_pages(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, max_deliveries=1)
    mine = submit(events, room, count=5)
    group.nack(group.fetch().lease, *mine)
    found, after, has_more = [], 0, True
    while has_more:
        page = ok(events.http.get(f"{group.url}/parked", params={"after": after, "limit": 2}))
        found += [one["committed_id"] for one in page["parked"]]
        after, has_more = page["next_after"], page["has_more"]
    assert found == mine


WRONG: dict[str, tuple[str, Message]] = {
    "fetch without a member": ("fetch", {"fetch_id": "f"}),
    "fetch without an id": ("fetch", {"member": "m"}),
    "empty member": ("fetch", {"member": "", "fetch_id": "f"}),
    "long fetch id": ("fetch", {"member": "m", "fetch_id": "f" * 129}),
    "batch of none": ("fetch", {"member": "m", "fetch_id": "f", "batch": 0}),
    "batch too large": ("fetch", {"member": "m", "fetch_id": "f", "batch": 101}),
    "wait too long": ("fetch", {"member": "m", "fetch_id": "f", "wait_ms": 30_001}),
    "unknown member of the body": ("fetch", {"member": "m", "fetch_id": "f", "wait": 1}),
    "ack without a lease": ("ack", {"committed_ids": [1]}),
    "ack of nothing": ("ack", {"lease": "A" * 27}),
    "ack in two ways": ("ack", {"lease": "A" * 27, "committed_ids": [1], "up_to_committed_id": 1}),
    "ack of too many": ("ack", {"lease": "A" * 27, "committed_ids": list(range(1, 102))}),
    "ack of a text": ("ack", {"lease": "A" * 27, "committed_ids": ["1"]}),
    "ack with a delay": ("ack", {"lease": "A" * 27, "committed_ids": [1], "delay_ms": 1}),
    "nack with a long delay": ("nack", {"lease": "A" * 27, "committed_ids": [1], "delay_ms": 10**9}),
    "nack with a long reason": ("nack", {"lease": "A" * 27, "committed_ids": [1], "reason": "x" * 257}),
    "reset without a start": ("reset", {}),
    "reset to nowhere": ("reset", {"start": "end"}),
    "replay in two ways": ("parked/replay", {"committed_ids": [1], "limit": 1}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_a_400(events: Events, name: str) -> None:
    group = Group(events, fresh("room"))
    call, body = WRONG[name]
    assert refused(group.post(call, **body), 400, "bad_request")["detail"]


WRONG_DEFINITIONS: dict[str, Message] = {
    "no partitions": {},
    "empty list": {"partitions": []},
    "65 partitions": {"partitions": [str(number) for number in range(65)]},
    "unknown order": {"partitions": ["a"], "order": "random"},
    "short lease": {"partitions": ["a"], "lease_ms": 99},
    "too many in flight": {"partitions": ["a"], "max_in_flight": 1_001},
    "too many parked": {"partitions": ["a"], "max_parked": 1_001},
    "negative start": {"partitions": ["a"], "start": -1},
    "unknown member": {"partitions": ["a"], "max_delivery": 1},
}


@pytest.mark.parametrize("name", WRONG_DEFINITIONS)
def test_a_wrong_definition_is_a_400(events: Events, name: str) -> None:
    refused(events.http.put(f"{GROUPS}/{fresh('group')}", json=WRONG_DEFINITIONS[name]), 400, "bad_request")


def test_paths_and_methods(events: Events) -> None:
    group = Group(events, fresh("room"))
    for path in ("/v1/events/", "/v1/events/nothing", f"{GROUPS}/", f"{group.url}/nothing", f"{group.url}/parked/all"):
        refused(events.http.get(path), 404, "not_found")
    answer = events.http.post(group.url)
    refused(answer, 405, "bad_request")
    assert answer.headers["Allow"] == "DELETE, GET, OPTIONS, PUT"
    refused(events.http.put(f"{GROUPS}/{'n' * 129}", json={"partitions": ["a"]}), 400, "bad_request")


def test_a_fetch_answer_keeps_within_the_size_of_a_message(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room, batch=10)
    large = {"type": "t", "payload": "x" * 400_000}
    for _ in range(4):
        events.http.post("/v1/events", json={"events": [item([room], large)]})
    first = group.fetch()
    assert len(first.ids) == 2
    group.ack(first.lease, *first.ids)
    assert len(group.fetch().ids) == 2


@pytest.mark.lasting
def test_a_group_outlives_a_restart(events: Events) -> None:
    room = fresh("room")
    group = Group(events, room)
    mine = submit(events, room, count=3)
    first = group.fetch("m", "before", batch=2)
    group.ack(first.lease, mine[0])
    events.server.restart()
    assert group.fetch("m", "before").ids == mine[1:2]
    assert group.ack(first.lease, mine[0])["replayed"] is True
    group.ack(first.lease, mine[1])
    assert group.fetch().ids == mine[2:]
