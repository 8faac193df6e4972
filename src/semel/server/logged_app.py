"""The application and the host of a server with an access log or a slow log.

The line of a request is added when its answer has been written to the end, or when its client has left. A request of a
known shape never becomes a `Request`: its line comes from its shape.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, cast

from semel.kernel.errors import Refusal
from semel.server.app import App
from semel.server.http.answer import Answer
from semel.server.http.exchange import HttpExchange
from semel.server.http.head_shapes import RunningExchange
from semel.server.http.protocol import HttpProtocol
from semel.server.http.request import Request
from semel.server.http.server import HttpHost
from semel.server.ops.access_log import AccessLog, LoggedRequest, ShapedCall
from semel.server.ops.log_facts import REQUEST
from semel.server.ops.request_times import HTTP
from semel.server.traced_app import TracedApp


class LoggedApp(App):
    """An application that notes answers for the log."""

    def handle(self, request: Request) -> Answer | None:
        """Answer one request; the log lines of what it starts have its id."""
        token = REQUEST.set(request)
        try:
            return super().handle(request)
        finally:
            REQUEST.reset(token)

    def answered(self, request: Request, status: int) -> None:
        """Count an answer, and note it for its line."""
        super().answered(request, status)
        connection = cast(HttpExchange, request.exchange).connection
        cast(LoggedProtocol, connection).progress.noted = (request, status, monotonic() - request.began_at)


class LoggedTracedApp(LoggedApp, TracedApp):
    """The same, with spans."""


class CountedTransport:
    """A transport that counts the bytes written to it."""

    __slots__ = ("_inside", "sent")

    def __init__(self, inside: asyncio.Transport) -> None:
        self._inside = inside
        self.sent = 0

    def write(self, data: bytes) -> None:
        """Write and count."""
        self.sent += len(data)
        self._inside.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


class AnswerProgress:
    """What is known of the present answer of a connection."""

    __slots__ = ("bytes", "noted")

    def __init__(self) -> None:
        self.noted: tuple[Request, int, float] | None = None
        """The request whose answer is being sent, its status, and the time to its head."""
        self.bytes = 0
        """Bytes that were sent before the present answer."""


class LoggedProtocol(HttpProtocol):
    """A connection whose requests are logged."""

    __slots__ = ("progress",)

    progress: AnswerProgress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count what is written."""
        self.progress = AnswerProgress()
        super().connection_made(cast(asyncio.Transport, CountedTransport(transport)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Log the request that was being answered."""
        self.log_answer(self.running, is_answered=False)
        super().connection_lost(exc)

    def answered(self, exchange: RunningExchange) -> None:
        """A request is answered: log it, and go on."""
        self.log_answer(exchange, is_answered=True)
        super().answered(exchange)

    def sent_since(self) -> int:
        """Bytes that were sent since the last call."""
        sent, progress = cast(CountedTransport, self.transport).sent, self.progress
        size, progress.bytes = sent - progress.bytes, sent
        return size

    def log_answer(self, exchange: RunningExchange | None, *, is_answered: bool) -> None:
        """Log the request that has just been answered, or whose client has left."""
        access = cast(LoggedHost, self.host).access
        size, progress = self.sent_since(), self.progress
        noted, progress.noted = progress.noted, None
        if noted is not None:
            request, status, seconds = noted
            access.add(access.facts(request, status, size, seconds))
        elif isinstance(exchange, HttpExchange):
            if exchange.request is not None:
                seconds = monotonic() - exchange.request.began_at
                access.add(access.facts(exchange.request, None, size, seconds))
        elif exchange is not None:
            remote = self.client[0] if self.client else ""
            access.add_shaped(cast(ShapedCall, exchange), remote, size, is_answered=is_answered)

    def _say_and_close(self, refusal: Refusal) -> None:
        """Log a refusal of input that never became a request."""
        super()._say_and_close(refusal)
        size = self.sent_since()
        status, remote = refusal.kind.status, self.client[0] if self.client else ""
        cast(LoggedHost, self.host).access.add(LoggedRequest("none", HTTP, "-", "-", status, size, 0.0, "", remote, ""))


class LoggedHost(HttpHost):
    """The host of a server that logs requests."""

    access: AccessLog

    def connection(self, loop: asyncio.AbstractEventLoop) -> HttpProtocol:
        """The protocol of a new connection."""
        return LoggedProtocol(self, loop)
