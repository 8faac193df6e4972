"""Case 07: history may go and the memory of ids may not, with a short retention."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.events.wire import Events, Peer, fresh, item, serving
from tests.harness.together import eventually, in_time, unless_late

PRUNED = "pruned_to_committed_id"
RETENTION_SECONDS = 1.0


Forgetful = Callable[[float], Events]


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Forgetful]:
    """Servers that keep history for so many seconds, each started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def start(seconds: float) -> Events:
            data = tmp_path_factory.mktemp("retention") / "data"
            kept_ms = str(round(seconds * 1_000))
            return stack.enter_context(serving(data, EVENTS_RETENTION_MS=kept_ms, SWEEP_INTERVAL_MS="50"))

        yield start


@pytest.fixture
def events(forgetful: Forgetful) -> Iterator[Events]:
    served = forgetful(RETENTION_SECONDS)
    yield served
    served.close_peers()


def wait_until_empty(peer: Peer, room: str) -> None:
    eventually(lambda: peer.history([room]) == [], "the events are pruned")


def test_case_07_old_events_go_and_the_rest_replays(forgetful: Forgetful) -> None:
    in_time(lambda seconds: forget_the_old(forgetful(seconds), seconds), RETENTION_SECONDS)


def forget_the_old(events: Events, seconds: float) -> None:
    peer, room = events.peer(), fresh("room")
    old = [item([room]) for _ in range(3)]
    committed_at = time.monotonic()
    committed = peer.commit(*old)
    with unless_late(lambda: committed_at, seconds):
        assert [event["id"] for event in peer.history([room])] == [one["id"] for one in old]
    wait_until_empty(peer, room)
    top = peer.watermark()
    assert top >= committed[-1], "the order goes on where it was"
    new = [item([room]) for _ in range(3)]
    committed_at = time.monotonic()
    later = peer.commit(*new)
    assert later[0] > top
    with unless_late(lambda: committed_at, seconds):
        page = peer.sync([room])
        assert [event["id"] for event in page["events"]] == [one["id"] for one in new]
        assert committed[-1] <= page[PRUNED] < later[0]
        assert committed[-1] <= peer.sync([room], committed[0])[PRUNED] < later[0]
        assert PRUNED not in peer.sync([room], later[0])
        over_http = events.http.get("/v1/events", params={"partition": room, "since": "0"}).json()
        assert committed[-1] <= over_http[PRUNED] < later[0]
    events.close_peers()


def test_case_07_the_memory_of_ids_outlives_the_events(forgetful: Forgetful) -> None:
    in_time(lambda seconds: remember_ids(forgetful(seconds), seconds), RETENTION_SECONDS)


def remember_ids(events: Events, seconds: float) -> None:
    peer, reader, room = events.peer(), events.peer(), fresh("room")
    draft = item([room])
    [recorded] = peer.submit([draft])
    wait_until_empty(peer, room)
    reader.subscribe(room)
    before = peer.watermark()
    assert peer.submit([draft]) == [recorded]
    assert reader.submit([draft]) == [recorded]
    [conflict] = peer.submit([draft | {"event": {"type": "other"}}])
    assert (conflict["status"], conflict["reason"]) == ("rejected", "validation_failed")
    assert peer.watermark() == before
    assert peer.history([room]) == []
    marker, committed_at = item([room]), time.monotonic()
    # What is pruned before it could be sent is not sent.
    with unless_late(lambda: committed_at, seconds):
        peer.commit(marker)
        assert [event["id"] for event in reader.broadcasts(1)] == [marker["id"]]
    events.close_peers()


@pytest.mark.each_store
def test_case_07_no_id_is_given_twice_after_everything_is_pruned(events: Events) -> None:
    peer, room = events.peer("peer"), fresh("room")
    draft = item([room])
    [recorded] = peer.submit([draft])
    wait_until_empty(peer, room)
    events.close_peers()
    events.server.restart()
    peer = events.peer("peer")
    assert peer.watermark() >= recorded["committed_id"]
    assert peer.submit([draft]) == [recorded]
    assert peer.commit(item([room]))[0] > recorded["committed_id"]
