"""Snapshots of partitions: stored once at a position, the newest kept, told to readers of a pruned log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.events.group_member import SNAPSHOTS, Group, ok, refused, submit
from tests.events.wire import Events, Message, fresh, serving
from tests.harness.together import at_once, eventually

KEPT = 3


def put(events: Events, room: str, at: int, body: bytes = b"state", kind: str = "text/plain") -> httpx.Response:
    return events.http.put(f"{SNAPSHOTS}/{room}/{at}", content=body, headers={"Content-Type": kind})


def listed(events: Events, room: str) -> list[int]:
    shown: list[Message] = ok(events.http.get(f"{SNAPSHOTS}/{room}/list"))["snapshots"]
    return [one["committed_id"] for one in shown]


def test_a_snapshot_is_read_as_it_was_stored(events: Events) -> None:
    room = fresh("room")
    [at] = submit(events, room)
    body = bytes(range(256))
    stored = ok(put(events, room, at, body, "application/x-state"), 201)
    assert stored == {"partition": room, "committed_id": at, "replayed": False, "superseded": False}
    answers = [events.http.get(path) for path in (f"{SNAPSHOTS}/{room}", f"{SNAPSHOTS}/{room}/{at}")]
    for answer in answers:
        assert (answer.status_code, answer.content) == (200, body)
        assert answer.headers["Content-Type"] == "application/x-state"
        assert answer.headers["Semel-Committed-Id"] == str(at)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    [one] = ok(events.http.get(f"{SNAPSHOTS}/{room}/list"))["snapshots"]
    assert (one["size"], one["media_type"], one["sha256"]) == (
        256,
        "application/x-state",
        answers[0].headers["ETag"][1:-1],
    )


def test_the_same_snapshot_again_is_a_replay_and_another_a_conflict(events: Events) -> None:
    room = fresh("room")
    [at] = submit(events, room)
    ok(put(events, room, at), 201)
    assert ok(put(events, room, at))["replayed"] is True
    refused(put(events, room, at, b"other"), 409, "snapshot_exists")
    refused(put(events, room, at, kind="text/html"), 409, "snapshot_exists")
    assert events.http.get(f"{SNAPSHOTS}/{room}").content == b"state"


def test_racing_snapshots_of_one_position_store_one(events: Events) -> None:
    room = fresh("room")
    [at] = submit(events, room)
    answers = at_once([lambda body=b"%d" % number: put(events, room, at, body) for number in range(4)])  # type: ignore[misc]
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


def test_the_newest_snapshots_are_kept(events: Events) -> None:
    room = fresh("room")
    ids = submit(events, room, count=5)
    for at in (ids[3], ids[1], ids[2]):
        ok(put(events, room, at), 201)
    assert ok(put(events, room, ids[0]))["superseded"] is True, "all that are kept are newer"
    ok(put(events, room, ids[4]), 201)
    assert listed(events, room) == [ids[4], ids[3], ids[2]]
    found = events.http.get(f"{SNAPSHOTS}/{room}", params={"at_most": ids[3]})
    assert found.headers["Semel-Committed-Id"] == str(ids[3])
    refused(events.http.get(f"{SNAPSHOTS}/{room}", params={"at_most": ids[1]}), 404, "snapshot_not_found")
    refused(events.http.get(f"{SNAPSHOTS}/{room}/{ids[1]}"), 404, "snapshot_not_found")


def test_a_snapshot_above_the_watermark_is_refused(events: Events) -> None:
    room = fresh("room")
    [at] = submit(events, room)
    refused(put(events, room, 2**53 - 1), 400, "bad_request")
    refused(put(events, room, 2**53), 400, "bad_request")
    refused(events.http.put(f"{SNAPSHOTS}/{room}/x"), 404, "not_found")
    refused(put(events, "x" * 129, at), 400, "bad_request")
    refused(put(events, room, at, kind="a/" + "b" * 127), 400, "bad_request")
    assert listed(events, room) == []


def test_a_deleted_snapshot_is_gone(events: Events) -> None:
    room = fresh("room")
    [at] = submit(events, room)
    ok(put(events, room, at), 201)
    url = f"{SNAPSHOTS}/{room}/{at}"
    assert [ok(events.http.delete(url))["deleted"] for _ in range(2)] == [True, False]
    refused(events.http.get(url), 404, "snapshot_not_found")
    ok(put(events, room, at, b"other"), 201)


def test_the_name_of_a_partition_is_normalized(events: Events) -> None:
    name = fresh("caf")
    [at] = submit(events, f"{name}\u00e9")
    ok(events.http.put(f"{SNAPSHOTS}/{name}e%CC%81/{at}", content=b"x"), 201)
    assert events.http.get(f"{SNAPSHOTS}/{name}%C3%A9").content == b"x"


@pytest.fixture
def bounded(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Events]:
    data = tmp_path_factory.mktemp("bounded") / "data"
    with serving(data, EVENTS_SNAPSHOT_BYTES="100", EVENTS_SNAPSHOTS_EACH="2", EVENTS_GROUPS_EACH="2") as served:
        yield served


def test_numbers_and_sizes_are_bounded(bounded: Events) -> None:
    rooms = [fresh("room") for _ in range(3)]
    [at] = submit(bounded, *rooms)
    assert put(bounded, rooms[0], at, b"x" * 101).status_code == 413
    for room in rooms[:2]:
        ok(put(bounded, room, at, b"x" * 100), 201)
    document = refused(put(bounded, rooms[2], at), 429, "limit_reached")
    assert document["details"]["limit"] == 2
    ok(bounded.http.delete(f"{SNAPSHOTS}/{rooms[0]}/{at}"))
    ok(put(bounded, rooms[2], at), 201)
    groups = [Group(bounded, room) for room in rooms[:2]]
    refused(bounded.http.put(f"/v1/events/groups/{fresh('g')}", json={"partitions": ["a"]}), 429, "limit_reached")
    ok(bounded.http.put(groups[0].url, json=groups[0].definition))
    ok(bounded.http.delete(groups[0].url))
    Group(bounded, rooms[2])


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Events]:
    data = tmp_path_factory.mktemp("forgetful") / "data"
    with serving(data, EVENTS_RETENTION_MS="200", SWEEP_INTERVAL_MS="50") as served:
        yield served


def page(events: Events, room: str, since: int = 0) -> Message:
    return ok(events.http.get("/v1/events", params={"partition": room, "since": since}))


def test_a_reader_of_a_pruned_log_is_told_of_a_snapshot(forgetful: Events) -> None:
    room, bare = fresh("room"), fresh("bare")
    [at] = submit(forgetful, room, bare)
    ok(put(forgetful, room, at), 201)
    eventually(lambda: page(forgetful, bare).get("pruned_to_committed_id", 0) >= at, "the event is pruned")
    assert page(forgetful, room)["has_snapshot"] is True
    assert page(forgetful, bare)["has_snapshot"] is False
    assert "has_snapshot" not in page(forgetful, room, at)
    for name, has_snapshot in ((room, True), (bare, False)):
        backwards = ok(forgetful.http.get("/v1/events", params={"partition": name, "last": 10}))
        assert backwards["has_snapshot"] is has_snapshot
    peer = forgetful.peer()
    assert peer.sync([room])["has_snapshot"] is True
    with forgetful.http.stream(
        "GET", "/v1/events", params={"partition": room, "since": 0}, headers={"Accept": "text/event-stream"}
    ) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        told = json.loads(next(lines).removeprefix("data:"))
    assert told["has_snapshot"] is True
    forgetful.close_peers()


def test_a_group_is_told_of_pruning(forgetful: Events) -> None:
    room = fresh("room")
    group = Group(forgetful, room)
    [held] = submit(forgetful, room)
    first = group.fetch()
    assert first.ids in ([held], []), "it may be pruned already"
    later = submit(forgetful, room)[0]
    eventually(lambda: page(forgetful, room).get("pruned_to_committed_id", 0) >= later, "both are pruned")
    if first.lease is not None:
        assert group.fetch("m2").ids == [], "in strict order the partition waits for the lease"
        group.nack(first.lease, held)
    found = []

    def is_told() -> bool:
        submit(forgetful, room)
        found.append(group.fetch())
        return bool(found[-1].ids)

    eventually(is_told, "a later event is delivered in time")
    assert found[-1].body["pruned_to_committed_id"] >= later
    assert group.shown()["pruned_events"] == len(first.ids)
    again = group.fetch()
    assert "pruned_to_committed_id" not in again.body or again.body["pruned_to_committed_id"] > later


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Events]:
    data = tmp_path_factory.mktemp("careful") / "data"
    with serving(data, EVENTS_RETENTION_MS="1", SWEEP_INTERVAL_MS="50", EVENTS_PRUNE_TO_SNAPSHOTS="1") as served:
        yield served


def test_retention_may_wait_for_snapshots(careful: Events) -> None:
    left, right = fresh("left"), fresh("right")
    ids = [submit(careful, left)[0], submit(careful, left, right)[0], submit(careful, right)[0]]

    def stored(room: str) -> list[int]:
        return [event["committed_id"] for event in page(careful, room)["events"]]

    ok(put(careful, right, ids[1]), 201)
    ok(put(careful, left, ids[0]), 201)
    eventually(lambda: stored(left) == ids[1:2], "the first is pruned")
    ok(put(careful, left, ids[1]), 201)
    eventually(lambda: stored(left) == [], "the second is pruned")
    assert stored(right) == ids[2:], "there is no snapshot behind it"


@pytest.mark.lasting
def test_a_snapshot_outlives_a_restart(events: Events) -> None:
    room = fresh("room")
    [at] = submit(events, room)
    ok(put(events, room, at), 201)
    events.server.restart()
    assert ok(put(events, room, at))["replayed"] is True
    assert events.http.get(f"{SNAPSHOTS}/{room}").content == b"state"
