"""The acceptance cases 15 to 23, on each lasting store; over PostgreSQL the peers of one test sit on different nodes.

Case 20, death under load, has a harness of its own. Idle timeouts (17) and expired tokens (18) need settings and are
tested under their numbers in `test_connection` and `test_access`.
"""

from __future__ import annotations

import signal
import socket
from functools import partial
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import WebSocketException

from tests.events.wire import PATIENCE_SECONDS, Events, Message, Peer, fresh, item, serving
from tests.harness.nodes import Nodes
from tests.harness.server import HOST, READY_SECONDS, RunningServer
from tests.harness.together import at_once, eventually

pytestmark = pytest.mark.each_store

LARGE = "x" * 100_000
LARGE_BATCHES = 8
LARGE_ITEMS = 8


def ids_of(events: list[Message]) -> list[str]:
    return [event["id"] for event in events]


def test_case_15_crash_after_persist_before_the_answer(tmp_path: Path, store_kind: str) -> None:
    with serving(tmp_path / "data") as events:
        node = events.server.each[0] if isinstance(events.server, Nodes) else events.server
        peer = events.peer("peer", port=events.ports[-1])
        room, known = fresh("room"), item([fresh("other")])
        [known_id] = peer.commit(known)
        draft, client = item([room]), fresh("client")
        submit_to_the_doomed(events, node, client, draft)
        node.start()
        peer = events.peer("peer", port=events.ports[-1])
        if not peer.history([room]):
            # A chore of the node's own, such as the first of its sweeps, was the commit it died of. That is stored, and
            # so it has none left to die of.
            submit_to_the_doomed(events, node, client, draft)
            node.start()
            peer = events.peer("peer", port=events.ports[-1])
        [survivor] = peer.history([room])
        assert survivor["id"] == draft["id"]
        assert survivor["committed_id"] > known_id
        [retried] = events.peer(client, port=node.port).submit([draft])
        assert retried["status"] == "committed"
        assert retried["committed_id"] == survivor["committed_id"]
        assert retried["status_updated_at"] == survivor["status_updated_at"]
        assert peer.history([room]) == [survivor]
        assert peer.commit(item([room]))[0] > survivor["committed_id"]
        assert peer.submit([known])[0]["committed_id"] == known_id


def submit_to_the_doomed(events: Events, node: RunningServer, client: str, draft: Message) -> None:
    """Start the node anew so that it dies when it has committed once, and before it answers; let it die of a draft."""
    node.stop()
    doomed = node.launch({"SEMEL_CRASH_POINT": "committed", "SEMEL_CRASH_ONE_IN": "1"})

    def is_ready() -> bool:
        try:
            return doomed.poll() is not None or httpx.get(f"{node.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    eventually(is_ready, "the server is ready", READY_SECONDS)
    try:
        writer = events.peer(client, port=node.port)
        writer.send("submit_events", {"events": [draft]})
    except (AssertionError, OSError, WebSocketException):
        pass  # nobody is there any more, or the death below is late
    else:
        ending = writer.ending()
        assert (ending.messages, ending.code) == ([], 1006)
    assert node.wait_for_death(PATIENCE_SECONDS) == -signal.SIGKILL


def test_case_16_offline_batch_with_mixed_outcome(events: Events) -> None:
    room = fresh("room")
    writer, reader = events.peer(), events.peer()
    reader.subscribe(room)
    taken = item([room])
    writer.commit(taken)
    batch = [
        item([room]),
        item([room], {"type": ""}),
        taken | {"event": {"type": "other"}},
        item([room]),
        item([""]),
        item([room]),
    ]
    results = writer.submit(batch)
    statuses = ["committed", "rejected", "rejected", "committed", "rejected", "committed"]
    assert [result["status"] for result in results] == statuses
    committed = [result["committed_id"] for result in results if result["status"] == "committed"]
    assert committed == sorted(set(committed))
    stored = [one["id"] for one, status in zip(batch, statuses, strict=True) if status == "committed"]
    assert ids_of(writer.history([room])) == [taken["id"], *stored]
    assert ids_of(reader.broadcasts(1 + len(stored))) == [taken["id"], *stored]
    retried = writer.submit(batch)
    for first, second in zip(results, retried, strict=True):
        if first["status"] == "committed":
            assert first == second
        else:
            assert (second["status"], second["reason"]) == ("rejected", first["reason"])
    reader.heartbeat()
    reader.expect_nothing()


def test_case_17_heartbeat_and_disconnect(events: Events) -> None:
    room = fresh("room")
    writer, leaver, stayer = events.peer(), events.peer(), events.raw()
    stayer.heartbeat()
    stayer.connect()
    stayer.heartbeat()
    for peer in (leaver, stayer):
        peer.subscribe(room)
    leaver.send("disconnect", {"reason": "app closed"})
    ending = leaver.ending()
    assert (ending.messages, ending.code) == ([], 1000)
    draft = item([room])
    writer.commit(draft)
    assert ids_of(stayer.broadcasts(1)) == [draft["id"]]


def test_case_17_no_broadcast_follows_a_disconnect(events: Events) -> None:
    room = fresh("room")
    writer, leaver = events.peer(), events.peer()
    leaver.subscribe(room)
    leaver.send("disconnect")
    writer.commit(item([room]))
    ending = leaver.ending()
    assert [message for message in ending.messages if message["type"] != "event_broadcast"] == []
    assert ending.code == 1000


def test_case_18_early_unknown_and_wrong_versions(events: Events) -> None:
    peer = events.raw()
    assert peer.error("sync", {"partitions": ["a"], "since_committed_id": 0})["code"] == "bad_request"
    assert peer.error("submit_events", {"events": [item(["a"])]})["code"] == "bad_request"
    peer.connect()
    assert peer.error("teleport")["code"] == "bad_request"
    peer.heartbeat()
    peer.send("heartbeat", protocol_version="2.0")
    ending = peer.ending()
    assert (ending.error, ending.code) == ("protocol_version_unsupported", 1008)
    details = ending.messages[-1]["payload"]["details"]
    assert (details["requested_version"], details["supported_versions"]) == ("2.0", ["1.0"])


def test_case_19_commit_while_a_peer_pages(events: Events) -> None:
    room, side = fresh("room"), fresh("side")
    writer, reader = events.peer(), events.peer()
    old = [item([room]) for _ in range(4)]
    writer.commit(*old)
    page = reader.sync([room], 0, 1, [room, side])
    top, seen, late = page["sync_to_committed_id"], ids_of(page["events"]), list[Message]()
    while page["has_more"]:
        late += [item([room]), item([side]), item([fresh("unheard")])]
        writer.commit(*late[-3:])
        page = reader.sync([room], page["next_since_committed_id"], 1)
        assert page["sync_to_committed_id"] == top
        seen += ids_of(page["events"])
    assert seen == ids_of(old)
    heard = [one["id"] for one in late if "unheard" not in one["partitions"][0]]
    broadcasts = reader.broadcasts(len(heard))
    assert ids_of(broadcasts) == heard
    assert all(broadcast["committed_id"] > top for broadcast in broadcasts)


def test_case_21_the_same_new_id_from_many_connections(events: Events) -> None:
    room = fresh("room")
    reader, writers = events.peer(), [events.peer() for _ in range(8)]
    reader.subscribe(room)
    for _ in range(5):
        draft = item([room])
        answers = at_once([partial(writer.submit, [draft]) for writer in writers])
        assert answers[0][0]["status"] == "committed"
        assert all(answer == answers[0] for answer in answers)
        [broadcast] = reader.broadcasts(1)
        assert (broadcast["id"], broadcast["committed_id"]) == (draft["id"], answers[0][0]["committed_id"])
    assert len(reader.history([room])) == 5
    reader.expect_nothing()


def test_case_21_one_id_with_many_contents_is_committed_once(events: Events) -> None:
    room, taken = fresh("room"), fresh("e")
    writers = [events.peer() for _ in range(6)]
    drafts = [item([room], {"type": "t", "payload": number}, id=taken) for number in range(6)]
    answers = at_once([partial(one.submit, [draft]) for one, draft in zip(writers, drafts, strict=True)])
    statuses = [answer[0]["status"] for answer in answers]
    assert sorted(statuses) == ["committed"] + ["rejected"] * 5
    assert {answer[0].get("reason") for answer in answers} == {None, "validation_failed"}
    [kept] = writers[0].history([room])
    assert kept["event"] == drafts[statuses.index("committed")]["event"]


def test_case_22_a_slow_subscriber_misses_nothing_and_holds_up_nobody(events: Events) -> None:
    room = fresh("room")
    writer, fast = events.peer(), events.peer()
    slow = slow_reader(events)
    for peer in (fast, slow):
        peer.subscribe(room)
    sent: list[str] = []
    for _ in range(LARGE_BATCHES):
        batch = [item([room], {"type": "t", "payload": LARGE}) for _ in range(LARGE_ITEMS)]
        writer.commit(*batch)
        sent += ids_of(batch)
        assert ids_of(fast.broadcasts(LARGE_ITEMS)) == ids_of(batch)
    received = [slow.receive() for _ in sent]
    assert [message["payload"]["id"] for message in received] == sent
    marker = item([room])
    writer.commit(marker)
    assert ids_of(slow.broadcasts(1)) == [marker["id"]]


def slow_reader(events: Events) -> Peer:
    """A connected peer that takes next to nothing off its socket unless it is asked to."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    port = events.server.port
    narrow.connect((HOST, port))
    peer = events.raw(port=port, sock=narrow, max_queue=1)
    peer.connect()
    return peer


def test_a_newer_connection_to_the_same_node_replaces_the_older(events: Events) -> None:
    port, client, room = events.ports[-1], fresh("client"), fresh("room")
    older = events.peer(client, port=port)
    older.subscribe(room)
    newer = events.peer(client, port=port)
    ending = older.ending()
    assert (ending.messages, ending.code) == ([], 4001)
    newer.subscribe(room)
    draft = item([room])
    events.peer().commit(draft)
    assert ids_of(newer.broadcasts(1)) == [draft["id"]]
