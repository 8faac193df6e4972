"""Clients that flood, stall or never end: one of them must not fill the memory, hold the loop or stay for ever.

Seen from outside, through a real server's memory and connections. No store can matter to that: memory.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from semel.kernel.json import parse
from semel.surfaces.events.limits import MAX_ID_BYTES, MAX_NAMES
from semel.surfaces.events.rules import partitions
from tests.events.handmade import CLOSE, CONTINUATION, PING, HandMade
from tests.events.wire import PATIENCE_SECONDS, VERSION, Events, fresh, item, serving
from tests.harness.server import RunningServer
from tests.harness.together import eventually

SPARE_BYTES = 64 * 1024 * 1024
"""What a server may grow by; each of these floods once made it grow by several hundred megabytes."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    folder = tmp_path_factory.mktemp("floods") / "data"
    with serving(folder, store="memory", EVENTS_SLOW_MS="60000") as events:
        yield events


@pytest.fixture
def tired(tmp_path: Path) -> Iterator[Events]:
    """A server that soon has enough of strangers."""
    with serving(tmp_path / "data", store="memory", EVENTS_IDLE_MS="2000") as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


def resident_bytes(events: Events) -> int:
    assert isinstance(events.server, RunningServer)
    for line in Path(f"/proc/{events.server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no resident set in the status of the process")


def message(kind: str, payload: object) -> bytes:
    envelope = {"type": kind, "msg_id": "m", "timestamp": 1, "protocol_version": VERSION, "payload": payload}
    return json.dumps(envelope).encode()


def connected(events: Events, client_id: str) -> HandMade:
    socket = HandMade(events.server.port)
    socket.send(message("connect", {"token": "t", "client_id": client_id}))
    answer = socket.frame()
    assert answer is not None
    assert json.loads(answer.payload)["type"] == "connected"
    return socket


def is_alive(events: Events) -> bool:
    return httpx.get(f"{events.server.url}/livez", timeout=PATIENCE_SECONDS).status_code == 200


def test_requests_of_one_who_does_not_read_wait(events: Events) -> None:
    room = fresh("room")
    writer = events.peer()
    for _ in range(3):
        writer.commit(*(item([room], {"type": "t", "payload": "x" * 3_000}) for _ in range(100)))
    before = resident_bytes(events)
    with connected(events, fresh("greedy")) as greedy:
        for _ in range(1_200):
            greedy.send(message("sync", {"partitions": [room], "since_committed_id": 0, "limit": 1000}))
        time.sleep(2)
        assert is_alive(events)
        assert resident_bytes(events) - before < SPARE_BYTES


@pytest.mark.parametrize("opcode", [PING, CONTINUATION])
def test_tiny_frames_are_neither_hoarded_nor_put_first(events: Events, opcode: int) -> None:
    before = resident_bytes(events)
    with HandMade(events.server.port) as flood:
        raw = flood._socket
        raw.settimeout(1)
        if opcode == CONTINUATION:
            flood.send(b"[", first_byte=0)
        first = 0x80 if opcode == PING else 0x00
        chunk = bytes([first | opcode, 0x80 | 100, 0, 0, 0, 0]) + b" " * 100
        end = time.monotonic() + 1.5
        with suppress(OSError):
            while time.monotonic() < end:
                raw.sendall(chunk * 1_000)
        assert is_alive(events)
        assert resident_bytes(events) - before < SPARE_BYTES


def test_those_who_end_without_reading_are_cut_off(tmp_path: Path) -> None:
    """With a close frame or without; on a server of their own, where nobody else's end can be taken for theirs."""
    room = fresh("room")
    with serving(tmp_path / "data", store="memory", EVENTS_SLOW_MS="200") as events:
        writer = events.peer()
        writer.commit(*(item([room], {"type": "t", "payload": "x" * 8_000}) for _ in range(100)))
        writer.close()
        with connected(events, fresh("gone")) as closing, connected(events, fresh("gone")) as half_closing:
            for gone in (closing, half_closing):
                for _ in range(20):
                    gone.send(message("sync", {"partitions": [room], "since_committed_id": 0, "limit": 1000}))
            time.sleep(0.1)
            # The server may have ended them already: they have not read for so long.
            with suppress(OSError):
                closing.send(b"\x03\xe8", CLOSE)
            with suppress(OSError):
                half_closing._socket.shutdown(socket.SHUT_WR)
            eventually(lambda: connections(events) == (0, 1), "they are cut off")


def connections(events: Events) -> tuple[int, int]:
    """Those of events, and all that there are, with the one that asks."""
    metrics = httpx.get(f"{events.server.url}/metrics").json()
    return int(metrics["semel_events_connections"]), int(metrics["semel_http_connections"])


def test_one_who_never_says_who_it_is_does_not_stay(tired: Events) -> None:
    """Whatever else it sends: signs of life are for those who have connected."""
    with HandMade(tired.server.port) as stranger:
        ended = None
        for _ in range(40):
            with suppress(OSError):
                stranger.send(message("heartbeat", {}))
            frame = stranger.frame()
            if frame is None or frame.opcode == CLOSE:
                ended = frame
                break
            time.sleep(0.25)
        assert ended is not None
        assert ended.close_code == 1001


def test_a_stranger_s_message_may_not_be_large(events: Events) -> None:
    with HandMade(events.server.port) as stranger:
        stranger.send(message("connect", {"token": "t" * 200_000, "client_id": "c"}))
        said = stranger.frame()
        assert said is not None
        assert json.loads(said.payload)["payload"]["code"] == "bad_request"
        end = stranger.close_frame()
        assert end is not None
        assert end.close_code == 1009


def test_an_answer_is_not_a_hundred_times_its_request(events: Events) -> None:
    peer = events.camel_2(fresh("project"))
    items = [peer.draft() | {"id": "x" * 500_000}, *(peer.draft() for _ in range(99))]
    results = peer.ask("submit_events", {"events": items})["payload"]["results"]
    assert [one["status"] for one in results] == ["rejected", *["not_processed"] * 99]
    assert all(len(one["blockedById"]) <= MAX_ID_BYTES for one in results[1:])


def test_what_is_ignored_is_json_all_the_same(events: Events) -> None:
    peer = events.peer()
    peer.sent.add("m")
    draft = item([fresh("room")])
    text = message("submit_events", {"events": [draft]}).decode()
    for broken in ("[" * 80 + "no JSON {" + "]" * 80, "1e400"):
        peer.send_raw(text.replace('"payload":', f'"other": {broken}, "payload":', 1))
        assert peer.receive()["payload"]["code"] == "bad_request"
    assert peer.submit([draft])[0]["status"] == "committed"


def test_large_lists_of_names_are_not_remembered() -> None:
    before = partitions._remembered.cache_info().currsize
    assert partitions.checked(("a",) * (MAX_NAMES + 1)).names == ("a",)
    assert partitions.checked(("a" * 128,) * MAX_NAMES).names == ("a" * 128,)
    assert partitions._remembered.cache_info().currsize == before


def test_a_string_without_an_end_is_looked_at_once() -> None:
    """From each later quote again would be the square of its length, and that stopped the whole server."""
    text = "[" * 70 + '"' + '\\"[' * 10_000
    assert sum(1 for _ in parse._STRUCTURE.finditer(text)) == 71
