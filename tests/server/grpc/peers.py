"""Both ends of a connection without a socket: a client that speaks HTTP/2, and a server around our own side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, cast
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from semel.kernel.errors import Grpc
from semel.server.grpc.call import GrpcCall, GrpcMethod, GrpcService
from semel.server.grpc.connection import GrpcConnection
from semel.server.grpc.messages import FramedMessage, frame
from semel.server.grpc.metadata import GrpcError, GrpcStatus, error_status

PATIENCE_SECONDS = 60.0
MAX_MESSAGE_BYTES = 1_000_000
MAX_WAITING = 8
INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNAVAILABLE = 3, 4, 14
PATH = "/test.Echo/Say"


class Pipe:
    """A transport that keeps what is written, and the orders it got."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.is_aborted = False
        self.is_reading = True

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written behind the end"
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def get_extra_info(self, name: str) -> object:
        return ("192.0.2.7", 1) if name == "peername" else None


def _status_of(call: GrpcCall, error: Exception) -> GrpcStatus:
    kind = error.kind if isinstance(error, GrpcError) else Grpc.INTERNAL
    return error_status(kind, str(error), b"")


class EchoReception:
    """A server that answers every message with itself, or as it is told to."""

    def __init__(self) -> None:
        self.service = GrpcService(
            methods={},
            max_message_bytes=MAX_MESSAGE_BYTES,
            max_held_bytes=0,
            headers=(),
            check_head=lambda fields: None,
            authenticate=lambda call: None,
            status_of=_status_of,
            count=lambda method, number: None,
        )
        self.has_room = True
        self.held = 0
        self.max_held = 100_000_000
        self.unsent = 0
        self.max_unsent = 100_000_000
        self.calls: list[GrpcCall] = []
        self.ends: list[int] = []
        self.answer: Callable[[GrpcCall, bytes], Awaitable[bytes | None]] = self.echo
        self.takes_many = False
        self.is_open = False

    async def echo(self, call: GrpcCall, content: bytes) -> bytes:
        return content

    def arrive(self, connection: GrpcConnection) -> bool:
        return self.has_room

    def depart(self, connection: GrpcConnection) -> None:
        self.has_room = True

    def hold(self, size: int) -> bool:
        self.held += size
        return self.held <= self.max_held

    def hold_answer(self, size: int) -> bool:
        self.unsent += size
        return self.unsent <= self.max_unsent

    def open(self, call: GrpcCall) -> None:
        self.calls.append(call)
        call.use(
            GrpcMethod(
                PATH.encode(),
                bytes,
                self.answer,
                is_open=self.is_open,
                max_waiting=MAX_WAITING if self.takes_many else 0,
            )
        )
        if self.takes_many:
            self.start_call(call, None)

    def start_call(self, call: GrpcCall, message: FramedMessage | None) -> None:
        call.task = asyncio.get_running_loop().create_task(self._run(call, message))

    async def _run(self, call: GrpcCall, message: FramedMessage | None) -> None:
        try:
            content = await self.answer(call, b"" if message is None else bytes(message.content))
            if content is not None:
                await call.send(content)
        except GrpcError as error:
            call.refuse(error)
        call.finish()

    def count(self, call: GrpcCall, number: int) -> None:
        self.ends.append(number)


class Line:
    """A connection and its client. `deliver` carries bytes both ways until neither has any."""

    def __init__(self, reception: Any = None) -> None:
        self.reception: Any = reception or EchoReception()
        self.pipe = Pipe()
        self.loop = asyncio.get_running_loop()
        self.server = GrpcConnection(self.reception, self.loop)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.events: list[Event] = []
        self.client.initiate_connection()
        self.server.connection_made(cast("Any", self.pipe))

    async def deliver(self) -> list[Event]:
        """What the client hears; tasks of the server that need no more from it come to their ends."""
        heard: list[Event] = []
        for _ in range(20):
            sent = self.client.data_to_send()
            if sent and not self.pipe.is_closed and self.pipe.is_reading:
                self.server.data_received(sent)
            for _ in range(5):
                await asyncio.sleep(0)
            answered = bytes(self.pipe.written)
            self.pipe.written.clear()
            if answered:
                heard += self.client.receive_data(answered)
        self.events += heard
        return heard

    def open(self, *more: tuple[str, str], path: str = PATH) -> int:
        """Begin a call; the number of its stream."""
        stream_id = self.client.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        self.client.send_headers(stream_id, [*head, ("content-type", "application/grpc"), *more])
        return stream_id

    def send(self, stream_id: int, data: bytes, *, end: bool = True) -> None:
        """Bytes of a call, in frames as large as they may be."""
        size = self.client.max_outbound_frame_size
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            self.client.send_data(stream_id, piece, end_stream=end and start + size >= len(data))
        if not data and end:
            self.client.end_stream(stream_id)

    def call(self, content: bytes) -> int:
        """A whole call."""
        stream_id = self.open()
        self.send(stream_id, frame(content))
        return stream_id

    # ---- What was heard ----

    def answer(self, stream_id: int) -> bytes:
        """The bytes of the messages of a call."""
        return b"".join(event.data or b"" for event in self._of(DataReceived, stream_id))

    def status(self, stream_id: int) -> int | None:
        """How a call ended, None when it has not."""
        trailers = [dict(event.headers or ()) for event in self._of(TrailersReceived, stream_id)]
        return int(trailers[-1][b"grpc-status"]) if trailers else None

    def messages(self, *streams: int) -> list[str]:
        """What the ends of calls say."""
        ends = [dict(event.headers or ()) for stream in streams for event in self._of(TrailersReceived, stream)]
        return [unquote(end[b"grpc-message"].decode()) for end in ends]

    def http_status(self, stream_id: int) -> int:
        heads = [dict(event.headers or ()) for event in self._of(ResponseReceived, stream_id)]
        return int(heads[0][b":status"])

    def is_ended(self, stream_id: int) -> bool:
        return bool(self._of(StreamEnded, stream_id))

    def is_reset(self, stream_id: int) -> bool:
        return bool(self._of(StreamReset, stream_id))

    @property
    def goodbye(self) -> ConnectionTerminated | None:
        found = [event for event in self.events if isinstance(event, ConnectionTerminated)]
        return found[-1] if found else None

    @property
    def pings(self) -> int:
        return sum(isinstance(event, PingReceived) for event in self.events)

    def _of(self, kind: type[Any], stream_id: int) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind) and event.stream_id == stream_id]


def on_a_loop(scenario: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test that is a coroutine."""

    @wraps(scenario)
    def run() -> None:
        asyncio.run(asyncio.wait_for(scenario(), PATIENCE_SECONDS))

    return run


async def never(call: GrpcCall, content: bytes) -> bytes:
    """An answer that does not come."""
    await asyncio.Event().wait()
    return b""
