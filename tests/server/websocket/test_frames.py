"""Frames: messages that arrive whole are cut from the input, and everything else is left to `websockets`."""

from __future__ import annotations

import asyncio
import random
from itertools import accumulate
from typing import Any, cast
from unittest.mock import patch

import pytest
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from semel.server.websocket import transport
from semel.server.websocket.conversation import Conversation
from semel.server.websocket.frames import FrameEnds, WholeMessage, cut_message, frame_of
from semel.server.websocket.handshake import Handshakes
from semel.server.websocket.transport import WHOLE_BYTES, WebSocket
from tests.events.raw_frames import HANDSHAKE
from tests.server.http.test_exchange import Reading

LENGTHS = (0, 1, 5, 125, 126, 127, 1_000, 65_535, 65_536, 70_000)
MOST_BYTES = 80_000


def client_frame(kind: Opcode, body: bytes, *, is_final: bool = True) -> bytes:
    """A masked frame."""
    return Frame(kind, body, is_final).serialize(mask=True)


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("kind", [Opcode.TEXT, Opcode.BINARY, Opcode.PING])
def test_a_frame_of_the_server_is_that_of_websockets(kind: Opcode, size: int) -> None:
    if kind is not Opcode.PING or size <= 125:
        assert frame_of(kind, b"x" * size) == Frame(kind, b"x" * size).serialize(mask=False)


@pytest.mark.parametrize("size", LENGTHS)
def test_a_whole_message_is_cut_and_unmasked(size: int) -> None:
    body = random.Random(size).randbytes(size)
    frame = client_frame(Opcode.TEXT, body)
    assert cut_message(b"abc" + frame + b"d", 3, 70_000) == WholeMessage(body, True, 3 + len(frame))
    assert cut_message(b"\x81\x85\0\0\0\0hello", 0, 5) == WholeMessage(b"hello", True, 11)
    for end in range(min(len(frame), 20)):
        assert cut_message(frame[:end], 0, 70_000) is None
    assert cut_message(frame[:-1], 0, 70_000) is None
    assert size == 0 or cut_message(frame, 0, size - 1) is None


@pytest.mark.parametrize(
    "frame",
    [
        client_frame(Opcode.TEXT, b"part", is_final=False),
        client_frame(Opcode.CONT, b"part"),
        client_frame(Opcode.PING, b"ping"),
        client_frame(Opcode.CLOSE, b"\x03\xe8"),
        b"\xc1" + client_frame(Opcode.TEXT, b"a reserved bit")[1:],
        frame_of(Opcode.TEXT, b"not masked"),
    ],
    ids=["part", "rest", "ping", "close", "reserved bit", "not masked"],
)
def test_other_frames_are_left_to_websockets(frame: bytes) -> None:
    assert cut_message(frame, 0, 1_000) is None


def test_the_end_of_a_frame_is_found_in_pieces_of_any_size() -> None:
    chance = random.Random(3)
    frames = [client_frame(Opcode.BINARY, bytes(chance.choice(LENGTHS))) for _ in range(40)]
    ends = {sum(map(len, frames[: number + 1])) for number in range(len(frames))}
    data, follower, at = b"".join(frames), FrameEnds(), 0
    while at < len(data):
        step = chance.choice((1, 1, 2, 3, 7, 100, 30_000))
        found = follower.follow(data[at : at + step])
        at = min(at + step, len(data))
        assert found == (at in ends)


class Heard(Conversation):
    """Keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bool]] = []
        self.times = 0

    def heard(self) -> None:
        self.times += 1

    def received(self, raw: bytes, is_text: bool) -> None:
        self.messages.append((raw, is_text))

    def too_large(self, most: int) -> None:
        self.messages.append((b"too large", True))

    def lost(self) -> None:
        """Nothing."""

    def take(self) -> bool:
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        raise NotImplementedError

    def ended(self, has_pong: bool) -> None:
        """Nothing."""

    def abandoned(self) -> None:
        """Nothing."""

    def stopping(self) -> None:
        """Nothing."""

    def expired(self) -> None:
        """Nothing."""

    def silent(self) -> None:
        """Nothing."""

    def stalled(self) -> None:
        """Nothing."""


class Listening(WebSocket):
    """A WebSocket whose messages are kept."""

    def begin(self) -> Conversation:
        self.heard = Heard()
        return self.heard


class Pipe(Reading):
    """A transport of a WebSocket."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever unsent."""

    def get_extra_info(self, name: str) -> None:
        """No address."""

    def can_write_eof(self) -> bool:
        """It can."""
        return True

    def write_eof(self) -> None:
        """The server sends no more."""


class AnyHandshake:
    """Takes every client."""

    def request_of(self, message: Any, remote: str) -> Any:
        return message

    def foreign(self, request: Any) -> None:
        return None

    def begun(self, request: Any, conversation: Any) -> None:
        """Not traced."""


def listening() -> tuple[Listening, Pipe]:
    """A connection after its handshake."""
    socket, pipe = Listening(cast(Handshakes, AnyHandshake()), MOST_BYTES, MOST_BYTES, 1), Pipe()
    socket.connection_made(cast(asyncio.Transport, pipe))
    socket.data_received(HANDSHAKE)
    pipe.written.clear()
    return socket, pipe


def traffic(chance: random.Random) -> list[bytes]:
    """Frames of a client, seldom broken."""
    frames: list[bytes] = []
    for _ in range(chance.randrange(1, 12)):
        body = chance.randbytes(chance.choice((0, 3, 50, 130, 3_000, WHOLE_BYTES, WHOLE_BYTES + 1)))
        kind = chance.choice((Opcode.TEXT, Opcode.BINARY))
        choice = chance.random()
        if choice < 0.6:
            frames.append(client_frame(kind, body))
        elif choice < 0.8:
            frames.append(client_frame(kind, body, is_final=False))
            if chance.random() < 0.3:
                frames.append(client_frame(Opcode.PING, b"p"))
            frames.append(client_frame(Opcode.CONT, body[:9], is_final=chance.random() < 0.9))
        elif choice < 0.95:
            frames.append(client_frame(Opcode.PING, body[:100]))
        else:
            frames.append(
                chance.choice(
                    (
                        client_frame(Opcode.CONT, b"alone"),
                        client_frame(Opcode.CLOSE, b"\x03\xe8"),
                        client_frame(kind, bytes(MOST_BYTES + 1)),
                        frame_of(kind, body),
                        b"\xff\xff",
                    )
                )
            )
    return frames


def pieces(chance: random.Random, frames: list[bytes]) -> list[int]:
    """Where the bytes of these frames are cut: at the ends of some frames, or anywhere."""
    ends = list(accumulate(map(len, frames)))[:-1]
    if chance.random() < 0.5:
        return [end for end in ends if chance.random() < 0.7]
    size = sum(map(len, frames))
    return sorted(chance.sample(range(1, size), min(size - 1, chance.choice((0, 0, 1, 2, 9)))))


def outcome(data: bytes, cuts: list[int], *, takes_whole: bool) -> tuple[list[tuple[bytes, bool]], bytes]:
    """The messages and the bytes that are sent for these pieces of a client's input."""
    whole = cut_message if takes_whole else lambda data, at, most: None
    with patch.object(transport, "cut_message", whole):
        socket, pipe = listening()
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            socket.data_received(data[start:end])
        return socket.heard.messages, b"".join(pipe.written)


def test_the_messages_are_those_that_websockets_finds() -> None:
    async def test() -> None:
        chance = random.Random(11)
        found = 0
        for _ in range(400):
            frames = traffic(chance)
            data, cuts = b"".join(frames), pieces(chance, frames)
            fast, slow = (outcome(data, cuts, takes_whole=whole) for whole in (True, False))
            assert fast == slow
            found += len(fast[0])
        assert found > 1_000

    asyncio.run(test())


def test_a_message_that_contains_a_frame_is_one_message_wherever_it_is_cut() -> None:
    async def test() -> None:
        inner = client_frame(Opcode.TEXT, b"inner")
        message = b"before" + inner
        data = b"\x82" + bytes([0x80 | len(message)]) + b"\0\0\0\0" + message  # a mask of zeros shows what it contains
        for cut in range(1, len(data)):
            assert outcome(data, [cut], takes_whole=True)[0] == [(message, False)], cut

    asyncio.run(test())


def test_a_whole_message_does_not_pass_through_websockets() -> None:
    async def test() -> None:
        socket, _ = listening()
        with patch.object(ServerProtocol, "receive_data", side_effect=AssertionError):
            socket.data_received(client_frame(Opcode.TEXT, b"a") + client_frame(Opcode.BINARY, b"b"))
        assert socket.heard.messages == [(b"a", True), (b"b", False)]
        assert socket.heard.times == 1

    asyncio.run(test())
