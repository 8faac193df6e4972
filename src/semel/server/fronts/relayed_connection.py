"""The writer's side of a connection that a front holds: its requests arrive parsed, and their answers are relayed.

An exchange here is that of a local connection, so every surface answers as it does without fronts. Only the pieces of a
body are asked for one by one, and a learned shape becomes a grant for the front.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from semel.server.fronts.channel import (
    AGAIN,
    BOUND,
    CONTINUE,
    KEEP_ALIVE,
    LAST_ONE,
    LEARN,
    PULL,
    SETTLED,
    WHOLE,
    Message,
)
from semel.server.fronts.relay_transport import RelayTransport
from semel.server.http.answer import ClientGoneError
from semel.server.http.exchange import HttpExchange
from semel.server.http.flow import Flow
from semel.server.http.head_shapes import HeadShape, RunningExchange
from semel.server.http.reader import RequestReader
from semel.server.http.request import Request

if TYPE_CHECKING:
    from semel.server.fronts.front_link import FrontLink
    from semel.server.http.server import HttpHost


class RelayedExchange(HttpExchange):
    """One request of a relayed connection and its answer."""

    __slots__ = ("may_learn",)

    connection: RelayedConnection
    may_learn: bool

    async def read_piece(self) -> bytes:
        """The next piece of the body, which the front sends when it is asked for it."""
        while self.request is not None:
            if self._body:
                piece, self._body = bytes(self._body), b""
                return piece
            if self._is_complete:
                return b""
            self.waits_for_continue = False  # the front sends `100 Continue`
            self._waiter = self.connection.loop.create_future()
            self.connection.send(PULL)
            await self._waiter
        raise ClientGoneError

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int, prefix: bytes = b"") -> None:
        """Let the front recognize requests like this one, if their surface has a part in fronts."""
        if not prefix and self.may_learn and self.keep_alive and self.request is not None:
            self.connection.link.grant(self.connection.number, make, self.request, size)

    def bound_unsent(self, size: int) -> None:
        """Keep at most about `size` bytes in the system's send buffer."""
        self.connection.send(BOUND, size)


class RelayedConnection(RequestReader):
    """A connection of a front. Used on the event loop only."""

    __slots__ = ("is_counted", "link", "number", "on_lost")

    transport: RelayTransport

    def __init__(self, link: FrontLink, host: HttpHost, number: int, transport: RelayTransport, scheme: str) -> None:
        super().__init__(host, asyncio.get_running_loop())
        self._parser = None  # the front parses
        self.on_lost: Callable[[], None] | None = None
        self.link = link
        self.number = number
        self.transport = transport
        transport.set_protocol(self)
        self.flow = Flow(transport)
        self.scheme = scheme
        self.client, self.server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.is_counted = False
        """Whether the limits of connections count it."""

    def send(self, kind: int, *values: Any) -> None:
        """Send a message about this connection to its front."""
        self.link.channel.send((kind, self.number, *values))

    # ---- From the front ----

    def take_request(self, message: Message) -> None:
        """A request: hand it to the application."""
        _, _, flags, method, raw_path, query, headers, version, announced, body = message
        exchange = RelayedExchange(self, bool(flags & KEEP_ALIVE))
        exchange.may_learn = bool(flags & LEARN)
        exchange.waits_for_continue = bool(flags & CONTINUE)
        request = Request(exchange, method, raw_path, query, headers, version, self.scheme, self.client, self.server)
        request.announced = announced
        exchange.request = request
        self.is_stopping = bool(flags & LAST_ONE)
        if body:
            exchange.take(body)
        if flags & WHOLE:
            exchange.complete()
        self.running = exchange
        exchange.start()

    def take(self, piece: bytes) -> None:
        """A piece of the body."""
        if isinstance(self.running, RelayedExchange):
            if piece:
                self.running.take(piece)
            else:
                self.running.complete()

    def lose(self) -> None:
        """The present request will never be complete, or the client has disconnected."""
        running, self.running = self.running, None
        if running is not None:
            running.lose()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.flow.resume_writing()
        self.lose()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """The server is stopping: the front is told by itself, and closes its connections."""

    # ---- For exchanges ----

    def answered(self, exchange: RunningExchange) -> None:
        """The present request has been answered completely."""
        self.running = None
        self.transport.end_answer(exchange.keep_alive)

    def listen(self) -> None:
        """Nothing: the front reads the socket."""

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int, prefix: bytes = b"") -> None:
        """Nothing: the exchange learns."""

    # ---- For plain requests ----

    def begin(self, exchange: RunningExchange) -> None:
        """Run a request of a known shape; the front sends one at a time."""
        self.running = exchange

    def settle(self, *facts: Any) -> None:
        """A plain request is on disk: the front renders its answer."""
        self.running = None
        self.link.channel.send((SETTLED, self.number, *facts))

    def exchange(self) -> RelayedExchange:
        """An exchange in place of the present plain request, for an answer in full."""
        self.running = exchange = RelayedExchange(self, keep_alive=True)
        exchange.may_learn = False
        return exchange

    def ask_again(self) -> None:
        """Let the front send a plain request as a whole one."""
        self.running = None
        self.send(AGAIN)
