"""Broadcasts: to whom, in which order, how often, and what a slow reader may not do to others."""

from __future__ import annotations

import socket
import struct
from functools import partial

import pytest

from tests.events.wire import Events, Message, Peer, fresh, item
from tests.harness.server import HOST
from tests.harness.together import at_once

pytestmark = pytest.mark.each_store


def ids_of(events: list[Message]) -> list[str]:
    return [event["id"] for event in events]


def test_b1_only_to_those_whose_set_intersects(events: Events) -> None:
    writer, reader, stranger, deaf = (events.peer() for _ in range(4))
    room, other = fresh("room"), fresh("other")
    reader.subscribe(room)
    stranger.subscribe(other)
    first, second = item([room]), item([other])
    writer.commit(first, second)
    assert ids_of(reader.broadcasts(1)) == [first["id"]]
    assert ids_of(stranger.broadcasts(1)) == [second["id"]]
    deaf.heartbeat()
    for peer in (reader, stranger, deaf, writer):
        peer.expect_nothing(0.05)


def test_b1_one_message_however_many_names_match(events: Events) -> None:
    writer, reader = events.peer(), events.peer()
    names = [fresh("n") for _ in range(5)]
    reader.subscribe(*names)
    drafts = [item(names), item(names[:2]), item(names[4:])]
    writer.commit(*drafts)
    assert ids_of(reader.broadcasts(3)) == ids_of(drafts)
    reader.expect_nothing(0.05)


def test_b1_a_submitter_need_not_be_subscribed(events: Events) -> None:
    """D16: submitting outside the subscription is allowed, and brings no broadcast."""
    writer, reader, room = events.peer(), events.peer(), fresh("room")
    writer.subscribe(fresh("elsewhere"))
    reader.subscribe(room)
    draft = item([room])
    writer.commit(draft)
    assert ids_of(reader.broadcasts(1)) == [draft["id"]]
    writer.heartbeat()
    writer.expect_nothing(0.05)


def test_b2_others_of_the_same_client_do_get_it(events: Events) -> None:
    project, client = fresh("project"), fresh("client")
    first, second = events.camel_2(project, client), events.camel_2(project, client)
    for peer in (first, second):
        peer.sync()
    draft, answer = first.draft(), second.draft()
    first.commit(draft)
    assert ids_of(second.broadcasts(1)) == [draft["id"]]
    second.commit(answer)
    assert ids_of(first.broadcasts(1)) == [answer["id"]]


def test_b2_a_client_gets_what_its_other_requests_submitted(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    peer.subscribe(room)
    draft = item([room])
    answer = events.http.post("/v1/events", json={"client_id": peer.client_id, "events": [draft]})
    assert answer.status_code == 200, answer.text
    [pushed] = peer.broadcasts(1)
    assert (pushed["id"], pushed["client_id"]) == (draft["id"], peer.client_id)


def test_b3_ascending_and_complete_with_many_writers(events: Events) -> None:
    rooms = [fresh("room") for _ in range(3)]
    writers, readers = [events.peer() for _ in range(6)], [events.peer() for _ in range(3)]
    for number, reader in enumerate(readers):
        reader.subscribe(*rooms[: number + 1])

    def write(writer: Peer, number: int) -> None:
        for turn in range(15):
            writer.commit(item([rooms[(number + turn) % 3]]), item([rooms[turn % 3], rooms[number % 3]]))

    at_once([partial(write, writer, number) for number, writer in enumerate(writers)])
    for number, reader in enumerate(readers):
        history = writers[0].history(rooms[: number + 1])
        assert reader.broadcasts(len(history)) == history
        reader.expect_nothing(0.05)


def test_b4_retries_and_rejections_are_not_broadcast(events: Events) -> None:
    writer, other, reader, room = events.peer(), events.peer(), events.peer(), fresh("room")
    reader.subscribe(room)
    other.subscribe(room)
    draft = item([room])
    writer.commit(draft)
    assert ids_of(other.broadcasts(1)) == [draft["id"]]  # else its own submission below would be all it hears
    writer.submit([draft])
    other.submit([draft])
    other.submit([draft | {"event": {"type": "x"}}, item([room], {"type": ""})])
    events.http.post("/v1/events", json={"events": [draft]})
    marker = item([room])
    writer.commit(marker)
    assert ids_of(reader.broadcasts(2)) == [draft["id"], marker["id"]]
    assert ids_of(other.broadcasts(1)) == [marker["id"]]


def test_b5_nothing_is_lost_while_a_reader_pages_slowly(events: Events) -> None:
    writer, reader, room = events.peer(), events.peer(), fresh("room")
    old = [item([room]) for _ in range(6)]
    writer.commit(*old)
    page = reader.sync([room], 0, 2, [room])
    seen, late = ids_of(page["events"]), list[str]()
    while page["has_more"]:
        batch = [item([room]) for _ in range(20)]
        writer.commit(*batch)
        late += ids_of(batch)
        page = reader.sync([room], page["next_since_committed_id"], 2)
        seen += ids_of(page["events"])
    assert seen == ids_of(old)
    assert ids_of(reader.broadcasts(len(late))) == late


def test_b6_a_reader_that_vanishes_harms_nobody(events: Events) -> None:
    writer, room = events.peer(), fresh("room")
    readers = [events.peer() for _ in range(4)]
    for reader in readers:
        reader.subscribe(room)
    for reader in readers[:2]:
        plain = reader.socket.socket
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plain.shutdown(socket.SHUT_RD)
        plain.close()
    drafts = [item([room]) for _ in range(10)]
    for draft in drafts:
        writer.commit(draft)
    for reader in readers[2:]:
        assert ids_of(reader.broadcasts(10)) == ids_of(drafts)


def test_b6_a_connection_that_never_upgrades_harms_nobody(events: Events) -> None:
    with socket.create_connection((HOST, events.ports[0])) as half:
        half.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n")
        peer = events.peer(port=events.ports[0])
        peer.commit(item([fresh("room")]))
