"""How connections live and end: heartbeats, silence, disconnect, shutdown, and frames that break the protocol.

All of it is between the server and its sockets, so one store will do: memory where time matters, else SQLite.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from tests.events.handmade import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, HandMade
from tests.events.raw_frames import Ended, Frame, RawSocket, frame
from tests.events.wire import PATIENCE_SECONDS, Events, Message, Peer, fresh, item, serving
from tests.harness.server import RunningServer
from tests.harness.together import eventually, in_time, unless_held_up, unless_late

IDLE_SECONDS = 0.8
PING_SHARE = 5
"""So many times are those pinged who send no heartbeats, in the time that the others may be silent."""
HELD_UP_SHARE = 2 * PING_SHARE
"""Who misses two pings is cut off, so half a pace of them is too long to stand still."""

SUBMITS_BEFORE_THE_END = 20

Tired = Callable[[float], Events]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    """A server that is patient."""
    with serving(tmp_path_factory.mktemp("connection") / "data", store="memory") as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


@pytest.fixture(scope="module")
def tired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tired]:
    """Servers that are tired of so many seconds of silence, each started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def start(seconds: float) -> Events:
            data = tmp_path_factory.mktemp("tired") / "data"
            idle_ms = round(seconds * 1_000)
            served = serving(
                data, store="memory", EVENTS_IDLE_MS=str(idle_ms), EVENTS_PING_MS=str(idle_ms // PING_SHARE)
            )
            return stack.enter_context(served)

        yield start


def text(kind: str, **payload: object) -> bytes:
    return json.dumps(
        {"type": kind, "msg_id": fresh("m"), "timestamp": 1, "protocol_version": "1.0", "payload": payload}
    ).encode()


# -- Silence ----------------------------------------------------------------------------------------------------------


def test_case_17_silence_ends_a_connection_and_any_message_does_not(tired: Tired) -> None:
    """D14: heartbeats, refused messages and requests all count; a subscriber that only listens is silent."""
    in_time(lambda seconds: be_silent_or_not(tired(seconds), seconds), IDLE_SECONDS)


def be_silent_or_not(events: Events, seconds: float) -> None:
    project, spoke_at = fresh("project"), time.monotonic()
    # Pings are sent and answered behind the test's back, so it counts whether both processes ran at all.
    watched = unless_held_up(seconds / HELD_UP_SHARE, partial(events.http.get, "/livez"))
    with watched, unless_late(lambda: spoke_at, seconds):
        silent, idle, subscribed = events.raw(), events.peer(), events.peer()
        subscribed.subscribe(project)
        beating, babbling, working = events.peer(), events.peer(), events.peer()
        camels = [events.camel_2(project), events.camel_1()]
        until = time.monotonic() + 2 * seconds
        while time.monotonic() < until:
            now = time.monotonic()
            beating.heartbeat()
            babbling.send_raw("what?")
            assert babbling.answer()["payload"]["code"] == "bad_request"
            babbling.heartbeat()
            working.commit(item([project]))
            spoke_at = now
            time.sleep(seconds / 8)
        for peer in (silent, idle, subscribed):
            ending = peer.ending()
            assert [message for message in ending.messages if message["type"] != "event_broadcast"] == []
            assert ending.code == 1001
        for peer in (beating, babbling, working):
            peer.heartbeat()
        for camel in camels:
            camel.sync([project])
    events.close_peers()


def camel(events: Events) -> HandMade:
    """A client that answers pings when it is told to."""
    message = {"type": "connect", "protocolVersion": "1.0", "payload": {"token": "t", "clientId": fresh("c")}}
    socket = HandMade(events.ports[0])
    socket.send(json.dumps(message).encode())
    return socket


def test_camel_clients_are_asked_with_pings(tired: Tired) -> None:
    in_time(lambda seconds: answer_pings(tired(seconds), seconds), IDLE_SECONDS)


def answer_pings(events: Events, seconds: float) -> None:
    watched = unless_held_up(seconds / HELD_UP_SHARE, partial(events.http.get, "/livez"))
    with watched, camel(events) as socket:
        connected = socket.frame()
        assert connected is not None
        assert json.loads(connected.payload)["type"] == "connected"
        for _ in range(3):
            ping = socket.frame()
            assert ping is not None
            assert ping.opcode == PING
            socket.send(ping.payload, PONG)


def test_a_camel_client_that_answers_no_ping_is_cut_off(tired: Tired) -> None:
    with camel(tired(IDLE_SECONDS)) as socket:
        socket.close_frame()


def test_pings_of_a_client_are_answered(events: Events) -> None:
    with HandMade(events.ports[0]) as socket:
        socket.send(b"echo", PING)
        frame = socket.frame()
        assert frame is not None
        assert (frame.opcode, frame.payload) == (PONG, b"echo")


def test_no_extension_and_no_subprotocol_is_forced_on_a_client(events: Events) -> None:
    with HandMade(events.ports[0]) as socket:
        assert b"sec-websocket-extensions" not in socket.head.lower()
        assert b"sec-websocket-protocol" not in socket.head.lower()


# -- Ends that a client brings about ----------------------------------------------------------------------------------


def test_disconnect_closes_with_1000_at_once(events: Events) -> None:
    peer = RawSocket(events.ports[0], PATIENCE_SECONDS)
    assert peer.upgrade() == 101
    # In one write: after the answer to the first no client could send the second.
    said = [
        text("connect", token="t", client_id=fresh("c")),
        text("disconnect", reason="app closed"),
        text("heartbeat"),
    ]
    peer.send(b"".join(frame(one) for one in said))
    connected, ending = peer.receive(), peer.receive()
    peer.close()
    assert isinstance(connected, Frame)
    assert json.loads(connected.payload)["type"] == "connected"
    assert ending == Ended(1000)


def test_a_close_frame_is_answered(events: Events) -> None:
    with HandMade(events.ports[0]) as socket:
        socket.send(b"\x03\xe8", CLOSE)
        frame = socket.close_frame()
        assert frame is not None
        assert frame.close_code == 1000


BROKEN_FRAMES = {
    "reserved bit": {"first_byte": 0xC0},
    "not masked": {"masked": False},
    "reserved opcode": {"opcode": 0x3},
    "continuation of nothing": {"opcode": CONTINUATION},
}


@pytest.mark.parametrize("broken", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES.keys())
def test_frames_that_break_the_protocol_end_the_connection(events: Events, broken: dict[str, int]) -> None:
    witness = events.peer()
    with HandMade(events.ports[0]) as socket:
        socket.send(
            text("heartbeat"),
            broken.get("opcode", TEXT),
            first_byte=broken.get("first_byte", 0x80),
            masked=bool(broken.get("masked", True)),
        )
        frame = socket.close_frame()
        assert frame is None or frame.close_code == 1002
    witness.heartbeat()


def test_fragments_and_control_frames_may_be_mixed(events: Events) -> None:
    whole = text("heartbeat")
    with HandMade(events.ports[0]) as socket:
        socket.send(whole[:10], TEXT, first_byte=0)
        socket.send(b"x", PING)
        socket.send(whole[10:], CONTINUATION)
        opcodes = []
        for _ in range(2):
            frame = socket.frame()
            assert frame is not None
            opcodes.append(frame.opcode)
        assert sorted(opcodes) == [TEXT, PONG]


def test_binary_fragments_are_refused_as_one(events: Events) -> None:
    whole = text("heartbeat")
    with HandMade(events.ports[0]) as socket:
        socket.send(whole[:10], BINARY, first_byte=0)
        socket.send(whole[10:], CONTINUATION)
        frame = socket.frame()
        assert frame is not None
        assert json.loads(frame.payload)["payload"]["code"] == "bad_request"


def test_clients_that_vanish_leave_nothing_behind(events: Events) -> None:
    """Their client ids are free again: nobody is replaced, and the server goes on."""
    for _ in range(20):
        with HandMade(events.ports[0]) as socket:
            socket.send(text("connect", token="t", client_id="ghost"))
            socket.send(text("sync", partitions=["p"], since_committed_id=0, subscription_partitions=["p"]))
    peer = events.peer("ghost")
    events.peer().commit(item(["p"]))
    peer.heartbeat()


# -- Shutdown ---------------------------------------------------------------------------------------------------------


def alone(events: Events) -> RunningServer:
    """The one server there is."""
    assert isinstance(events.server, RunningServer)
    return events.server


def test_shutdown_tells_everybody(tmp_path: Path) -> None:
    with serving(tmp_path / "data", store="sqlite") as events:
        peers: list[Peer] = [events.peer(), events.camel_2("project"), events.camel_1(), events.raw()]
        peers[0].subscribe("project")
        peers[1].sync([])
        with events.http.stream(
            "GET", "/v1/events", params={"partition": "a"}, headers={"Accept": "text/event-stream"}
        ) as tail:
            assert alone(events).stop() == 0
            try:
                rest = "".join(tail.iter_text())
            except (httpx.RemoteProtocolError, httpx.ReadError):
                rest = ""
            assert "data:" not in rest
        for peer in peers[:3]:
            ending = peer.ending()
            assert (ending.error, ending.code, len(ending.messages)) == ("server_error", 1001, 1)
        assert peers[3].ending().code == 1001


def test_shutdown_keeps_what_it_has_acknowledged(tmp_path: Path) -> None:
    """Submits are under way when the signal comes: each is answered and durable, or not answered; retries settle it."""
    with serving(tmp_path / "data", store="sqlite") as events:
        writer = events.peer("writer")
        stopping = threading.Thread(target=alone(events).stop)
        sent, answered = acknowledged(writer, stopping)
        stopping.join()
        events.server.start()
        peer = events.peer("writer")
        stored = {event["id"]: event["committed_id"] for event in peer.history(["room"])}
        assert answered.items() <= stored.items()
        for draft, committed_id in zip(sent[-100:], peer.commit(*sent[-100:]), strict=True):
            assert stored.get(draft["id"], committed_id) == committed_id


def acknowledged(writer: Peer, stopping: threading.Thread) -> tuple[list[Message], dict[str, int]]:
    """Submit one by one until the connection ends, and soon have it ended; what was sent, and answered as committed."""
    sent: list[Message] = []
    answered: dict[str, int] = {}
    while True:
        sent.append(item(["room"]))
        try:
            [committed_id] = writer.commit(sent[-1])
        except (AssertionError, ConnectionClosed):
            return sent, answered
        answered[sent[-1]["id"]] = committed_id
        if len(sent) == SUBMITS_BEFORE_THE_END:
            stopping.start()


def test_a_server_that_stops_takes_no_new_connection(tmp_path: Path) -> None:
    with serving(tmp_path / "data", store="sqlite") as events:
        events.peer().heartbeat()
        port = events.ports[0]
        alone(events).stop()

        def refused() -> bool:
            try:
                Peer(port).close()
            except OSError:
                return True
            return False

        eventually(refused, "new connections are refused")
