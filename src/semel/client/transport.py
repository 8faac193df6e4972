"""HTTP transport to one server: a request out, a whole answer back, or a `NoAnswerError`.

What is limited is silence, and not the whole time: a large body may take long on a slow line, as long as it comes.
Answers are read up to a limit. Redirects are not followed, since they would carry the token elsewhere; proxies and
cookies of the environment are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp

from semel.client.access import Access
from semel.client.errors import AnswerTooLargeError, NoAnswerError, SemelError

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""How long the server may take nothing of a request and send nothing of an answer, beyond what it was asked to wait."""
KEEP_SECONDS = 60.0
"""Idle connections are closed before the server does so, which waits 75 s."""
CHUNK_BYTES = 65_536
PING_SECONDS = 20.0
"""A WebSocket whose server does not answer a ping within half of this has ended."""

OK = 200
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_LOST = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    retry_after: float
    body: bytes


class Transport:
    """The connections to one server; made when first used, in the loop that uses them."""

    def __init__(self, access: Access, connections: int) -> None:
        self.url = access.url
        self._connections = connections
        self.authorize(access.token)
        self._session: aiohttp.ClientSession | None = None
        self._has_ended = False

    def authorize(self, token: str | None) -> None:
        """The credential of calls from now on."""
        self._headers = {"Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    async def close(self) -> None:
        """Let go of the server."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def end(self) -> None:
        """Disconnect from the server for good: later calls raise."""
        self._has_ended = True
        await self.close()

    async def request(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float, most_bytes: int
    ) -> Answer:
        """The answer to one request, whatever its status."""
        if self._session is None:
            self._session = self._opened()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        headers = dict(self._headers)
        if body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        silence = asyncio.timeout(wait_seconds + ANSWER_SECONDS)
        data = None if body is None else body if len(body) <= CHUNK_BYTES else _pieces(body, silence, wait_seconds)
        try:
            async with (
                silence,
                self._session.request(
                    method, self.url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
                ) as response,
            ):
                content = await self._content(response, most_bytes, silence)
                return Answer(response.status, _seconds(response.headers.get("Retry-After", "")), content)
        except _NOT_SENT as error:
            raise self._no_answer(error, is_unsettled=False) from None
        except _LOST as error:
            # `from None`: the library's errors carry the request with its headers, and so the token.
            raise self._no_answer(error, is_unsettled=True) from None

    @asynccontextmanager
    async def lines(self, path: str, most_bytes: int) -> AsyncIterator[Answer | AsyncGenerator[bytes, None]]:
        """A GET that is answered by lines, each of at most `most_bytes`; any answer but 200 is returned whole.

        Lines that end too early end with a `NoAnswerError`, as when reading a whole answer.
        """
        if self._session is None:
            self._session = self._opened()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        silence = asyncio.timeout(ANSWER_SECONDS)
        try:
            async with (
                silence,
                self._session.get(
                    self.url + path, headers=self._headers, timeout=timeout, allow_redirects=False
                ) as response,
            ):
                if response.status == OK:
                    yield self._lines(response, most_bytes, silence)
                else:
                    content = await self._content(response, most_bytes, silence)
                    yield Answer(response.status, _seconds(response.headers.get("Retry-After", "")), content)
        except _NOT_SENT as error:
            raise self._no_answer(error, is_unsettled=False) from None
        except _LOST as error:
            raise self._no_answer(error, is_unsettled=True) from None

    async def _lines(
        self, response: aiohttp.ClientResponse, most_bytes: int, silence: asyncio.Timeout
    ) -> AsyncGenerator[bytes, None]:
        rest = bytearray()
        while True:
            _go_on(silence, 0.0)
            chunk = await response.content.read(CHUNK_BYTES)
            if not chunk:
                break
            seen, rest = len(rest), rest + chunk
            while (end := rest.find(b"\n", seen)) >= 0:
                line, rest, seen = bytes(rest[:end]), rest[end + 1 :], 0
                _go_on(silence, 0.0)
                yield line
            if len(rest) > most_bytes:
                response.close()
                raise self._too_large(most_bytes)

    async def websocket(self, path: str, most_bytes: int) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket, or the error in its place; messages are at most `most_bytes` large."""
        if self._session is None:
            self._session = self._opened()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._session.ws_connect(
                    self.url + path, headers=self._headers, max_msg_size=most_bytes, heartbeat=PING_SECONDS
                )
        except _LOST as error:
            raise self._no_answer(error, is_unsettled=False) from None

    async def _content(self, response: aiohttp.ClientResponse, most_bytes: int, silence: asyncio.Timeout) -> bytes:
        content = bytearray()
        is_too_large = (response.content_length or 0) > most_bytes
        while not is_too_large:
            _go_on(silence, 0.0)
            chunk = await response.content.read(CHUNK_BYTES)
            if not chunk:
                return bytes(content)
            content += chunk
            is_too_large = len(content) > most_bytes
        response.close()
        raise self._too_large(most_bytes)

    def _too_large(self, most_bytes: int) -> AnswerTooLargeError:
        return AnswerTooLargeError(
            f"The answer of {self.url} is larger than {most_bytes} bytes: allow more with max_answer_bytes."
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._has_ended:
            raise SemelError("The client has been closed.")
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEEP_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _no_answer(self, error: BaseException, *, is_unsettled: bool) -> NoAnswerError:
        what = "The answer was lost" if is_unsettled else "No server answers"
        return NoAnswerError(f"{what} at {self.url} ({type(error).__name__}).", is_unsettled=is_unsettled)


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 10 else 0.0


async def _pieces(body: bytes, silence: asyncio.Timeout, wait_seconds: float) -> AsyncIterator[bytes]:
    """A large body in pieces, so that each that is taken counts, and one write does not hold up the loop."""
    for start in range(0, len(body), CHUNK_BYTES):
        _go_on(silence, wait_seconds)
        yield body[start : start + CHUNK_BYTES]


def _go_on(silence: asyncio.Timeout, wait_seconds: float) -> None:
    """Something has moved: count from now."""
    if not silence.expired():
        silence.reschedule(asyncio.get_running_loop().time() + wait_seconds + ANSWER_SECONDS)
