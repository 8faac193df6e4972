"""The channel between a front and the writer, and the transport that uses it, without a process."""

from __future__ import annotations

import asyncio
import marshal
import socket
from collections.abc import Callable

import pytest

from semel.server.fronts.channel import ABORT, ANSWER, CLOSE, DATA, FORMAT, TAKEN, Channel, Message
from semel.server.fronts.relay_transport import HIGH_BYTES, RelayTransport

MESSAGES: list[Message] = [
    (1, 7, ("127.0.0.1", 80), None, "http", 12),
    (2, 7, 3, "POST", b"/a", b"", [(b"host", b"x"), (b"y", b"\xff\x00")], "1.1", 0, b"x" * 70_000),
    (3, 2**40, True, b"", b"last"),
]


async def pair() -> tuple[Channel, Channel, list[Message], list[str]]:
    """Two channels that are joined, what the second receives, and the ends of both."""
    received: list[Message] = []
    ends: list[str] = []
    one, other = socket.socketpair()
    first = Channel(lambda batch: None, lambda: ends.append("first"))
    second = Channel(received.extend, lambda: ends.append("second"))
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: first, sock=one)
    await loop.create_unix_connection(lambda: second, sock=other)
    return first, second, received, ends


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not check():  # noqa: ASYNC110 - the channel has no event for it
            await asyncio.sleep(0.001)


def test_messages_arrive_in_order_and_the_end_is_told() -> None:
    async def play() -> None:
        first, _, received, ends = await pair()
        for message in MESSAGES * 20:
            first.send(message)
        await until(lambda: len(received) == 60)
        assert received == MESSAGES * 20
        first.send(MESSAGES[0])
        first.close()
        await until(lambda: sorted(ends) == ["first", "second"])
        assert received[-1] == MESSAGES[0]

    asyncio.run(play())


@pytest.mark.parametrize("size", [1, 3, 4, 5, 64 * 1024])
def test_batches_are_read_from_pieces_of_any_size(size: int) -> None:
    async def play() -> None:
        received: list[list[Message]] = []
        channel = Channel(received.append, lambda: None)
        batches = [[message] for message in MESSAGES] + [[], MESSAGES]
        data = b"".join(
            len(one).to_bytes(4, "big") + one for one in (marshal.dumps(batch, FORMAT) for batch in batches)
        )
        for at in range(0, len(data), size):
            channel.data_received(data[at : at + size])
        assert received == batches

    asyncio.run(play())


class Sink:
    """A protocol that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Recorder(Channel):
    """A channel without an other end."""

    def __init__(self) -> None:
        super().__init__(lambda batch: None, lambda: None)
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


def relayed() -> tuple[RelayTransport, Recorder, Sink]:
    channel, sink = Recorder(), Sink()
    transport = RelayTransport(channel, 5, ("127.0.0.1", 1), ("127.0.0.1", 2), "https")
    transport.set_protocol(sink)
    return transport, channel, sink


def test_a_whole_answer_is_one_message() -> None:
    async def play() -> None:
        transport, channel, sink = relayed()
        transport.write(b"head")
        transport.write(b"body")
        transport.end_answer(True)
        channel.flush()
        assert channel.sent == [(ANSWER, 5, True, b"head", b"body")]
        assert sink.told == []

    asyncio.run(play())


def test_a_client_that_does_not_keep_up_pauses_the_answer() -> None:
    async def play() -> None:
        transport, channel, sink = relayed()
        transport.write(b"x" * HIGH_BYTES)
        channel.flush()
        assert sink.told == []
        transport.write(b"y")
        channel.flush()
        assert sink.told == ["pause"]
        assert channel.sent == [(DATA, 5, b"x" * HIGH_BYTES), (DATA, 5, b"y")]
        assert transport.get_write_buffer_size() == HIGH_BYTES + 1
        transport.acked(HIGH_BYTES)
        assert sink.told == ["pause", "resume"]
        assert transport.get_write_buffer_size() == 1

    asyncio.run(play())


def test_input_waits_while_reading_is_paused() -> None:
    async def play() -> None:
        transport, channel, sink = relayed()
        transport.receive(b"a")
        transport.pause_reading()
        transport.receive(b"b")
        transport.receive(b"c")
        assert sink.told == [b"a"]
        assert channel.sent == [(TAKEN, 5, 1)]
        transport.resume_reading()
        await asyncio.sleep(0.01)
        assert sink.told == [b"a", b"b", b"c"]
        assert channel.sent == [(TAKEN, 5, 1)] * 3

    asyncio.run(play())


def test_a_close_follows_what_was_written_and_an_abort_does_not() -> None:
    async def play() -> None:
        transport, channel, _ = relayed()
        transport.write(b"last")
        transport.close()
        transport.write(b"dropped")
        assert channel.sent == [(DATA, 5, b"last"), (CLOSE, 5)]
        transport, channel, _ = relayed()
        transport.write(b"dropped")
        transport.abort()
        channel.flush()
        assert channel.sent == [(ABORT, 5)]

    asyncio.run(play())
