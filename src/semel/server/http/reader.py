"""From bytes to requests: the parser's callbacks, the limits on heads and chunks, and the pace of parsing.

One read of a socket can hold 40,000 chunks of one byte each, or thousands of small requests, and the parser calls back
for each of them: 100 ms of the event loop. Input of that kind is therefore parsed in slices, and other connections run
in between. Meanwhile the socket is not read. The content of a body of known length is one callback for any size, and is
parsed at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from semel.kernel.errors import Refusal, Refused
from semel.server.http.answer import Header
from semel.server.http.application import UpgradedConnection
from semel.server.http.exchange import HttpExchange
from semel.server.http.flow import Flow
from semel.server.http.head import (
    SPECIAL,
    announced_length,
    asks_for_websocket,
    check_head,
    expects_continue,
    has_body,
    is_plain,
    target_of,
)
from semel.server.http.head_shapes import HeadShape, RunningExchange, WaitingExchange
from semel.server.http.request import Request

if TYPE_CHECKING:
    from semel.server.http.server import HttpHost
    from semel.server.quotas.accounts import QuotaAccount

SLICE_BYTES = 16 * 1024
MAX_EXCESS_BYTES = 16 * 1024
"""Limit on the bytes of chunk extensions and trailers of one request; within one parsed slice there may be more."""
CHUNK_BYTES = 20
"""Bytes of a chunk besides its content that do not count as excess: its size and two line ends."""

_TOO_MUCH_EXCESS = Refusal(
    "INVALID_REQUEST", f"Chunk extensions and trailers of a request may have at most {MAX_EXCESS_BYTES} bytes."
)
_NOT_HTTP = Refusal("INVALID_REQUEST", "This is not a valid HTTP request.")
_METHODS = {method.encode(): method for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
HANDSHAKE_LINE_BYTES = 8_000
"""The WebSocket library reads lines of up to 8,192 bytes; a longer line is refused here, like any other invalid
head.
"""
_LONG_HANDSHAKE = Refusal(
    "HEADERS_TOO_LARGE",
    f"The target and each header of a WebSocket handshake may have at most {HANDSHAKE_LINE_BYTES} bytes.",
)
_UPGRADE_WITH_BODY = Refusal("INVALID_REQUEST", "Send a request with a body without the Upgrade header.")


class _IgnoredError(Exception):
    """Bytes after the last request of a connection; raised through the parser, which stops there."""


class RequestReader(asyncio.Protocol):
    """The reading half of a connection: its requests are in `waiting`, in order."""

    __slots__ = (
        "_began_at",
        "_chunks",
        "_content",
        "_data_at",
        "_excess",
        "_fed",
        "_has_met_boundary",
        "_head_waiting",
        "_headers",
        "_is_arriving",
        "_is_chunked",
        "_is_deaf",
        "_is_head_open",
        "_parser",
        "_special",
        "_url",
        "_websocket",
        "account",
        "application",
        "client",
        "flow",
        "host",
        "is_stopping",
        "latest",
        "limits",
        "loop",
        "running",
        "scheme",
        "server",
        "transport",
        "waiting",
    )

    transport: asyncio.Transport
    flow: Flow

    def __init__(self, host: HttpHost, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.loop = loop
        self.application = host.application
        self.limits = host.limits
        self.scheme = "http"
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self.account: QuotaAccount | None = None
        """The account that counts the connection: that of the principal of its latest request."""
        self.is_stopping = False
        """Whether the server closes the connection after the pending answers."""
        self.waiting: deque[WaitingExchange] = deque()
        """Requests whose head has arrived and that have not started."""
        self.running: RunningExchange | None = None
        """The request whose answer is next."""
        self.latest: HttpExchange | None = None
        """The request whose head arrived last."""
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._url = b""
        self._headers: list[Header] = []
        self._special: list[Header] = []
        """The headers of the head that the host acts on."""
        self._began_at = self._data_at = loop.time()
        self._fed = 0
        """Bytes of the slices that contain the request so far: an upper bound for its head."""
        self._head_waiting = 0
        """Bytes of a head that were parsed since a line of it last ended within a slice."""
        self._content = 0
        """Bytes of the slice that are content of bodies, or the minimum framing of chunks."""
        self._chunks = 0
        """The number of chunks in the slice."""
        self._excess = 0
        self._has_met_boundary = False
        self._is_head_open = True
        self._is_chunked = False
        self._is_arriving = False
        self._is_deaf = False
        """Whether further input is dropped, because it follows a refusal or the last request."""
        self._websocket: Callable[[], UpgradedConnection] | None = None
        """The handler that takes over the connection after the parser has read the handshake."""

    # ---- Implemented by the writing half ----

    def refuse(self, refusal: Refusal) -> None:
        """End the connection with a refusal, after the answers to earlier requests."""
        raise NotImplementedError

    def hand_over(self, rest: bytes) -> None:
        """Pass the connection to the surface that serves WebSockets at the path; `rest` are the bytes after the
        head.
        """
        raise NotImplementedError

    def listen(self) -> None:
        """Read the socket unless the application is behind."""
        raise NotImplementedError

    def spawn(self, work: Coroutine[Any, Any, None], at_end: Callable[[], None]) -> None:
        """Run a coroutine in a task that the host tracks; `at_end` is called even if the task never starts."""
        task = self.loop.create_task(work)
        self.host.tasks.add(task)
        task.add_done_callback(partial(self._ended, at_end))

    def _ended(self, at_end: Callable[[], None], task: asyncio.Task[None]) -> None:
        self.host.tasks.discard(task)
        at_end()

    def answered(self, exchange: RunningExchange) -> None:
        """A request has been answered completely."""
        raise NotImplementedError

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int, prefix: bytes = b"") -> None:
        """Recognize requests like the one that is being handed over."""
        raise NotImplementedError

    # ---- Parsing ----

    @property
    def is_dense(self) -> bool:
        """Whether the next bytes may cause many callbacks of the parser, because heads and chunks may be small."""
        return self._is_head_open or self._is_chunked

    def parse(self, data: bytes) -> None:
        """Feed the parser. Bytes that it holds back are counted here, because only the parser sees a line without an
        end.
        """
        parser = self._parser
        if self._is_deaf or parser is None:
            return
        self._data_at = self.loop.time()
        self._has_met_boundary = False
        self._content = self._chunks = 0
        self._fed = self._fed + len(data) if self._is_arriving else len(data)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._is_deaf = True  # the bytes after such a head are not HTTP
            if self._websocket is not None:
                self.hand_over(data[upgrade.args[0] :])
        except HttpParserError as error:
            self._refuse_broken(error)
        else:
            if self._has_met_boundary:
                self._head_waiting = 0  # the slice bounds what it contains of a new head
            elif self._is_arriving:
                self._check_growth(len(data))

    def _refuse_broken(self, error: HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, _IgnoredError) or self._is_last():
            self._is_deaf = True
        elif isinstance(cause, Refused):
            self.refuse(cause.refusal)
        else:
            self.refuse(_NOT_HTTP)

    def _is_last(self) -> bool:
        """Whether no request can follow the latest one, which has arrived completely."""
        return not self._is_arriving and self.latest is not None and not self.latest.keep_alive

    def _check_growth(self, size: int) -> None:
        """Check the limits of a head or body of which no line or chunk ended in the last slice."""
        if self._is_head_open:
            self._head_waiting += size
            if self._head_waiting > 2 * self.limits.head_bytes or self._is_head_too_large():
                self.refuse(self._too_large())
            return
        self._excess = max(self._excess + size - self._content, 0)
        if self._excess > MAX_EXCESS_BYTES:
            self.refuse(_TOO_MUCH_EXCESS)

    def _is_head_too_large(self) -> bool:
        if len(self._headers) > self.limits.head_fields:
            return True
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        return size > self.limits.head_bytes

    def _too_large(self) -> Refusal:
        most, fields = self.limits.head_bytes, self.limits.head_fields
        return Refusal("HEADERS_TOO_LARGE", f"Target and headers may have at most {most} bytes and {fields} fields.")

    # ---- Called by the parser ----

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.latest is not None and not self.latest.keep_alive:
            raise _IgnoredError
        self._url = b""
        self._headers = []
        self._special = []
        self._has_met_boundary = True
        self._is_arriving = True
        self._began_at = self._data_at

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers are ignored."""
        if self._is_head_open:
            header = (name.lower(), value.strip())
            self._headers.append(header)
            if header[0] in SPECIAL:
                self._special.append(header)

    def on_headers_complete(self) -> None:
        """The head is complete: queue its request."""
        self._has_met_boundary = True
        parser, headers = self._parser, self._headers
        assert parser is not None
        limits = self.limits
        if (self._fed > limits.head_bytes or len(headers) > limits.head_fields) and self._is_head_too_large():
            raise Refused.of(self._too_large())
        version = parser.get_http_version()
        special = self._special
        if len(special) > 1 or not is_plain(version, special):
            check_head(version, special)
        asked = parser.get_method()
        method = _METHODS.get(asked) or asked.decode("ascii")
        is_upgrade = parser.should_upgrade()
        if is_upgrade:
            self._websocket = self._websocket_of(method, version)
            if self._websocket is not None:
                return
        raw_path, query = self._url, b""
        if raw_path[:1] != b"/" or b"?" in raw_path or b"#" in raw_path:
            raw_path, query = target_of(method, raw_path, headers)
        exchange = HttpExchange(self, version == "1.1" and not is_upgrade and parser.should_keep_alive())
        exchange.request = request = Request(
            exchange, method, raw_path, query, headers, version, self.scheme, self.client, self.server
        )
        if len(special) > 1:
            self._is_chunked = any(name == b"transfer-encoding" for name, _ in special)
            self._excess = 0
            if expects_continue(version, special):
                exchange.waits_for_continue = True
                request.announced = announced_length(headers)
        else:
            self._is_chunked = False
        self._is_head_open = False
        self.latest = exchange
        self.waiting.append(exchange)

    def _websocket_of(self, method: str, version: str) -> Callable[[], UpgradedConnection] | None:
        """The WebSocket handler for a handshake on the data listener, if no earlier request waits for its answer.

        The parser ends an upgraded message at its head and discards the body, so a handshake with a body is refused.
        """
        if has_body(self._headers):
            raise Refused.of(_UPGRADE_WITH_BODY)
        if version != "1.1" or self.running is not None or self.waiting or self.application.is_control(self.server):
            return None
        if method != "GET" or not asks_for_websocket(self._headers):
            return None
        found = self.application.socket_at(self._url.partition(b"?")[0])
        if found is not None and self._has_long_line():
            raise Refused.of(_LONG_HANDSHAKE)
        return found

    def _has_long_line(self) -> bool:
        """Whether a line of the head is longer than the WebSocket library reads."""
        return len(self._url) > HANDSHAKE_LINE_BYTES or any(
            len(name) + len(value) > HANDSHAKE_LINE_BYTES for name, value in self._headers
        )

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._chunks += 1
        self._content += CHUNK_BYTES

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._content += len(body)
        assert self.latest is not None
        self.latest.take(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._has_met_boundary = True
        self._is_arriving = False
        self._is_head_open = True
        if self._websocket is None and self.latest is not None:
            self.latest.complete()
