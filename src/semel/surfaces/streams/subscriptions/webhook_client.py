"""One webhook request: resolve, check, connect to the checked address, send, and read a bounded answer.

Every address of the host is checked before a connection is made, and the connection goes to such an address, not to the
name: a name that resolves to another address a moment later changes nothing. TLS verifies the certificate of the name.
Redirects are not followed, and no proxy of the environment is used. The whole request has one time limit.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import NamedTuple

import httptools

from semel.surfaces.streams.subscriptions.rules.webhook_url import AddressPolicy, WebhookTarget, check_addresses

MAX_ADDRESSES = 4
"""Limit on the addresses of a host that are tried."""
RESOLVERS = 8
"""Threads that look up names: a slow name server must not stop other work of the process."""
MAX_HEAD_BYTES = 16 * 1024
PIECE_BYTES = 16 * 1024


class WebhookError(Exception):
    """There was no usable answer; the message says why, without any part of the request."""


class WebhookAnswer(NamedTuple):
    """The answer of a receiver."""

    status: int
    body: bytes


class _AnswerCollector:
    """The callbacks of httptools for one answer."""

    def __init__(self, most_bytes: int) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.body = bytearray()
        self.status = 0
        self.is_whole = False
        self._most_bytes = most_bytes
        self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._has_length = self._has_length or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if len(self.body) + len(body) > self._most_bytes:
            raise WebhookError("the answer is too large")
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = self.status >= 200

    def feed(self, data: bytes) -> None:
        """Take bytes; empty bytes are the end of the connection."""
        if not data:
            if self.status < 200 or self._has_length:
                raise WebhookError("the connection ended before the answer did")
            self.is_whole = True
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise WebhookError("the answer is not HTTP") from None
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, WebhookError):
                raise cause from None
            raise WebhookError("the answer is not HTTP") from None


@lru_cache(1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class WebhookClient:
    """Sends webhooks."""

    def __init__(self, policy: AddressPolicy, seconds: float, most_bytes: int) -> None:
        self._policy = policy
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._resolver = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="semel-webhook-names")

    async def post(self, target: WebhookTarget, body: bytes, headers: Sequence[tuple[str, str]]) -> WebhookAnswer:
        """Send one request; `WebhookError` if there is no whole answer in time."""
        try:
            async with asyncio.timeout(self._seconds):
                reader, writer = await self._connect(target, await self._addresses(target))
                try:
                    writer.write(_head(target, len(body), headers) + body)
                    await writer.drain()
                    return await self._answer(reader)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise WebhookError("there was no answer in time") from None
        except (OSError, ValueError) as error:  # a name that no look-up accepts is a ValueError
            raise WebhookError(f"the connection failed: {type(error).__name__}") from None

    async def _addresses(self, target: WebhookTarget) -> list[str]:
        """The addresses of the host, all of which may be connected to."""
        resolve = partial(
            socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        found = await asyncio.get_running_loop().run_in_executor(self._resolver, resolve)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
        if not check_addresses(addresses, self._policy, is_secure=target.is_secure):
            raise WebhookError("the address of the host is not allowed")
        return addresses[:MAX_ADDRESSES]

    async def _connect(
        self, target: WebhookTarget, addresses: Sequence[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = _tls() if target.is_secure else None
        name = target.host if target.is_secure else None
        for address in addresses[:-1]:
            try:
                return await asyncio.open_connection(
                    address, target.port, ssl=context, server_hostname=name, limit=PIECE_BYTES
                )
            except OSError:
                continue
        return await asyncio.open_connection(
            addresses[-1], target.port, ssl=context, server_hostname=name, limit=PIECE_BYTES
        )

    async def _answer(self, reader: asyncio.StreamReader) -> WebhookAnswer:
        collector = _AnswerCollector(self._most_bytes)
        taken = 0
        while not collector.is_whole:
            data = await reader.read(PIECE_BYTES)
            taken += len(data)
            if taken > 2 * self._most_bytes + MAX_HEAD_BYTES:  # chunks of one byte have a head each
                raise WebhookError("the answer is too large")
            collector.feed(data)
        return WebhookAnswer(collector.status, bytes(collector.body))


def _head(target: WebhookTarget, length: int, headers: Sequence[tuple[str, str]]) -> bytes:
    lines = [
        f"POST {target.target} HTTP/1.1",
        f"Host: {target.authority}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "Accept-Encoding: identity",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii")
