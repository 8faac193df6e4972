"""HTTP/1.1 on uvicorn's httptools protocol, with limits and timeouts that it lacks.

Head size, number of connections and the time for a request to arrive are limited, malformed HTTP is answered with a
problem document, and the application learns at once of a disconnect: a write whose caller has disconnected is dropped
before its turn, and a live reader ends.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from httptools import parse_url
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from semel.kernel.errors import Problem
from semel.server.asgi import ANNOUNCED, SECURITY
from semel.server.connection import CONNECTION, Connection
from semel.server.connection_limit import ConnectionLimit, HttpLimits
from semel.server.cycle import Cycle
from semel.server.host_field import head_flaw
from semel.server.paced_protocol import PacedProtocol
from semel.server.problem import problem_body, problem_headers
from semel.server.websocket import WebSocket

STALL_BYTES = 64 * 1024
"""A client that reads as many in the time of a stall is slow, and not stalled."""
MAX_EXCESS_BYTES = 16 * 1024
"""Extensions of chunks and trailers of one request; those within one slice that is parsed may be more."""
CHUNK_BYTES = 20
"""Overhead of a chunk that is not counted as excess: its size and two line ends."""

_TOO_MUCH_EXCESS = Problem(
    "INVALID_REQUEST", f"Chunk extensions and trailers may have {MAX_EXCESS_BYTES} bytes in a request."
)


class HostConfig(Config):
    """How the host is set up, with the limits of its connections."""

    def __init__(self, http_limits: HttpLimits, connection_limit: ConnectionLimit, **options: Any) -> None:
        super().__init__(**options)
        self.http_limits = http_limits
        self.connection_limit = connection_limit


class _RefusedHeadError(Exception):
    pass


class SemelProtocol(PacedProtocol):
    """One connection."""

    def __init__(
        self,
        config: HostConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.connection = Connection()
        self.limits = config.http_limits
        self.timeout_keep_alive = self.limits.idle_seconds  # type: ignore[assignment]
        self._connection_limit = config.connection_limit
        self._is_counted = False
        self._opened_at = self._began_at = self._data_at = self.loop.time()
        self._head_bytes = 0
        self._head_waiting = 0
        self._has_met_boundary = False
        self._content = 0
        self._excess = 0
        self._unanswered = 0
        self._running: RequestResponseCycle | None = None
        self._stalled_at: float | None = None
        self._unsent = 0
        self._is_head_open = True
        self._is_chunked = False
        self._is_arriving = False
        self._refusal: Problem | None = None
        self._last_words: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or say that there are too many."""
        super().connection_made(transport)
        self.connection.transport = transport
        own = transport.get_extra_info("socket")
        descriptor = 0 if own is None else own.fileno()
        now = self.loop.time()
        problem = self._connection_limit.refusal(self._address(), len(self.connections), descriptor, now)
        self._is_counted = problem is None
        if problem is not None:
            self.refuse(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everything that works or waits on behalf of this client, not only the latest request."""
        super().connection_lost(exc)
        self._leave()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.connection.gone = True
        if self.connection.on_gone is not None:
            self.connection.on_gone()

    @property
    def is_dense(self) -> bool:
        """Heads may be small, and chunks."""
        return self._is_head_open or self._is_chunked

    def parse(self, data: bytes) -> None:
        """Feed the parser, and count the bytes that it holds back: only the parser knows of an endless line."""
        self._data_at = self.loop.time()
        self._has_met_boundary = False
        self._content = 0
        super().parse(data)
        if self._has_met_boundary:
            self._head_waiting = 0  # what this read holds of a new head is bounded by the read itself
        elif self._is_arriving and self._is_head_open:
            self._head_waiting += len(data)
            if self._head_waiting > 2 * self.limits.head_bytes:
                self.refuse(self._too_large())
        elif self._is_arriving:
            self._excess = max(self._excess + len(data) - self._content, 0)
            if self._excess > MAX_EXCESS_BYTES:
                self.refuse(_TOO_MUCH_EXCESS)

    def on_message_begin(self) -> None:
        """A request begins; its scope has only the members that are used here."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        scope: Any = {
            "type": "http",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "headers": self.headers,
            CONNECTION: self.connection,
        }
        self.scope = scope
        self._has_met_boundary = True
        self._head_bytes = 0
        self._excess = 0
        self._is_head_open = True
        self._is_arriving = True
        self._began_at = self._data_at

    def on_url(self, url: bytes) -> None:
        """Collect the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header; trailers are ignored."""
        if self._is_head_open:
            self._count(len(name) + len(value))
            super().on_header(name, value)

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._content += CHUNK_BYTES

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._content += len(body)
        super().on_body(body)

    def _should_upgrade(self) -> bool:
        """WebSocket is spoken at some paths of one listener, when nothing on the connection waits for its answer."""
        is_there = self._socket_kind() is not None and self.parser.get_http_version() == "1.1"
        return is_there and self._unanswered == 0 and not self._is_control() and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the surface of its path."""
        self.ws_protocol_class = self._socket_kind()
        super().handle_websocket_upgrade()
        upgraded = self.transport.get_protocol()
        assert isinstance(upgraded, WebSocket)
        upgraded.on_lost = self._leave  # the transport has another protocol now, which hears of the end

    def _leave(self) -> None:
        """The connection is open no more."""
        if self._is_counted:
            self._is_counted = False
            self._connection_limit.leave(self._address())

    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _socket_kind(self) -> Any:
        find = getattr(self.app, "socket_at", None)
        return None if find is None else find(self.url.partition(b"?")[0])

    def _is_control(self) -> bool:
        judge = getattr(self.app, "is_control", None)
        return judge is not None and bool(judge(self.server))

    def on_headers_complete(self) -> None:
        """The head is whole, and its request has a handler."""
        self._has_met_boundary = True
        version = self.parser.get_http_version()
        flaw = head_flaw(version, self.headers)
        if flaw is not None:
            self._refusal = Problem("INVALID_REQUEST", flaw)
            raise _RefusedHeadError
        is_upgrade = self.parser.should_upgrade()
        if is_upgrade and self._has_body():
            # The parser ends an upgraded message at its head and throws the body away: storing it would store nothing.
            self._refusal = Problem("INVALID_REQUEST", "Send a request with a body without the Upgrade header.")
            raise _RefusedHeadError
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        if is_upgrade and self._should_upgrade():
            return
        target = parse_url(self.url)
        if target.path is None:
            raise _RefusedHeadError
        self.scope["raw_path"] = target.path
        self.scope["query_string"] = target.query or b""
        self.expect_100_continue = self.expect_100_continue and version == "1.1"
        if self.expect_100_continue:
            self.scope[ANNOUNCED] = self._announced()  # type: ignore[literal-required]
        before: RequestResponseCycle | None = self.cycle
        self.cycle = self._new_cycle()
        if is_upgrade:
            self.cycle.keep_alive = False  # what came behind it on this connection was thrown away too
        self._unanswered += 1
        self._is_head_open = False
        self._is_chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()  # a request that did not wait for the answer to the one before it
            self.pipeline.appendleft((self.cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Requests of one connection run one after the other."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _new_cycle(self) -> Cycle:
        return Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def on_message_complete(self) -> None:
        """The request has arrived."""
        self._has_met_boundary = True
        self._is_arriving = False
        self._is_head_open = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """One request is answered; a refusal may have waited for that."""
        self._unanswered -= 1
        super().on_response_complete()
        if self._last_words is not None and not self._unanswered:
            self._say_and_close(self._last_words)

    def send_400_response(self, msg: str) -> None:
        """Answer what could not be parsed."""
        self.refuse(self._refusal or Problem("INVALID_REQUEST", "This is not a valid HTTP request."))

    def is_overdue(self, now: float) -> bool:
        """Whether a request does not get on: silent, a head or body that takes too long, or no request at all."""
        if not self._is_arriving:
            never_asked: bool = self.cycle is None
            return never_asked and now - self._opened_at >= self.limits.idle_seconds
        if self.flow.read_paused:
            return False  # it is we who do not listen
        longest = self.limits.head_seconds if self._is_head_open else self.limits.body_seconds
        return now - self._data_at >= self.limits.silence_seconds or now - self._began_at >= longest

    def is_stalled(self, now: float) -> bool:
        """Whether the client has read almost nothing of its answer for too long; to be called regularly."""
        if self._stalled_at is None:
            return False
        unsent = self.transport.get_write_buffer_size()
        if unsent <= self._unsent - STALL_BYTES:
            self._stalled_at, self._unsent = now, unsent
        self._unsent = max(self._unsent, unsent)  # more may have been written
        return now - self._stalled_at >= self.limits.stall_seconds

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._stalled_at = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self._stalled_at = None
        super().resume_writing()

    def refuse(self, problem: Problem) -> None:
        """Close the connection with a refusal, behind the answers to earlier requests.

        Else a client would take the refusal for the answer to an append that is being committed.
        """
        if not self._is_head_open:
            if self.cycle.response_started:
                self.transport.close()
                return
            self._give_up_body()
        if self._unanswered:
            self._last_words = problem
            self.flow.pause_reading()
        else:
            self._say_and_close(problem)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.head_bytes or len(self.headers) >= self.limits.head_fields:
            self._refusal = self._too_large()
            raise _RefusedHeadError

    def _too_large(self) -> Problem:
        most, fields = self.limits.head_bytes, self.limits.head_fields
        return Problem("HEADERS_TOO_LARGE", f"Target and headers may have {most} bytes and {fields} fields.")

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t"))
            for name, value in self.headers
        )

    def _announced(self) -> int:
        """The length that the head says its body has; 0 when it does not say."""
        return max((int(value) for name, value in self.headers if name == b"content-length"), default=0)

    def _give_up_body(self) -> None:
        """The body of the latest request is broken: tell its handler that the client has disconnected."""
        broken = self.cycle
        waiting = [pair for pair in self.pipeline if pair[0] is not broken]
        if len(waiting) < len(self.pipeline):
            self.pipeline.clear()
            self.pipeline.extend(waiting)
        self._unanswered -= 1
        broken.disconnected = True
        broken.message_event.set()

    def _say_and_close(self, problem: Problem) -> None:
        self._last_words = None
        count = getattr(self.app, "refused", None)
        if count is not None:
            count(problem)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            body = problem_body(problem)
            head = [b"HTTP/1.1 %d %s\r\n" % (problem.kind.status, problem.kind.title.encode())]
            request_id = (b"x-request-id", os.urandom(8).hex().encode())
            common = [(b"content-length", b"%d" % len(body)), (b"connection", b"close"), request_id, *SECURITY]
            for name, value in [*problem_headers(problem), *common]:
                head += [name, b": ", value, b"\r\n"]
            self.transport.write(b"".join([*head, b"\r\n", body]))
        self.transport.close()


async def close_overdue(state: ServerState, config: HostConfig) -> None:
    """Every few seconds, close connections whose request does not arrive or whose answer is not read."""
    while True:
        await asyncio.sleep(config.http_limits.check_seconds)
        now = asyncio.get_running_loop().time()
        config.connection_limit.check(now)
        for connection in list(state.connections):
            if not isinstance(connection, SemelProtocol):
                continue
            if connection.is_stalled(now):
                connection.transport.abort()
            elif connection.is_overdue(now):
                connection.refuse(Problem("REQUEST_TIMEOUT", "The request took too long to arrive."))
