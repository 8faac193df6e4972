"""Forwards requests to the upstream and answers back, as an ASGI application inside the middleware.

The middleware has read a request with a key completely; one without a key is streamed both ways. Failures:

| | with a key | without |
|---|---|---|
| no connection: nothing was sent | 502; the key is released | 502 |
| any later failure | `OutcomeUnknown`: the claim is abandoned | 502, or 504 after a timeout |

Nothing is ever sent twice: a request with an unsafe method uses a new connection, so that a closed idle connection is
not mistaken for a lost answer. A crash here leaves the claim, and so an unknown outcome.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from types import SimpleNamespace

import aiohttp
from yarl import URL

from semel.once.asgi import Message, Receive, Scope, Send
from semel.once.errors import OutcomeUnknown
from semel.once.exchange import OnceAnswer, problem
from semel.once.request import current as current_request
from semel.proxy.headers import Peer, answer_fields, body_length, request_fields
from semel.proxy.settings import ProxySettings

REUSING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Safe methods, which may reuse a connection and may be sent again."""
AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that the HTTP client would add."""
MAX_HEAD_BYTES = 65_536


class ProxyClientGoneError(Exception):
    """The client disconnected before the end of its request."""


class Flight:
    """One request, and whether a byte of it may have been sent."""

    def __init__(self) -> None:
        self.has_left = False


def nowhere(point: str) -> None:
    """The hook at named points; only tests replace it."""


class Forward:
    """The upstream as an ASGI application."""

    def __init__(self, settings: ProxySettings, reached: Callable[[str], None] = nowhere) -> None:
        self._settings = settings
        self._reached = reached
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def open(self) -> None:
        """Open the HTTP clients, in the event loop that uses them."""
        for is_fresh in (True, False):
            self._sessions[is_fresh] = aiohttp.ClientSession(
                # The proxy itself limits its requests.
                connector=aiohttp.TCPConnector(limit=0, force_close=is_fresh, socket_factory=self._socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=AUTO_HEADERS,
                trace_configs=[_departure()],
                max_line_size=MAX_HEAD_BYTES,
                max_field_size=MAX_HEAD_BYTES,
            )

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """A socket with a system timeout for unsent data, because closing it waits for an upstream that does not
        read."""
        family, kind, protocol = address[:3]
        made = socket.socket(family, kind, protocol)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self._settings.idle_timeout * 2_000))
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request."""
        keyed = current_request.get()
        fields = request_fields(scope["headers"], self._peer(scope))
        if keyed is None:
            await self._passed(scope, fields, receive, send)
        else:
            await self._keyed(keyed.who.key, scope, fields, receive, send)

    async def _keyed(self, key: str, scope: Scope, fields: list[tuple[str, str]], receive: Receive, send: Send) -> None:
        """Forward a request with a key; the middleware stores its answer first."""
        limits, flight = self._settings, Flight()
        body = (await receive()).get("body", b"")
        times = aiohttp.ClientTimeout(total=None, connect=limits.connect_timeout, sock_read=limits.idle_timeout)
        self._reached("claimed")

        async def timed(message: Message) -> None:
            if is_event_stream(message):
                limit.reschedule(None)  # events have no end to wait for, and are not stored
            await send(message)

        try:
            async with asyncio.timeout(limits.answer_timeout) as limit:
                await self._exchanged(scope, [*fields, ("content-length", str(len(body)))], body, times, flight, timed)
        except Exception as error:
            if flight.has_left:
                raise OutcomeUnknown(key) from error
            if (keyed := current_request.get()) is not None:
                keyed.did_nothing = True  # nothing was sent: the key is released
            await answered(send, _unreachable())

    async def _passed(self, scope: Scope, fields: list[tuple[str, str]], receive: Receive, send: Send) -> None:
        """Forward a request without a key, and cancel it if the client disconnects."""
        is_started = False

        async def noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        length = body_length(scope["headers"])
        flight, upload = Flight(), Upload(receive, length, self._settings)
        work = asyncio.create_task(self._streamed(scope, fields, length, upload, flight, noted))
        gone = asyncio.create_task(upload.left())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                if not task.done():
                    task.cancel()
            found = (await asyncio.gather(work, gone, return_exceptions=True))[0]
        if upload.fault is not None:
            raise upload.fault
        if isinstance(found, Exception) and not is_started:
            await answered(send, _failed(found, flight))

    async def _streamed(
        self,
        scope: Scope,
        fields: list[tuple[str, str]],
        length: int | None,
        upload: Upload,
        flight: Flight,
        send: Send,
    ) -> None:
        if length == 0:
            await upload.drained()
        elif length is not None:
            fields = [*fields, ("content-length", str(length))]
        times = aiohttp.ClientTimeout(
            total=None, connect=self._settings.connect_timeout, sock_read=self._settings.idle_timeout
        )
        body = None if length == 0 else upload.pieces()
        await self._exchanged(scope, fields, body, times, flight, send, upload)

    async def _exchanged(
        self,
        scope: Scope,
        fields: list[tuple[str, str]],
        body: bytes | AsyncIterator[bytes] | None,
        times: aiohttp.ClientTimeout,
        flight: Flight,
        send: Send,
        upload: Upload | None = None,
    ) -> None:
        """Send one request and read its answer. Redirects are passed on."""
        is_fresh = body is not None or scope["method"] not in REUSING
        sending = self._sessions[is_fresh].request(
            scope["method"],
            self._url(scope),
            headers=fields,
            data=body,
            allow_redirects=False,
            timeout=times,
            trace_request_ctx=flight,
        )
        response = await (sending if upload is None else upload.watched(sending))
        async with response:
            headers = answer_fields(response.raw_headers, formatdate(usegmt=True).encode())
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for piece in response.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if current_request.get() is not None:
                self._reached("received")
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _url(self, scope: Scope) -> URL:
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        return URL(self._settings.upstream + (scope["raw_path"] + query).decode("ascii"), encoded=True)

    def _peer(self, scope: Scope) -> Peer:
        settings, client = self._settings, scope.get("client")
        host = settings.upstream_host if settings.is_host_rewritten else ""
        return Peer(client[0] if client else "unknown", scope["scheme"], host, settings.is_forwarded_trusted)


class Upload:
    """The streamed body of a request, and the client's messages after it."""

    def __init__(self, receive: Receive, length: int | None, settings: ProxySettings) -> None:
        self._receive = receive
        self._left = length
        self._idle_seconds = settings.idle_timeout
        self._first_seconds = settings.connect_timeout + settings.idle_timeout
        self._limit: asyncio.Timeout | None = None
        self._read = asyncio.Event()
        self.fault: Exception | None = None
        """Why the client's side ended, so that the upstream is not blamed."""

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body. The HTTP client asks for the next piece after the upstream has taken the last one."""
        while not self._read.is_set():
            self._moved()
            try:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ProxyClientGoneError
            except Exception as error:
                self.fault = error
                raise
            self._moved()
            piece: bytes = message.get("body", b"")
            self._count(piece, is_last=not message.get("more_body", False))
            if piece:
                yield piece

    async def drained(self) -> None:
        """Read an empty body to its end."""
        async for _ in self.pieces():
            pass

    async def watched(self, sending: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """The head of the answer. Raises `TimeoutError` if neither side makes progress."""
        async with asyncio.timeout(self._first_seconds) as limit:
            self._limit = limit
            try:
                return await sending
            finally:
                self._limit = None

    async def left(self) -> None:
        """Wait until the client disconnects."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.fault = ProxyClientGoneError()

    def _count(self, piece: bytes, *, is_last: bool) -> None:
        """Count body bytes to know the end early: the HTTP client stops asking after Content-Length bytes."""
        if self._left is not None:
            self._left -= len(piece)
        if is_last or self._left == 0:
            self._read.set()

    def _moved(self) -> None:
        if self._limit is not None:
            with suppress(RuntimeError):  # it has just expired
                self._limit.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)


def is_event_stream(message: Message) -> bool:
    """Whether a stream of events begins."""
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )


async def answered(send: Send, answer: OnceAnswer) -> None:
    """Send an answer of the proxy itself."""
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


def _departure() -> aiohttp.TraceConfig:
    """Marks a request as sent when its connection is open, before anything is written."""

    async def connected(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.has_left = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    trace.on_connection_reuseconn.append(connected)
    return trace


def _unreachable() -> OnceAnswer:
    return problem(502, "upstream_unreachable", "The service behind this proxy cannot be reached; nothing was sent.")


def _failed(error: Exception, flight: Flight) -> OnceAnswer:
    if not flight.has_left:
        return _unreachable()
    if isinstance(error, TimeoutError):
        return problem(504, "upstream_timeout", "The service behind this proxy did not answer in time.")
    return problem(502, "upstream_failed", "The service behind this proxy broke off before it had answered.")
