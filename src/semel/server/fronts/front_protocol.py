"""One client connection in a front: parsed here, and answered with what the writer sends.

The connection waits for the writer's consent before it reads: the limits of connections are those of all fronts. Then
requests run one after another, as on any connection of the host. A request to upgrade makes the connection a tunnel.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from semel.kernel.errors import Refusal
from semel.server.fronts.channel import ACK, BODY, LAST, OPEN, PLAIN, TUNNEL
from semel.server.fronts.grant import Grant, PlainRequest
from semel.server.http.answer import ClientGoneError, header_block
from semel.server.http.answer_head import CLOSE_LINE
from semel.server.http.application import UpgradedConnection
from semel.server.http.connection_limit import ConnectionLimit, HttpLimits
from semel.server.http.exchange import HttpExchange
from semel.server.http.protocol import HttpProtocol
from semel.server.http.request import Request
from semel.server.http.server import HttpHost
from semel.server.setting_values import MANY

if TYPE_CHECKING:
    from semel.server.fronts.front_application import FrontApplication

TUNNEL_BYTES = 256 * 1024
"""Limit on the bytes of a tunnel that the writer has not taken; beyond it the socket is not read."""


class FrontHost(HttpHost):
    """The HTTP host of a front. The writer counts connections; here they have no limit."""

    application: FrontApplication

    def __init__(self, application: FrontApplication, limits: HttpLimits) -> None:
        super().__init__(application, limits, ConnectionLimit(MANY, 0))

    def connection(self, loop: asyncio.AbstractEventLoop) -> HttpProtocol:
        """The protocol of a new connection."""
        return FrontProtocol(self, loop)


class FrontProtocol(HttpProtocol):
    """One connection of a front."""

    __slots__ = ("_early", "_is_admitted", "_unacked", "learned_from", "number")

    host: FrontHost
    application: FrontApplication

    def __init__(self, host: FrontHost, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(host, loop)
        self.number = 0
        self.learned_from = b""
        """The bytes of the present request, if they may be one plain request."""
        self._is_admitted = False
        self._early = b""
        """Bytes that arrived before the writer's consent."""
        self._unacked = 0
        """Bytes of the present answer that the client has not kept up with."""

    # ---- From the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the writer whether the connection is within the limits."""
        super().connection_made(transport)
        if self.host.is_stopping:
            return
        own = transport.get_extra_info("socket")
        descriptor = 0 if own is None else own.fileno()
        self.number = self.application.add(self)
        self.application.channel.send((OPEN, self.number, self.client, self.server, self.scheme, descriptor))

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, or hold them until the connection is admitted."""
        if self._is_admitted:
            super().data_received(data)
        else:
            self._early += data
            self.flow.hold(True)

    def admit(self) -> None:
        """The writer has accepted the connection."""
        self._is_admitted = True
        early, self._early = self._early, b""
        if early:
            self.flow.hold(False)
            self.data_received(early)

    def reject(self, told: str) -> None:
        """The writer has refused the connection."""
        self.refuse(Refusal("OVERLOADED", told))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        super().connection_lost(exc)
        self.application.remove(self.number)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        size, self._unacked = self._unacked, 0
        if size:
            self.application.channel.send((ACK, self.number, size))

    def shutdown(self) -> None:
        """The server is stopping: the answer that is being made, if no request waits behind it, is the last."""
        super().shutdown()
        if self.running is not None and not self.waiting:
            self.application.channel.send((LAST, self.number))

    # ---- Whole requests ----

    @property
    def learnable(self) -> bytes:
        """The bytes that are being parsed, if they may be one plain request."""
        return self._learned_from

    def data(self, parts: Sequence[bytes]) -> None:
        """A part of an answer."""
        exchange = self.running
        if isinstance(exchange, HttpExchange):
            exchange.is_answered = exchange.has_begun = True
            self._write(parts)
            size = sum(map(len, parts))
            if self.flow.write_paused:
                self._unacked += size
            else:
                self.application.channel.send((ACK, self.number, size))

    def end(self, keep_alive: bool, parts: Sequence[bytes]) -> None:
        """The answer, or the rest of it; the next request may begin."""
        exchange = self.running
        if exchange is None:
            return  # its request was given up, and the connection is closing
        self._write(parts)
        self._unacked = 0
        self.learned_from = b""
        exchange.keep_alive = keep_alive
        if isinstance(exchange, HttpExchange):
            exchange.is_answered = exchange.has_begun = True
            exchange.finish()
            exchange.complete()  # a piece of the body that was asked for is not wanted any more
        else:
            self.answered(exchange)

    def _write(self, parts: Sequence[bytes]) -> None:
        if not self.transport.is_closing():
            for part in parts:
                self.transport.write(part)

    def pull(self) -> None:
        """Send the next piece of the body to the writer."""
        if isinstance(self.running, HttpExchange):
            self.spawn(self._pull(self.running), lambda: None)

    async def _pull(self, exchange: HttpExchange) -> None:
        try:
            piece = await exchange.read_piece()
        except ClientGoneError:
            return  # the writer has been told
        if self.running is exchange:
            self.application.channel.send((BODY, self.number, piece))

    def bound_unsent(self, size: int) -> None:
        """Keep at most about `size` bytes in the system's send buffer."""
        own = self.transport.get_extra_info("socket")
        if own is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)

    # ---- Plain requests ----

    def submit(self, running: PlainRequest, grant: int, values: tuple[Any, ...]) -> bool:
        """Send a plain request to the writer; False if the writer does not keep up."""
        channel = self.application.channel
        if channel.is_full:
            return False
        self.running = running
        channel.send((PLAIN, self.number, grant, *values))
        return True

    def write_plain(self, status: bytes, lines: bytes, common: bytes) -> None:
        """Send the answer to the present plain request."""
        running = self.running
        assert running is not None
        closing = b""
        if self.is_stopping and not self.waiting:
            running.keep_alive, closing = False, CLOSE_LINE
        request_id = next(self.application.request_ids)
        if not self.transport.is_closing():
            self.transport.write(
                b"%b%b%bx-request-id: %b\r\n%b%b" % (status, self.host.date, lines, request_id, closing, common)
            )
        self.answered(running)

    def settle(self, facts: Sequence[Any]) -> None:
        """A plain request is on disk."""
        running = self.running
        if running is not None and not isinstance(running, HttpExchange):
            running.settle(self, facts)  # type: ignore[attr-defined]

    def send_again(self) -> None:
        """Send the present plain request as a whole one."""
        plain: Any = self.running
        if plain is None or isinstance(plain, HttpExchange):
            return
        grant: Grant = plain.grant
        exchange = HttpExchange(self, keep_alive=True)
        headers = [*grant.headers, (b"idempotency-key", plain.key)] if grant.is_keyed else grant.headers
        exchange.request = Request(
            exchange, "POST", grant.raw_path, b"", headers, "1.1", self.scheme, self.client, self.server
        )
        exchange.request.body = plain.body
        exchange.complete()
        self.running = self.latest = exchange
        self.application.handle(exchange.request)

    # ---- Tunnels ----

    def _websocket_of(self, method: str, version: str) -> Callable[[], UpgradedConnection] | None:
        """A tunnel for every upgrade that no earlier request delays: the writer answers it."""
        super()._websocket_of(method, version)  # refuses a body
        return None if self.running is not None or self.waiting else self._no_socket

    @staticmethod
    def _no_socket() -> UpgradedConnection:
        raise NotImplementedError

    def hand_over(self, rest: bytes) -> None:
        """Make the connection a tunnel; `rest` are the bytes after the head."""
        parser = self._parser
        assert parser is not None
        method, version = parser.get_method(), parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._url, version, header_block(self._headers))
        data = head + rest + self._unparsed
        self._parser, self._unparsed = None, b""
        self.flow.resume_reading()
        self.flow.hold(False)
        tunnel = TunnelEnd(self, self.application, self.transport)
        self.host.connections.discard(self)
        self.host.connections.add(tunnel)
        tunnel.begin(data)
        self.transport.set_protocol(tunnel)


class TunnelEnd(asyncio.Protocol):
    """The front's end of a tunnel: bytes of the client to the writer, and back."""

    def __init__(self, first: FrontProtocol, application: FrontApplication, transport: asyncio.Transport) -> None:
        self._host = first.host
        self._number = first.number
        self._application = application
        self._channel = application.channel
        self.transport = transport
        self._untaken = 0
        self._unacked = 0
        self._is_full = first.flow.write_paused
        self.on_lost: Callable[[], None] | None = None
        application.replace(self._number, self)

    def begin(self, data: bytes) -> None:
        """Send the head of the upgrade, and what came with it."""
        self._untaken = len(data)
        self._channel.send((TUNNEL, self._number, data))

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        self._untaken += len(data)
        self._channel.send((BODY, self._number, data))
        if self._untaken > TUNNEL_BYTES and not self.transport.is_closing():
            self.transport.pause_reading()

    def taken(self, size: int) -> None:
        """The writer has taken bytes."""
        was_over = self._untaken > TUNNEL_BYTES
        self._untaken -= size
        if was_over and self._untaken <= TUNNEL_BYTES and not self.transport.is_closing():
            self.transport.resume_reading()

    def data(self, parts: Sequence[bytes]) -> None:
        """Bytes for the client."""
        if self.transport.is_closing():
            return
        for part in parts:
            self.transport.write(part)
        size = sum(map(len, parts))
        if self._is_full:
            self._unacked += size
        else:
            self._channel.send((ACK, self._number, size))

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self._is_full = False
        size, self._unacked = self._unacked, 0
        if size:
            self._channel.send((ACK, self._number, size))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self._host.connections.discard(self)
        self._application.remove(self._number)

    def shutdown(self) -> None:
        """The server is stopping: the writer ends the connection in the way of its protocol."""
