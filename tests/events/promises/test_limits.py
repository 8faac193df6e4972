"""Limits and the settings that move them: message bytes, batches, pages, items in flight, bad messages, slow readers.

They run on SQLite.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.events.handmade import BINARY, CONTINUATION, TEXT, HandMade
from tests.events.wire import VERSION, Ending, Events, Message, Peer, fresh, item, serving
from tests.harness.server import HOST
from tests.harness.together import eventually, in_time, unless_held_up

MESSAGE_BYTES = 4096
BATCH_ITEMS = 3
IN_FLIGHT_ITEMS = 5
BAD_MESSAGES = 100
MODEL_VERSION = 7
SLOW_SECONDS = 0.5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    with serving(
        tmp_path_factory.mktemp("limits") / "data",
        store="sqlite",
        EVENTS_MESSAGE_BYTES=str(MESSAGE_BYTES),
        EVENTS_BATCH_ITEMS=str(BATCH_ITEMS),
        EVENTS_IN_FLIGHT_ITEMS=str(IN_FLIGHT_ITEMS),
        EVENTS_MODEL_VERSION=str(MODEL_VERSION),
        EVENTS_STRICT_TYPES="true",
    ) as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


def canonical(events: Events) -> Peer:
    return events.peer(supported_profiles=["canonical"])


def of(room: str, letters: int = 1) -> Message:
    return item([room], {"type": "event", "payload": "x" * letters})


def heartbeat_of(length: int) -> str:
    """A heartbeat of so many bytes."""
    head = f'{{"type":"heartbeat","msg_id":"m","timestamp":1,"protocol_version":"{VERSION}","payload":{{"pad":"'
    return head + "x" * (length - len(head) - 3) + '"}}'


# -- What is told -----------------------------------------------------------------------------------------------------


def test_connected_tells_the_limits(events: Events) -> None:
    assert events.raw().connect()["limits"] == {
        "max_batch_size": BATCH_ITEMS,
        "sync_limit_min": 1,
        "sync_limit_max": 1000,
        "max_message_bytes": MESSAGE_BYTES,
        "max_in_flight_drafts": IN_FLIGHT_ITEMS,
    }


def test_case_18_the_model_version_is_told_everywhere(events: Events) -> None:
    peer, room = events.raw(), fresh("room")
    assert peer.connect(supported_profiles=["canonical"])["model_version"] == MODEL_VERSION
    peer.commit(of(room), of(room))
    first = peer.sync([room], 0, 1)
    last = peer.sync([room], first["next_since_committed_id"], 1)
    assert [page["model_version"] for page in (first, last)] == [MODEL_VERSION] * 2
    assert events.http.get("/v1/events", params={"partition": room}).json()["model_version"] == MODEL_VERSION


@pytest.mark.parametrize("profile", ["canonical", "compatibility"])
def test_d15_strict_types_are_enforced(events: Events, profile: str) -> None:
    peer, room = events.raw(), fresh("room")
    accepted = peer.connect(supported_profiles=[profile])["capabilities"]["accepted_event_types"]
    assert "note.added" not in accepted
    [result] = peer.submit([item([room], {"type": "note.added"})])
    assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
    assert result["errors"][0]["field"] == "event.type"
    for kind in sorted(set(accepted) - {"init"}):
        peer.commit(item([room], {"type": kind, "payload": {}}))


# -- Message bytes ----------------------------------------------------------------------------------------------------


def test_a_message_of_the_largest_size_is_taken(events: Events) -> None:
    peer = events.peer()
    peer.sent.add("m")
    peer.send_raw(heartbeat_of(MESSAGE_BYTES))
    peer.receive_until("heartbeat_ack")
    whole = heartbeat_of(MESSAGE_BYTES)
    peer.send_raw([whole[:1000], whole[1000:]])
    peer.receive_until("heartbeat_ack")


@pytest.mark.parametrize("length", [MESSAGE_BYTES + 1, 100_000, 1_000_000])
@pytest.mark.parametrize("way", ["whole", "fragments", "binary"])
def test_a_larger_message_is_refused_and_ends_the_connection(events: Events, length: int, way: str) -> None:
    whole, third = heartbeat_of(length).encode(), length // 3
    witness = events.peer()
    with HandMade(events.ports[0]) as by_hand:
        with suppress(OSError):  # the server need not take all of it
            if way == "fragments":
                by_hand.send(whole[:third], TEXT, first_byte=0)
                by_hand.send(whole[third:-5], CONTINUATION, first_byte=0)
                by_hand.send(whole[-5:], CONTINUATION)
            else:
                by_hand.send(whole, TEXT if way == "whole" else BINARY)
        error, close = by_hand.frame(), by_hand.frame()
        assert error is not None
        assert close is not None
        assert json.loads(error.payload)["payload"]["code"] == "bad_request"
        assert close.close_code == 1009
    witness.heartbeat()


def test_bytes_are_counted_and_not_letters(events: Events) -> None:
    peer = events.peer()
    text = heartbeat_of(MESSAGE_BYTES)
    peer.send_raw(text.replace("x", "\u00e9", 1))
    ending = peer.ending()
    assert (ending.error, ending.code) == ("bad_request", 1009)


def test_over_http_a_larger_body_is_a_413(events: Events) -> None:
    body = json.dumps({"events": [of("room", MESSAGE_BYTES)]})
    answer = events.http.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_s10_pages_keep_to_the_byte_budget(events: Events) -> None:
    peer, room = canonical(events), fresh("room")
    drafts = [of(room, letters) for letters in (900, 900, 900, 900, 900, 2_700, 2_700, 10, 10, 900)]
    for draft in drafts:
        peer.commit(draft)
    page = peer.sync([room])
    sizes, seen = [len(page["events"])], list(page["events"])
    while page["has_more"]:
        page = peer.sync([room], page["next_since_committed_id"])
        sizes.append(len(page["events"]))
        seen += page["events"]
        assert len(sizes) <= len(drafts)
        assert sizes[-1] >= 1
        assert sum(len(json.dumps(event)) for event in page["events"]) <= MESSAGE_BYTES
    assert [event["id"] for event in seen] == [draft["id"] for draft in drafts]
    assert len(sizes) > 3
    over_http = events.http.get("/v1/events", params={"partition": room}).json()
    assert (len(over_http["events"]), over_http["has_more"]) == (sizes[0], True)


# -- Counts -----------------------------------------------------------------------------------------------------------


def test_the_batch_size_is_a_setting(events: Events) -> None:
    peer, room = canonical(events), fresh("room")
    refusal = peer.error("submit_events", {"events": [of(room) for _ in range(BATCH_ITEMS + 1)]})
    assert (refusal["code"], refusal["details"]["max_batch_size"]) == ("bad_request", BATCH_ITEMS)
    peer.commit(*(of(room) for _ in range(BATCH_ITEMS)))


def test_items_in_flight_are_held_back_and_not_refused(events: Events) -> None:
    peer, room = canonical(events), fresh("room")
    batches = [[of(room) for _ in range(BATCH_ITEMS)] for _ in range(30)]
    for batch in batches:
        peer.send("submit_events", {"events": batch})
    results = [peer.receive_until("submit_events_result")["payload"]["results"] for _ in batches]
    assert [result["id"] for one in results for result in one] == [one["id"] for batch in batches for one in batch]
    committed = [result["committed_id"] for one in results for result in one]
    assert committed == sorted(set(committed))


def test_many_bad_messages_in_a_row_end_the_connection(events: Events) -> None:
    peer, witness = events.peer(), events.peer()
    for _ in range(3):
        for _ in range(BAD_MESSAGES - 1):
            peer.send_raw("what?")
            assert peer.answer()["payload"]["code"] == "bad_request"
        peer.heartbeat()
    for _ in range(BAD_MESSAGES):
        peer.send_raw(b"\x00")
    ending = peer.ending()
    assert {message["payload"]["code"] for message in ending.messages} == {"bad_request"}
    assert (len(ending.messages), ending.code) == (BAD_MESSAGES, 1008)
    witness.heartbeat()


def test_by_default_a_hundred_are_too_many_and_a_pace_only_slows(tmp_path: Path) -> None:
    with serving(tmp_path / "data", store="sqlite", EVENTS_RATE_MESSAGES="200") as events:
        peer = events.peer()
        for _ in range(99):
            peer.send_raw("[")
        for _ in range(99):
            assert peer.answer()["payload"]["code"] == "bad_request"
        peer.heartbeat()
        for _ in range(250):
            peer.send("heartbeat")
        for _ in range(250):
            peer.receive_until("heartbeat_ack")
        for _ in range(100):
            peer.send_raw("[")
        ending = peer.ending()
        assert (len(ending.messages), ending.code) == (100, 1008)


# -- Slow readers -----------------------------------------------------------------------------------------------------


def test_a_reader_that_takes_nothing_is_cut_off_and_can_resume(tmp_path: Path) -> None:
    in_time(lambda seconds: read_nothing(tmp_path / f"data-{seconds}", seconds), SLOW_SECONDS)


def read_nothing(data: Path, seconds: float) -> None:
    slow_ms = str(round(seconds * 1_000))
    with (
        serving(data, store="sqlite", EVENTS_SLOW_MS=slow_ms, EVENTS_BUFFER_BYTES="65536") as events,
        # Whoever reads all it is sent reads nothing either while its process, or the server, stands still.
        unless_held_up(seconds / 2, partial(events.http.get, "/livez")),
    ):
        writer, fast = events.peer(), events.peer()
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect((HOST, events.ports[0]))
        slow = events.raw("slow", sock=narrow, max_queue=1)
        slow.connect()
        for peer in (fast, slow):
            peer.subscribe("room")
        sent = list[str]()
        for _ in range(12):
            batch = [item(["room"], {"type": "t", "payload": "x" * 100_000}) for _ in range(8)]
            writer.commit(*batch)
            sent += [one["id"] for one in batch]
            assert [event["id"] for event in fast.broadcasts(8)] == [one["id"] for one in batch]
        # It must not begin to read before that.
        eventually(lambda: slow_readers(events) > 0, "the server has noticed")
        fast.expect_nothing()
        ending = slow.ending()
        received = checked(ending, sent)
        cursor = ending.messages[received - 1]["payload"]["committed_id"] if received else 0
        again = events.peer("slow")
        rest = [event["id"] for event in again.history(["room"], cursor)]
        assert sent[:received] + rest == sent


def slow_readers(events: Events) -> int:
    return int(httpx.get(f"{events.server.url}/metrics").json()["semel_events_slow_readers_total"])


def checked(ending: Ending, sent: list[str]) -> int:
    """How many broadcasts came before the end: the first ones, without a gap, and then at most a word of farewell."""
    broadcasts = [message for message in ending.messages if message["type"] == "event_broadcast"]
    assert [message["payload"]["id"] for message in broadcasts] == sent[: len(broadcasts)]
    assert len(broadcasts) < len(sent)
    rest = ending.messages[len(broadcasts) :]
    assert [message["payload"]["code"] for message in rest] in ([], ["server_error"])
    assert ending.code in (1006, 1013)
    return len(broadcasts)
