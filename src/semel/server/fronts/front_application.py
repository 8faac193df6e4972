"""The application of a front: it passes every request to the writer, and every answer to its connection."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count

from semel.kernel.errors import Refusal
from semel.server.fronts.channel import (
    ABORT,
    ACCEPT,
    AGAIN,
    ANSWER,
    BEGIN,
    BOUND,
    CLOSE,
    CONTINUE,
    DATA,
    END,
    FORGET,
    GONE,
    GRANT,
    HELLO,
    KEEP_ALIVE,
    LAST_ONE,
    LEARN,
    LOST,
    PING,
    PONG,
    PULL,
    REFUSE,
    REFUSED,
    REQUEST,
    SETTLED,
    STOP,
    TAKEN,
    WHOLE,
    Channel,
    Message,
)
from semel.server.fronts.front_protocol import FrontHost, FrontProtocol, TunnelEnd
from semel.server.fronts.grant import FrontShapes, Grant, PassedShape
from semel.server.http.answer import Answer
from semel.server.http.application import UpgradedConnection
from semel.server.http.exchange import HttpExchange, running_facts
from semel.server.http.head_shapes import HeadShape
from semel.server.http.problem import internal_refusal, problem_answer
from semel.server.http.request import Request
from semel.server.ops.log_facts import is_valid_id

_log = logging.getLogger("semel.server")


class FrontApplication:
    """Relays requests and answers. Used on the event loop only."""

    def __init__(self, shapes: Mapping[str, FrontShapes], lost: Callable[[], None]) -> None:
        """`shapes` are the parts of surfaces in fronts, by surface; `lost` is called when the writer ends."""
        self.channel = Channel(self._receive, lost)
        self.channel.on_full = self._fill
        self.host: FrontHost | None = None
        self.on_hello: Callable[[Mapping[str, object]], None] | None = None
        self.on_begin: Callable[[], None] | None = None
        self.on_stop: Callable[[float], None] | None = None
        self.on_reload: Callable[[], None] | None = None
        self._shapes = shapes
        self._connections: dict[int, FrontProtocol | TunnelEnd] = {}
        self._numbers = count(1)
        self._held: deque[tuple[FrontProtocol, Message]] = deque()
        """Requests that wait because the writer does not keep up: at most one of each connection."""
        form = os.urandom(6).hex().encode() + b"-%x"
        self.request_ids = map(form.__mod__, count())
        """New request ids: six random bytes for this process, and a number."""

    # ---- Connections ----

    def add(self, connection: FrontProtocol) -> int:
        """Number a new connection."""
        number = next(self._numbers)
        self._connections[number] = connection
        return number

    def replace(self, number: int, tunnel: TunnelEnd) -> None:
        """A connection has become a tunnel."""
        self._connections[number] = tunnel

    def remove(self, number: int) -> None:
        """A connection has ended; also called for one that never had a number."""
        if self._connections.pop(number, None) is not None:
            self.channel.send((GONE, number))

    # ---- The application of the host ----

    def handle(self, request: Request) -> Answer | None:
        """Pass a request to the writer; an answer that the client has not read delays it."""
        exchange = request.exchange
        assert isinstance(exchange, HttpExchange)
        connection = exchange.connection
        assert isinstance(connection, FrontProtocol)
        request.on_gone = lambda: self.channel.send((LOST, connection.number))
        connection.learned_from = connection.learnable
        if connection.flow.write_paused:
            connection.spawn(self._relay_later(connection, exchange, request), lambda: None)
        else:
            self._relay(connection, exchange, request)
        return None

    async def _relay_later(self, connection: FrontProtocol, exchange: HttpExchange, request: Request) -> None:
        await connection.flow.drain()
        if not request.gone:
            self._relay(connection, exchange, request)

    def _relay(self, connection: FrontProtocol, exchange: HttpExchange, request: Request) -> None:
        flags = (
            (KEEP_ALIVE if exchange.keep_alive else 0)
            | (WHOLE if request.is_whole else 0)
            | (CONTINUE if exchange.waits_for_continue else 0)
            | (LEARN if connection.learned_from else 0)
            | (LAST_ONE if connection.is_stopping and not connection.waiting else 0)
        )
        body, request.body = request.body, b""
        message = (
            REQUEST,
            connection.number,
            flags,
            request.method,
            request.raw_path,
            request.query,
            request.headers,
            request.version,
            request.announced,
            body,
        )
        if self.channel.is_full:
            self._held.append((connection, message))
        else:
            self.channel.send(message)

    def _fill(self, is_full: bool) -> None:
        while self._held and not self.channel.is_full:
            connection, message = self._held.popleft()
            if connection.number in self._connections and connection.running is not None:
                self.channel.send(message)

    def failed(self, request: Request, error: Exception) -> Answer:
        """The answer for a fault of the front itself."""
        error_id = os.urandom(8).hex()
        given = request.fields.get(b"x-request-id")
        request.id = given if given is not None and is_valid_id(given) else next(self.request_ids)
        _log.error("fault in a front", exc_info=error, extra={"error_id": error_id, **request.log_facts()})
        return problem_answer(internal_refusal(error_id))

    def answered(self, request: Request, status: int) -> None:
        """Nothing: the writer counts answers."""

    def refused(self, refusal: Refusal) -> None:
        """Let the writer count a refusal of the host."""
        self.channel.send((REFUSED, 0, refusal.kind.status))

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """None: the writer knows."""
        return None

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """False: the control listener is the writer's."""
        return False

    # ---- Messages of the writer ----

    def _receive(self, batch: list[Message]) -> None:
        for message in batch:
            try:
                self._take(message)
            except Exception as error:  # noqa: BLE001 - a fault of one connection must not end those beside it
                facts = {"kind": message[0], **running_facts(self._connections.get(message[1]))}
                _log.error("fault in a front", exc_info=error, extra=facts)

    def _take(self, message: Message) -> None:
        kind = message[0]
        connection = self._connections.get(message[1])
        if isinstance(connection, FrontProtocol):
            if kind == SETTLED:
                connection.settle(message[2:])
            elif kind == ANSWER:
                connection.end(message[2], message[3:])
            else:
                self._tell(connection, kind, message)
        elif connection is not None:
            self._tell_tunnel(connection, kind, message)
        elif message[1] == 0:
            self._tell_process(kind, message)

    def _tell(self, connection: FrontProtocol, kind: int, message: Message) -> None:
        if kind == DATA:
            connection.data(message[2:])
        elif kind == ACCEPT:
            connection.admit()
        elif kind == REFUSE:
            connection.reject(message[2])
        elif kind == PULL:
            connection.pull()
        elif kind == GRANT:
            self._learn(connection, message)
        elif kind == AGAIN:
            connection.send_again()
        elif kind == BOUND:
            connection.bound_unsent(message[2])
        elif kind == CLOSE:
            connection.transport.close()
        elif kind == ABORT:
            connection.transport.abort()

    def _tell_tunnel(self, tunnel: TunnelEnd, kind: int, message: Message) -> None:
        if kind == DATA:
            tunnel.data(message[2:])
        elif kind == TAKEN:
            tunnel.taken(message[2])
        elif kind == END:
            tunnel.transport.write_eof()
        elif kind == CLOSE:
            tunnel.transport.close()
        elif kind == ABORT:
            tunnel.transport.abort()

    def _tell_process(self, kind: int, message: Message) -> None:
        if kind == PING:
            self.channel.send((PONG, 0))
        elif kind == FORGET:
            if self.host is not None:
                self.host.forget_shapes()
            if message[2] and self.on_reload is not None:
                self.on_reload()
        elif kind == STOP and self.on_stop is not None:
            self.on_stop(message[2])
        elif kind == BEGIN and self.on_begin is not None:
            self.on_begin()
        elif kind == HELLO and self.on_hello is not None:
            self.on_hello(message[2])

    def _learn(self, connection: FrontProtocol, message: Message) -> None:
        """Recognize requests like the present one of a connection."""
        _, _, number, surface, size, facts = message
        exchange, data = connection.running, connection.learned_from
        make = self._shapes.get(surface, PassedShape)
        if not data or not isinstance(exchange, HttpExchange) or exchange.request is None:
            return
        request = exchange.request
        sent = request.fields.all(b"idempotency-key")
        headers = [header for header in request.headers if header[0] != b"idempotency-key"]
        grant = Grant(number, size, request.raw_path, headers, bool(sent), facts)

        def shape(key: bytes) -> HeadShape | None:
            return make(grant) if sent == ([key] if key else []) else None

        assert self.host is not None
        self.host.shapes.learn(data, size, shape)
