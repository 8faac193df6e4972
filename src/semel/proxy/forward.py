"""Forwards a request to the upstream and its answer back: an ASGI application behind the middleware.

A request with a key was read as a whole by the middleware; one without is streamed both ways. What may go wrong:

| | with a key | without |
|---|---|---|
| no connection was made: nothing was sent | 502; the key is released, as by every 5xx | 502 |
| anything later | `OutcomeUnknown`: the claim is abandoned | 502, or 504 when a time is over |

Nothing is ever sent twice: a request that may change something has a connection of its own, so the end of an idle
connection cannot be taken for a lost answer. A crash here leaves the claim, and so the unknown.
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
from semel.once.exchange import Answer, problem
from semel.once.joined import request as current_request
from semel.proxy.headers import Peer, answer_fields, body_length, request_fields
from semel.proxy.settings import ProxySettings

REUSING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that may be sent on a connection that was used before: they change nothing, so they may be sent again."""
AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that the client library would add by itself."""
MAX_HEAD_BYTES = 65_536


class ClientGoneError(Exception):
    """The client left before it had said all."""


class Flight:
    """One request on its way: whether a byte of it may have left."""

    def __init__(self) -> None:
        self.has_left = False


def nowhere(point: str) -> None:
    """The hook at the named points: does nothing, except in tests."""


class Forward:
    """The upstream as an ASGI application."""

    def __init__(self, settings: ProxySettings, reached: Callable[[str], None] = nowhere) -> None:
        self._settings = settings
        self._reached = reached
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def open(self) -> None:
        """Make the clients; within the loop that will use them."""
        for is_fresh in (True, False):
            self._sessions[is_fresh] = aiohttp.ClientSession(
                # The proxy bounds its requests itself.
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
        """A socket that the system gives up when the upstream takes nothing: closing it waits for what is unsent."""
        family, kind, protocol = address[:3]
        made = socket.socket(family, kind, protocol)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self._settings.idle_timeout * 2_000))
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send one request on."""
        keyed = current_request.get()
        fields = request_fields(scope["headers"], self._peer(scope))
        if keyed is None:
            await self._passed(scope, fields, receive, send)
        else:
            await self._keyed(keyed.who.key, scope, fields, receive, send)

    async def _keyed(self, key: str, scope: Scope, fields: list[tuple[str, str]], receive: Receive, send: Send) -> None:
        """A request that takes effect once; its answer goes to the middleware, which stores it first."""
        limits, flight = self._settings, Flight()
        body = (await receive()).get("body", b"")
        times = aiohttp.ClientTimeout(
            total=limits.answer_timeout, connect=limits.connect_timeout, sock_read=limits.idle_timeout
        )
        self._reached("claimed")
        try:
            await self._exchanged(scope, [*fields, ("content-length", str(len(body)))], body, times, flight, send)
        except Exception as error:
            if flight.has_left:
                raise OutcomeUnknown(key) from error
            await answered(send, _unreachable())

    async def _passed(self, scope: Scope, fields: list[tuple[str, str]], receive: Receive, send: Send) -> None:
        """A request that is passed on as it is, and given up when its client leaves."""
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
        """One request and its answer; a redirect is passed on like any other answer."""
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
    """The body of a request that is streamed, and what the client does behind it."""

    def __init__(self, receive: Receive, length: int | None, settings: ProxySettings) -> None:
        self._receive = receive
        self._left = length
        self._idle_seconds = settings.idle_timeout
        self._first_seconds = settings.connect_timeout + settings.idle_timeout
        self._limit: asyncio.Timeout | None = None
        self._read = asyncio.Event()
        self.fault: Exception | None = None
        """Why the client's side ended: no answer of the upstream's is to be blamed for it."""

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body; the client library asks for the next piece when the upstream has taken the one before it."""
        while not self._read.is_set():
            self._moved()
            try:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
            except Exception as error:
                self.fault = error
                raise
            self._moved()
            piece: bytes = message.get("body", b"")
            self._count(piece, is_last=not message.get("more_body", False))
            if piece:
                yield piece

    async def drained(self) -> None:
        """Read to the end of a body that is empty."""
        async for _ in self.pieces():
            pass

    async def watched(self, sending: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """The head of the answer; `TimeoutError` when neither side moves for too long."""
        async with asyncio.timeout(self._first_seconds) as limit:
            self._limit = limit
            try:
                return await sending
            finally:
                self._limit = None

    async def left(self) -> None:
        """Wait until the client has gone."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.fault = ClientGoneError()

    def _count(self, piece: bytes, *, is_last: bool) -> None:
        """The end is known before the last piece is taken: the library stops asking when it has all it was told."""
        if self._left is not None:
            self._left -= len(piece)
        if is_last or self._left == 0:
            self._read.set()

    def _moved(self) -> None:
        if self._limit is not None:
            with suppress(RuntimeError):  # it has just expired
                self._limit.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)


async def answered(send: Send, answer: Answer) -> None:
    """Send an answer of the proxy's own."""
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


def _departure() -> aiohttp.TraceConfig:
    """Notes that a connection is there, before anything is written to it."""

    async def connected(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.has_left = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    trace.on_connection_reuseconn.append(connected)
    return trace


def _unreachable() -> Answer:
    return problem(502, "upstream_unreachable", "The service behind this proxy cannot be reached; nothing was sent.")


def _failed(error: Exception, flight: Flight) -> Answer:
    if not flight.has_left:
        return _unreachable()
    if isinstance(error, TimeoutError):
        return problem(504, "upstream_timeout", "The service behind this proxy did not answer in time.")
    return problem(502, "upstream_failed", "The service behind this proxy broke off before it had answered.")
