"""A WebSocket to the server, on the sans-I/O protocol of `websockets`.

Text messages only. A connection without an answer to a ping has ended. Every failure is `NoAnswerError`: what was sent
may have arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from semel.client.errors import refusal
from semel.client.transport.http_transport import Transport
from semel.client.transport.network import Bell, ByteStream

CONNECT_SECONDS = 10.0
PING_SECONDS = 20.0
"""Interval of pings; a connection without an answer within half of it has ended."""
SEND_SECONDS = 30.0


class WebSocketEndedError(ConnectionResetError):
    """The connection is closed."""


class ClientWebSocket:
    """An open WebSocket. One task reads; others may send."""

    def __init__(self, stream: ByteStream, protocol: ClientProtocol, transport: Transport) -> None:
        self._stream = stream
        self._protocol = protocol
        self._transport = transport
        self._messages: deque[str] = deque()
        self._parts: list[bytes] = []
        self._has_pinged = False
        self._quiet_since = transport.network.now()
        """When the last bytes came, or the last ping was sent."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._protocol.state is OPEN

    async def send(self, text: str) -> None:
        """Send a message. Raises `NoAnswerError` if the connection has ended."""
        try:
            if not self.is_open:
                raise WebSocketEndedError
            self._protocol.send_text(text.encode())
            await self.flush()
        except OSError as error:
            raise self._transport.no_answer(error, is_unsettled=True) from None

    async def receive(self, seconds: float, bell: Bell | None = None) -> str | None:
        """The next message; None if none came within `seconds`, or if the bell rang. Raises `NoAnswerError` at the end.

        Pings are answered, and sent, only inside this call.
        """
        network = self._transport.network
        until = network.now() + seconds
        while not self._messages:
            left = until - network.now()
            if left <= 0 or await self._step(left, bell):
                return None
        return self._messages.popleft()

    async def _step(self, left: float, bell: Bell | None) -> bool:
        """Take bytes of the peer, or ping it. Returns whether the bell rang."""
        now = self._transport.network.now
        due = self._quiet_since + (PING_SECONDS / 2 if self._has_pinged else PING_SECONDS)
        wait = max(0.0, min(left, due - now()))
        is_rung = False
        try:
            is_rung = bell is not None and await bell.wait(wait, self._stream)
            # A bell that rings all the time must not keep messages from being read, nor pings from being sent.
            data = await self._stream.receive(0.0 if is_rung else wait)
        except TimeoutError as error:
            if now() >= due:
                await self._ping(error)
            return is_rung
        except OSError as error:
            raise self._transport.no_answer(error, is_unsettled=True) from None
        self._has_pinged = False
        self._quiet_since = now()
        await self._take(data)
        return is_rung

    async def _take(self, data: bytes) -> None:
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self.hear(event)
        with suppress(OSError):
            await self.flush()
        if not self.is_open and not self._messages:
            raise self._transport.no_answer(WebSocketEndedError(), is_unsettled=True)

    def hear(self, frame: Frame) -> None:
        """Keep the text of a frame."""
        if frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self._messages.append(b"".join(self._parts).decode())
                self._parts = []

    async def _ping(self, error: TimeoutError) -> None:
        if self._has_pinged:
            raise self._transport.no_answer(error, is_unsettled=True) from None
        self._has_pinged = True
        self._quiet_since = self._transport.network.now()
        self._protocol.send_ping(b"")
        with suppress(OSError):
            await self.flush()

    async def flush(self) -> None:
        """Send what the protocol has for the peer."""
        for data in self._protocol.data_to_send():
            if data:
                await self._stream.send(data, SEND_SECONDS)

    async def close(self) -> None:
        """Tell the peer that the connection ends; its answer is not awaited."""
        with suppress(OSError):
            if self.is_open:
                self._protocol.send_close(1000)
                await self.flush()


@asynccontextmanager
async def open_websocket(transport: Transport, path: str, most_bytes: int) -> AsyncIterator[ClientWebSocket]:
    """A WebSocket for the block; messages have at most `most_bytes` bytes. Raises the server's refusal."""
    uri = parse_uri("ws" + (transport.url + path).removeprefix("http"))
    protocol = ClientProtocol(uri, max_size=most_bytes)
    async with transport.connection() as stream:
        socket = ClientWebSocket(stream, protocol, transport)
        try:
            await _shake_hands(stream, protocol, transport, socket, transport.observed_headers("GET", path))
        except OSError as error:
            raise transport.no_answer(error, is_unsettled=False) from None
        try:
            yield socket
        finally:
            await socket.close()


async def _shake_hands(
    stream: ByteStream,
    protocol: ClientProtocol,
    transport: Transport,
    socket: ClientWebSocket,
    headers: Mapping[str, str],
) -> None:
    request = protocol.connect()
    request.headers.update(transport.credential)
    request.headers.update(headers)
    protocol.send_request(request)
    await socket.flush()
    response: Response | None = None
    while response is None:
        data = await stream.receive(CONNECT_SECONDS)
        if not data:
            raise ConnectionResetError("closed during the handshake")
        protocol.receive_data(data)
        events = protocol.events_received()
        response = next((event for event in events if isinstance(event, Response)), None)
        for event in events:
            if isinstance(event, Frame):
                socket.hear(event)
    if response.status_code != 101:
        raise refusal(response.status_code, {})
    if protocol.handshake_exc is not None:
        raise transport.not_semel()
