"""The HTTP host: listeners, open connections, their shared state, and an orderly stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from email.utils import formatdate

from semel.kernel.errors import Refusal
from semel.server.http.application import Application, UpgradedConnection
from semel.server.http.connection_limit import ConnectionLimit, HttpLimits
from semel.server.http.exchange import HttpExchange
from semel.server.http.flow import Crowd
from semel.server.http.head_shapes import HeadShapes
from semel.server.http.protocol import HttpProtocol
from semel.server.http.reader import RequestReader

BACKLOG = 4_096
DRAIN_SECONDS = 0.02
"""Seconds between two checks of a stopping host whether all connections have ended."""

CONNECTION_KINDS = HTTP_KIND, LIVE_KIND, WEBSOCKET_KIND = ("http", "live", "websocket")
"""Kinds of connections; a live one waits for a long poll or an event stream."""

_log = logging.getLogger("semel.server")


class HttpHost:
    """The state that connections share. Used on the event loop only."""

    def __init__(self, application: Application, limits: HttpLimits, connection_limit: ConnectionLimit) -> None:
        self.application = application
        self.limits = limits
        self.connection_limit = connection_limit
        self.connections: set[HttpProtocol | UpgradedConnection] = set()
        """Open connections, including WebSockets."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that are answered by a coroutine."""
        self.crowd = Crowd()
        self.shapes = HeadShapes(limits.head_bytes)
        """Heads of plain requests to the data listener."""
        self.date = b""
        """The Date header line of the current second."""
        self.is_stopping = False
        """Whether the host is stopping: new connections are closed."""
        self._servers: list[asyncio.Server] = []
        self._clock: asyncio.TimerHandle | None = None

    async def start(self, listeners: Iterable[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on bound sockets; with a TLS context all of them use TLS."""
        loop = asyncio.get_running_loop()
        self._tell_time(loop)
        for listener in listeners:
            server = await loop.create_server(
                lambda: self.connection(loop),
                sock=listener,
                ssl=tls,
                backlog=BACKLOG,
                # A TLS handshake has the same time limit as a head.
                ssl_handshake_timeout=None if tls is None else self.limits.head_seconds,
            )
            self._servers.append(server)

    def connection(self, loop: asyncio.AbstractEventLoop) -> HttpProtocol:
        """The protocol of a new connection."""
        return HttpProtocol(self, loop)

    def kinds(self) -> dict[str, int]:
        """The number of open connections of each kind."""
        return {**dict.fromkeys(CONNECTION_KINDS, 0), **Counter(map(_kind_of, self.connections))}

    def forget_shapes(self) -> None:
        """Drop every known head, and with them the credentials in the heads."""
        self.shapes.clear()
        for connection in self.connections:
            if isinstance(connection, HttpProtocol):
                connection.known_head = None

    def _tell_time(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.time()
        self.date = b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
        self._clock = loop.call_later(1 - now % 1, self._tell_time, loop)

    async def watch(self) -> None:
        """Every few seconds, close connections whose request does not arrive or whose answer is not read."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.limits.check_seconds)
            self.connection_limit.check(loop.time())
            self.close_overdue(loop.time())

    def close_overdue(self, now: float) -> None:
        """Close connections that have exceeded a time limit; `now` is by the clock of the loop."""
        for connection in list(self.connections):
            if not isinstance(connection, HttpProtocol):
                continue
            if connection.is_stalled(now) or (connection.transport.is_closing() and connection.is_stuck(now)):
                connection.transport.abort()
            elif connection.transport.is_closing():
                continue  # its last answer is being sent
            elif connection.is_overdue(now):
                connection.refuse(Refusal("REQUEST_TIMEOUT", "The request took too long to arrive."))
            elif connection.is_idle(now):
                connection.transport.close()

    async def stop(self, seconds: float, forced: asyncio.Event | None = None) -> None:
        """Accept nothing new, let running requests end within the time limit, then abort the rest.

        `forced` ends the wait at once.
        """
        self.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (  # noqa: ASYNC110 - connections end in many places, so poll instead of signalling
                    self.connections or self.tasks
                ) and not (forced is not None and forced.is_set()):
                    await asyncio.sleep(DRAIN_SECONDS)
        await self._cut_off()
        if self._clock is not None:
            self._clock.cancel()

    async def _cut_off(self) -> None:
        if self.tasks:
            _log.error("requests did not end within the shutdown time", extra={"requests": len(self.tasks)})
        left = list(self.tasks)
        for task in left:
            task.cancel()
        for connection in list(self.connections):
            if isinstance(connection, HttpProtocol):
                connection.transport.abort()
        await asyncio.gather(*left, return_exceptions=True)


def _kind_of(connection: object) -> str:
    if not isinstance(connection, RequestReader):
        return WEBSOCKET_KIND
    running = connection.running
    is_live = isinstance(running, HttpExchange) and running.request is not None and running.request.is_live
    return LIVE_KIND if is_live else HTTP_KIND
