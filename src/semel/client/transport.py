"""One server over HTTP: a request out, a whole answer back, or a `NoAnswerError` in place of the library's own errors.

Answers are read up to a limit. Redirects are not followed, since they would carry the token elsewhere; proxies and
cookies of the environment are left alone.
"""

from __future__ import annotations

import asyncio
import io
from typing import NamedTuple

import aiohttp

from semel.client.access import Access
from semel.client.errors import BadAnswerError, NoAnswerError

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""How long an answer may take beyond what the server was asked to wait."""
KEEP_SECONDS = 60.0
"""Idle connections are let go before the server does, which waits 75 s."""
CHUNK_BYTES = 65_536
PIECEMEAL_BYTES = 1024 * 1024
"""A larger body is sent in pieces, so that the loop is not held up by one write."""

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
        self._headers = {"Accept-Encoding": "identity"}
        if access.token is not None:
            self._headers["Authorization"] = f"Bearer {access.token}"
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let go of the server."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float, most_bytes: int
    ) -> Answer:
        """The answer to one request, whatever its status."""
        if self._session is None:
            self._session = self._opened()
        timeout = aiohttp.ClientTimeout(total=wait_seconds + ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        headers = None if body is None else {"Content-Type": "application/json"}
        data = io.BytesIO(body) if body is not None and len(body) > PIECEMEAL_BYTES else body
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                content = await self._content(response, most_bytes)
                return Answer(response.status, _seconds(response.headers.get("Retry-After", "")), content)
        except _NOT_SENT as error:
            raise self._no_answer(error, is_unsettled=False) from None
        except _LOST as error:
            # `from None`: the library's errors carry the request with its headers, and so the token.
            raise self._no_answer(error, is_unsettled=True) from None

    async def _content(self, response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
        content = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            content += chunk
            if len(content) > most_bytes:
                response.close()
                raise BadAnswerError(f"The answer of {self.url} is larger than {most_bytes} bytes.")
        return bytes(content)

    def _opened(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEEP_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )

    def _no_answer(self, error: BaseException, *, is_unsettled: bool) -> NoAnswerError:
        what = "The answer was lost" if is_unsettled else "No server answers"
        return NoAnswerError(f"{what} at {self.url} ({type(error).__name__}).", is_unsettled=is_unsettled)


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 10 else 0.0
