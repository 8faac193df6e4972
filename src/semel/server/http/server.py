"""The HTTP host: listeners, the connections that are open, what they share, and an orderly stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from email.utils import formatdate

from semel.kernel.errors import Refusal
from semel.server.http.application import Application, UpgradedConnection
from semel.server.http.connection_limit import ConnectionLimit, HttpLimits
from semel.server.http.flow import Crowd
from semel.server.http.head_shapes import HeadShapes
from semel.server.http.protocol import HttpProtocol

BACKLOG = 4_096
DRAIN_SECONDS = 0.02
"""How often a host that stops looks whether all have gone."""

_log = logging.getLogger("semel.server")


class HttpHost:
    """Everything that connections share. Used on the event loop only."""

    def __init__(self, application: Application, limits: HttpLimits, connection_limit: ConnectionLimit) -> None:
        self.application = application
        self.limits = limits
        self.connection_limit = connection_limit
        self.connections: set[HttpProtocol | UpgradedConnection] = set()
        """Those that are open, WebSockets among them."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that are answered by a coroutine."""
        self.crowd = Crowd()
        self.shapes = HeadShapes(limits.head_bytes)
        """Heads of plain requests to the data listener."""
        self.date = b""
        """The Date header of this second, as a line."""
        self.is_stopping = False
        """Whether connections that come from now on are closed."""
        self._servers: list[asyncio.Server] = []
        self._clock: asyncio.TimerHandle | None = None

    async def start(self, listeners: Iterable[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        """Take connections on bound sockets; with a context all of them speak TLS."""
        loop = asyncio.get_running_loop()
        self._tell_time(loop)
        for listener in listeners:
            server = await loop.create_server(
                lambda: HttpProtocol(self, loop),
                sock=listener,
                ssl=tls,
                backlog=BACKLOG,
                # A handshake that does not get on is ended like a head that does not.
                ssl_handshake_timeout=None if tls is None else self.limits.head_seconds,
            )
            self._servers.append(server)

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
        """Close what has used up its time at this instant of the loop's clock."""
        for connection in list(self.connections):
            if not isinstance(connection, HttpProtocol):
                continue
            if connection.is_stalled(now) or (connection.transport.is_closing() and connection.is_stuck(now)):
                connection.transport.abort()
            elif connection.transport.is_closing():
                continue  # its last word is on the way
            elif connection.is_overdue(now):
                connection.refuse(Refusal("REQUEST_TIMEOUT", "The request took too long to arrive."))
            elif connection.is_idle(now):
                connection.transport.close()

    async def stop(self, seconds: float, forced: asyncio.Event | None = None) -> None:
        """Take nothing new, let requests that are under way end within the time, then cut off the rest.

        `forced` ends the wait at once.
        """
        self.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (  # noqa: ASYNC110 - they end in many places, and none of them should have to tell
                    self.connections or self.tasks
                ) and not (forced is not None and forced.is_set()):
                    await asyncio.sleep(DRAIN_SECONDS)
        await self._cut_off()
        if self._clock is not None:
            self._clock.cancel()

    async def _cut_off(self) -> None:
        if self.tasks:
            _log.error("requests did not end in the time for a shutdown", extra={"requests": len(self.tasks)})
        left = list(self.tasks)
        for task in left:
            task.cancel()
        for connection in list(self.connections):
            if isinstance(connection, HttpProtocol):
                connection.transport.abort()
        await asyncio.gather(*left, return_exceptions=True)
