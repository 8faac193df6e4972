"""The HTTP transport of the SDK: the URL and credential of the server, requests, and whole answers.

URL and token come from arguments, else from SEMEL_URL, SEMEL_TOKEN and SEMEL_HMAC_KEY. Secrets are not in `repr`, so
that no log shows them.

`NoAnswerError` replaces the errors of the HTTP library. Timeouts limit inactivity, not the total time: a large body may
take long while it arrives. Answers are read up to a size limit. Redirects are not followed, because they could send the
token to another host; proxies and cookies of the environment are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

from semel.client.errors import AnswerTooLargeError, ConfigurationError, NoAnswerError, SemelError

DEFAULT_URL = "http://127.0.0.1:8788"
URL, TOKEN, HMAC_KEY = "SEMEL_URL", "SEMEL_TOKEN", "SEMEL_JOBS_RESULT_HMAC_KEY"


@dataclass(frozen=True, slots=True)
class Access:
    """A server and a credential for it."""

    url: str
    token: str | None = field(default=None, repr=False)
    hmac_key: bytes | None = field(default=None, repr=False)
    """The key that signs results; None if they have only checksums."""


def find_access(url: str | None, token: str | None, hmac_key: str | bytes | None, environ: Mapping[str, str]) -> Access:
    """The arguments, with defaults from the environment."""
    key = environ.get(HMAC_KEY, "") if hmac_key is None else hmac_key
    return Access(
        _checked_url(environ.get(URL) or DEFAULT_URL if url is None else url),
        _checked_token(environ.get(TOKEN, "").strip() if token is None else token) or None,
        (key.encode() if isinstance(key, str) else key) or None,
    )


def _checked_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isascii() or not text.isprintable():
        raise ConfigurationError("The server's URL is not valid: write it as http://127.0.0.1:8788.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            "The server's URL must not have a user, query or fragment: put the token into SEMEL_TOKEN."
        )
    return text.rstrip("/")


def _checked_token(token: str) -> str:
    """Refuse a token that a header cannot contain. The error of the HTTP library would show the token."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("The token has spaces, line breaks or special characters: remove them.")
    return token


CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""Timeout without progress of a request or an answer, in addition to the wait that the request asks for."""
KEEP_SECONDS = 60.0
"""Idle connections are closed before the server closes them, after 75 s."""
CHUNK_BYTES = 65_536
PING_SECONDS = 20.0
"""Interval of WebSocket pings; a connection without an answer within half of it has ended."""

OK = 200
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_LOST = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class ClientAnswer(NamedTuple):
    """A complete answer."""

    status: int
    retry_after: float
    body: bytes


class Transport:
    """The connections to one server, opened on first use in the event loop that uses them."""

    def __init__(self, access: Access, connections: int) -> None:
        self.url = access.url
        self._connections = connections
        self.authorize(access.token)
        self._session: aiohttp.ClientSession | None = None
        self._has_ended = False

    def authorize(self, token: str | None) -> None:
        """Use another token from now on."""
        self._headers = {"Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def end(self) -> None:
        """Close the connections; later calls raise."""
        self._has_ended = True
        await self.close()

    async def request(
        self, method: str, path: str, body: bytes | None, *, wait_seconds: float, most_bytes: int
    ) -> ClientAnswer:
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
                return ClientAnswer(response.status, _seconds(response.headers.get("Retry-After", "")), content)
        except _NOT_SENT as error:
            raise self._no_answer(error, is_unsettled=False) from None
        except _LOST as error:
            # `from None`: the library's errors contain the request's headers, and so the token.
            raise self._no_answer(error, is_unsettled=True) from None

    @asynccontextmanager
    async def lines(self, path: str, most_bytes: int) -> AsyncIterator[ClientAnswer | AsyncGenerator[bytes, None]]:
        """A GET whose answer is read line by line, at most `most_bytes` each; an answer other than 200 is read whole.

        A truncated answer raises `NoAnswerError`.
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
                    yield ClientAnswer(response.status, _seconds(response.headers.get("Retry-After", "")), content)
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
        """Open a WebSocket, or return the error; messages have at most `most_bytes` bytes."""
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
            f"The answer of {self.url} is larger than {most_bytes} bytes: raise max_answer_bytes."
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
    """A large body in pieces, so that each piece counts as progress and no write blocks the event loop."""
    for start in range(0, len(body), CHUNK_BYTES):
        _go_on(silence, wait_seconds)
        yield body[start : start + CHUNK_BYTES]


def _go_on(silence: asyncio.Timeout, wait_seconds: float) -> None:
    """Restart the timeout after progress."""
    if not silence.expired():
        silence.reschedule(asyncio.get_running_loop().time() + wait_seconds + ANSWER_SECONDS)
