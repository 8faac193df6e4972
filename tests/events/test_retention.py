"""Case 07: history may go and the memory of ids may not; on every store, with a short retention."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.events.wire import Events, Peer, fresh, item, serving
from tests.together import eventually

PRUNED = "pruned_to_committed_id"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Events]:
    data = tmp_path_factory.mktemp("retention") / "data"
    with serving(data, EVENTS_RETENTION_MS="1000", SWEEP_INTERVAL_MS="50") as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


def wait_until_empty(peer: Peer, room: str) -> None:
    eventually(lambda: peer.history([room]) == [], "the events are pruned")


def test_case_07_old_events_go_and_the_rest_replays(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    old = [item([room]) for _ in range(3)]
    committed = peer.commit(*old)
    assert [event["id"] for event in peer.history([room])] == [one["id"] for one in old]
    wait_until_empty(peer, room)
    top = peer.watermark()
    assert top >= committed[-1], "the order goes on where it was"
    new = [item([room]) for _ in range(3)]
    later = peer.commit(*new)
    assert later[0] > top
    page = peer.sync([room])
    assert [event["id"] for event in page["events"]] == [one["id"] for one in new]
    assert committed[-1] <= page[PRUNED] < later[0]
    assert committed[-1] <= peer.sync([room], committed[0])[PRUNED] < later[0]
    assert PRUNED not in peer.sync([room], later[0])
    over_http = events.http.get("/v1/events", params={"partition": room, "since": "0"}).json()
    assert committed[-1] <= over_http[PRUNED] < later[0]


def test_case_07_the_memory_of_ids_outlives_the_events(events: Events) -> None:
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
    marker = item([room])
    peer.commit(marker)
    assert [event["id"] for event in reader.broadcasts(1)] == [marker["id"]]


@pytest.mark.lasting
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
