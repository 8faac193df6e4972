"""Requests to one server: each is sent once here; `retry` repeats it.

`NoAnswerError` replaces the errors of sockets, TLS and HTTP, and tells whether the request may have taken effect.
Timeouts limit inactivity, not the total time: a large body may take long while it arrives. Answers are read up to a
size limit. Redirects are not followed, because they could send the token to another host; proxies and cookies of the
environment are not used.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from semel.client.access import Access
from semel.client.call_observer import CallObserver
from semel.client.errors import AnswerTooLargeError, BadAnswerError, InvalidArgumentError, NoAnswerError, SemelError
from semel.client.transport.connection_pool import ConnectionPools, HttpConnectionPool, PoolFullError
from semel.client.transport.http_answer import OpenAnswer, ProtocolError, read_head
from semel.client.transport.network import ByteStream, Network

ANSWER_SECONDS = 30.0
"""Timeout without progress of a request or an answer, in addition to the wait that the request asks for."""
JOINED_BYTES = 65_536
"""A body up to this size is sent together with its head."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
JSON = "application/json"
WITH_BODY = frozenset({"PATCH", "POST", "PUT"})
_NO_HEADERS: Mapping[str, str] = {}


class ClientRequest(NamedTuple):
    """One request."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    wait: float = 0.0
    """Seconds that the request asks the server to wait before it answers."""
    most_bytes: int = 0
    """Limit of the answer's body; 0 means the limit of the client."""
    unwaited: ClientRequest | None = None
    """For a request with `wait`: what is sent instead, at once, while other waits have all connections."""


class ClientAnswer(NamedTuple):
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes

    @property
    def retry_after(self) -> float:
        """Seconds to wait before a retry, as the server asked; 0 if it did not."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() and len(text) < 10 else 0.0

    def is_true(self, header: str) -> bool:
        """Whether a header is `true`."""
        return self.headers.get(header, "").lower() == "true"


class NoConnectionError(NoAnswerError):
    """All connections of the client are in use."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"All connections of this client to {url} are in use: raise `connections`.", is_unsettled=False
        )


class LiveAnswer:
    """An answer whose head has arrived. A truncated body raises `NoAnswerError`."""

    def __init__(self, transport: Transport, pool: HttpConnectionPool, stream: ByteStream, answer: OpenAnswer) -> None:
        self._transport = transport
        self._pool = pool
        self._stream: ByteStream | None = stream
        self._answer = answer
        self._pid = os.getpid()
        self.status = answer.status
        self.headers = answer.headers

    async def piece(self, seconds: float) -> bytes:
        """The next bytes of the body, within `seconds`; empty at its end."""
        if self._pid != os.getpid():  # after a fork the bytes are the parent's
            raise self._transport.no_answer(ConnectionResetError(), is_unsettled=True)
        try:
            return await self._answer.piece(seconds)
        except OSError as error:
            raise self._transport.lost(error) from None

    def close(self) -> None:
        """Give the connection back; a second call does nothing."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            self._pool.give_back(stream, is_reusable=self._answer.is_reusable)


class Transport:
    """The connections to one server."""

    def __init__(
        self, access: Access, network: Network, connections: int, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        self.url = access.url
        self._max_answer_bytes = max_answer_bytes
        self.network = network
        self.observer: CallObserver | None = None
        """Watches the requests, such as telemetry."""
        self._address = access.address
        self._pools = ConnectionPools(network, self._address, connections)
        self.authorize(access.token)

    def authorize(self, token: str | None) -> None:
        """Use another token from now on."""
        head = f"Host: {self._address.authority}\r\nAccept-Encoding: identity\r\n"
        self._bare_head = head
        self._head = head if token is None else f"{head}Authorization: Bearer {token}\r\n"
        self.credential: Mapping[str, str] = {} if token is None else {"Authorization": f"Bearer {token}"}

    def close(self) -> None:
        """Close the connections; a later request connects again."""
        self._pools.close()

    def end(self) -> None:
        """Close the connections; later requests raise."""
        self._pools.end()

    async def request(self, request: ClientRequest, answer_seconds: float = ANSWER_SECONDS) -> ClientAnswer:
        """The whole answer, whatever its status."""
        head = self._head_of(request)
        pool = self._pools.here()
        try:
            seconds = answer_seconds if request.unwaited is None else 0.0
            stream = await self._connected(pool, seconds, is_wait=request.wait > 0)
        except NoConnectionError:
            if request.unwaited is None:
                raise
            return await self.request(request.unwaited, answer_seconds)
        is_reusable = False
        try:
            answer = await self._exchange(stream, head, request, answer_seconds)
            body = await self._whole(answer, request.most_bytes or self._max_answer_bytes, answer_seconds)
            is_reusable = answer.is_reusable
            if self.observer is not None:
                self.observer.answered(answer.status, answer.headers, body)
            return ClientAnswer(answer.status, answer.headers, body)
        except OSError as error:
            raise self.lost(error) from None
        finally:
            pool.give_back(stream, is_reusable=is_reusable)

    async def begin(self, request: ClientRequest, answer_seconds: float = ANSWER_SECONDS) -> LiveAnswer:
        """The head of an answer whose body is read as it arrives; its owner must `close` it."""
        head = self._head_of(request)
        pool = self._pools.here()
        stream = await self._connected(pool, answer_seconds, is_wait=True)
        try:
            answer = await self._exchange(stream, head, request, answer_seconds)
            if self.observer is not None:
                self.observer.answered(answer.status, answer.headers, b"")
            return LiveAnswer(self, pool, stream, answer)
        except BaseException as error:
            pool.give_back(stream, is_reusable=False)
            if isinstance(error, OSError):
                raise self.lost(error) from None
            raise

    @asynccontextmanager
    async def open(self, request: ClientRequest, answer_seconds: float = ANSWER_SECONDS) -> AsyncIterator[LiveAnswer]:
        """As `begin`, for the block, which closes it."""
        answer = await self.begin(request, answer_seconds)
        try:
            yield answer
        finally:
            answer.close()

    async def _exchange(
        self, stream: ByteStream, head: bytes, request: ClientRequest, answer_seconds: float
    ) -> OpenAnswer:
        seconds = request.wait + answer_seconds
        body = request.body or b""
        # A server that refuses a large body stops reading it: its answer has arrived although sending failed.
        try:
            await stream.send(head + body if len(body) <= JOINED_BYTES else head, seconds)
            if len(body) > JOINED_BYTES:
                await stream.send(body, seconds)
        except TimeoutError:
            raise
        except OSError:
            pass  # read_head tells whether there was an answer
        return await read_head(stream, is_head=request.method == "HEAD", seconds=seconds)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[ByteStream]:
        """A connection of its own, closed at the end of the block: for a WebSocket."""
        pool = self._pools.here()
        stream = await self._connected(pool, ANSWER_SECONDS, is_wait=True)
        try:
            yield stream
        finally:
            pool.give_back(stream, is_reusable=False)

    def observed_headers(self, method: str, path: str) -> Mapping[str, str]:
        """Tell the observer of a request, or of a handshake; returns the headers that it adds."""
        return {} if self.observer is None else self.observer.sending(self._address, method, path)

    async def whole(self, answer: LiveAnswer, most_bytes: int) -> ClientAnswer:
        """The rest of an open answer."""
        return ClientAnswer(answer.status, answer.headers, await self._whole(answer, most_bytes))

    def no_answer(self, error: BaseException, *, is_unsettled: bool) -> NoAnswerError:
        """The error of a request without an answer. It has no text of the cause, which could have the token in it."""
        text = f"The connection to {self.url} was lost before the answer came."
        if not is_unsettled:
            text = f"No server answers at {self.url} ({type(error).__name__})."
        lost = NoAnswerError(text, is_unsettled=is_unsettled)
        lost.reason = type(error).__name__
        lost.refused_address = self._address if isinstance(error, ConnectionRefusedError) else None
        return lost

    def not_semel(self) -> BadAnswerError:
        """The error for an answer that is not from Semel."""
        return BadAnswerError(f"The server at {self.url} does not speak this protocol: check the URL.")

    def lost(self, error: OSError) -> SemelError:
        """The error for a connection that failed during an exchange."""
        return self.not_semel() if isinstance(error, ProtocolError) else self.no_answer(error, is_unsettled=True)

    async def _connected(self, pool: HttpConnectionPool, seconds: float, *, is_wait: bool) -> ByteStream:
        try:
            return await pool.take(seconds, is_wait=is_wait)
        except PoolFullError:
            raise NoConnectionError(self.url) from None
        except OSError as error:
            raise self.no_answer(error, is_unsettled=False) from None

    async def _whole(self, answer: OpenAnswer | LiveAnswer, most_bytes: int, seconds: float = ANSWER_SECONDS) -> bytes:
        length = answer.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most_bytes:
            raise self._too_large(most_bytes)
        first = await answer.piece(seconds)
        pieces, size = [first], len(first)
        while size <= most_bytes and (piece := await answer.piece(seconds)):
            pieces.append(piece)
            size += len(piece)
        if size > most_bytes:
            raise self._too_large(most_bytes)
        return first if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self, most_bytes: int) -> AnswerTooLargeError:
        return AnswerTooLargeError(
            f"The answer of {self.url} is larger than {most_bytes} bytes: raise max_answer_bytes."
        )

    def _head_of(self, request: ClientRequest) -> bytes:
        lines = [f"{request.method} {self._address.base}{request.path} HTTP/1.1\r\n"]
        for name, value in request.headers.items():
            if value != value.strip(" \t") or not value.isprintable():
                raise InvalidArgumentError(
                    f"The header {name} must not have control characters, line breaks or spaces at its ends."
                )
            lines.append(f"{name}: {value}\r\n")
        if self.observer is not None:
            for name, value in self.observed_headers(request.method, request.path).items():
                lines.append(f"{name}: {value}\r\n")
        if request.body is not None or request.method in WITH_BODY:
            lines.append(f"Content-Length: {len(request.body or b'')}\r\n")
        text = "".join(lines)
        rest = self._bare_head if "Authorization" in request.headers else self._head
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise InvalidArgumentError("A header or a path must not have a line break.")
        try:
            return f"{text}{rest}\r\n".encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidArgumentError("A header must be valid Unicode.") from None
