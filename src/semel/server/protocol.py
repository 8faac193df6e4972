"""HTTP/1.1 on uvicorn's httptools class, with the limits it does not have.

Head size, number of connections and the time a request may take to arrive are bounded, malformed HTTP is answered with
a problem document, and the application learns at once when a client has gone: a write whose caller has gone is dropped
before its turn, and a live reader ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from semel.kernel.errors import Problem
from semel.server.problem import problem_body, problem_headers

CONNECTION = "semel.connection"
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 128
ARRIVAL_SECONDS = 30.0
MAX_CONNECTIONS = 20_000


class Connection:
    """What the application may know of the connection under a request."""

    __slots__ = ("gone", "on_gone")

    def __init__(self) -> None:
        self.gone = False
        self.on_gone: Callable[[], None] | None = None


class _HeadTooLargeError(Exception):
    pass


class SemelProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.connection = Connection()
        self.last_data = 0.0
        self._head_bytes = 0
        self._is_arriving = False
        self._refusal: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or say that there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(Problem("OVERLOADED", "Too many connections are open; try again in a moment."))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits on behalf of this client."""
        super().connection_lost(exc)
        self.connection.gone = True
        if self.connection.on_gone is not None:
            self.connection.on_gone()

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        self.last_data = self.loop.time()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_bytes = 0
        self._is_arriving = True
        self.scope[CONNECTION] = self.connection  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """Collect the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        """The request has arrived."""
        self._is_arriving = False
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES or len(self.headers) >= MAX_HEADERS:
            self._refusal = Problem(
                "HEADERS_TOO_LARGE", f"Target and headers may have {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} fields."
            )
            raise _HeadTooLargeError

    def send_400_response(self, msg: str) -> None:
        """Answer what could not be parsed."""
        self._refuse(self._refusal or Problem("INVALID_REQUEST", "This is not a valid HTTP request."))

    def is_overdue(self, now: float) -> bool:
        """Whether a request has begun to arrive and then stalled."""
        return self._is_arriving and now - self.last_data >= ARRIVAL_SECONDS

    def _refuse(self, problem: Problem) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            body = problem_body(problem)
            head = [b"HTTP/1.1 %d %s\r\n" % (problem.kind.status, problem.kind.title.encode())]
            common = [(b"content-length", b"%d" % len(body)), (b"connection", b"close"), *STATIC]
            for name, value in [*problem_headers(problem), *common]:
                head += [name, b": ", value, b"\r\n"]
            self.transport.write(b"".join([*head, b"\r\n", body]))
        self.transport.close()


STATIC: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
]


async def close_overdue(state: ServerState) -> None:
    """Every few seconds, close connections whose request stopped arriving."""
    while True:
        await asyncio.sleep(ARRIVAL_SECONDS / 6)
        now = asyncio.get_running_loop().time()
        for connection in list(state.connections):
            if isinstance(connection, SemelProtocol) and connection.is_overdue(now):
                connection._refuse(Problem("REQUEST_TIMEOUT", "The request took too long to arrive."))
