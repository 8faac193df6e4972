"""A conversation means the same however its bytes are cut into reads and its messages into frames.

Frames that break a rule: `tests/events/fuzz`. Clients that do not read, and the end with the server:
`tests/events/promises`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import pytest

from tests.events.raw_frames import CONTINUATION, PING, TEXT, Frame, RawSocket, frame
from tests.harness.server import RunningServer

SECONDS = 30.0
LENGTHS = (0, 1, 5, 125, 126, 127, 1_000, 60_000, 65_535, 65_536, 65_537, 70_000)
"""Of what is in a message: on both sides of the limits of a frame's length, and of what is read as a whole."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("frames") / "data", env={"SEMEL_STORE": "memory:"}) as running:
        yield running


def message(number: int, kind: str, **payload: object) -> bytes:
    head = {"type": kind, "protocol_version": "1.0", "msg_id": f"m-{number}", "timestamp": 0}
    return json.dumps(head | {"payload": payload}).encode()


def conversation(chance: random.Random) -> list[bytes]:
    """A handshake, and messages that are answered in their order."""
    said = [message(0, "connect", token="t", client_id="c")]
    for number in range(1, 20):
        if chance.random() < 0.5:
            said.append(message(number, "heartbeat", more="x" * chance.choice(LENGTHS)))
        else:
            event = {"id": f"e-{number}", "partitions": ["p"], "event": {"type": "t", "text": "x" * number}}
            said.append(message(number, "submit_events", events=[event]))
    return said


def framed(said: list[bytes], chance: random.Random) -> bytes:
    """Messages in one frame each or in several, with pings between."""
    data = b""
    for text in said:
        ends = sorted(chance.sample(range(1, len(text)), chance.choice((0, 0, 1, 3))))
        pieces = [text[begin:end] for begin, end in pairwise([0, *ends, len(text)])]
        for number, piece in enumerate(pieces):
            data += frame(piece, TEXT if not number else CONTINUATION, fin=number == len(pieces) - 1)
            if chance.random() < 0.3:
                data += frame(b"p", PING)
    return data


def answers(server: RunningServer, data: list[bytes], count: int) -> list[tuple[str, str, str]]:
    """To what each answer is, and what it says but for times and positions."""
    with closing(RawSocket(server.port, SECONDS)) as socket:
        assert socket.upgrade() == 101
        for piece in data:
            socket.send(piece)
        found: list[tuple[str, str, str]] = []
        while len(found) < count:
            heard = socket.receive()
            assert isinstance(heard, Frame), heard
            if heard.opcode == TEXT:
                told = json.loads(heard.payload)
                results = told["payload"].get("results", [])
                found.append((told.get("reply_to", ""), told["type"], str([one["status"] for one in results])))
        return found


@pytest.mark.parametrize("seed", range(6))
def test_a_conversation_is_answered_alike_however_it_is_cut(server: RunningServer, seed: int) -> None:
    chance = random.Random(seed)
    said = conversation(chance)
    expected = answers(server, [frame(text) for text in said], len(said))
    assert [reply for reply, _, _ in expected] == [f"m-{number}" for number in range(len(said))]
    for _ in range(5):
        data = framed(said, chance)
        cuts = sorted(chance.sample(range(1, len(data)), chance.choice((0, 1, 9, 60))))
        pieces = [data[begin:end] for begin, end in pairwise([0, *cuts, len(data)])]
        assert answers(server, pieces, len(said)) == expected


def test_the_rest_of_a_frame_is_not_taken_for_a_frame_though_it_looks_like_one(server: RunningServer) -> None:
    """The last two bytes of this letter are the head of a text of five masked bytes."""
    text = message(1, "heartbeat", more="@").replace(b"@", "\u3045".encode() + b"x" * 40)
    data = frame(text, mask=bytes(4))
    place = data.index(b"\xe3\x81\x85") + 1
    with closing(RawSocket(server.port, SECONDS)) as socket:
        assert socket.upgrade() == 101
        socket.send(frame(message(0, "connect", token="t", client_id="c")) + data[:place])
        heard = [socket.receive()]  # so the first piece was read
        socket.send(data[place:])
        heard.append(socket.receive())
    kinds = [json.loads(one.payload)["type"] for one in heard if isinstance(one, Frame)]
    assert kinds == ["connected", "heartbeat_ack"]
