"""Keys that verify JWTs, from a URL: fetched at the start, when they are too old, and when a token names another key.

A fetch runs in a thread, one at a time, with one limit of time and one of size. Redirects are not followed and no proxy
of the environment is used, so the keys come from the host that the operator has named. The keys are used for as long
as `Cache-Control: max-age` says, within bounds; a key that was withdrawn counts until then. While the URL is away or
its answer is unusable, the keys that were fetched last stay in use, each failure is counted, and the log says so once
an outage. Until the first fetch has succeeded, no JWT is accepted.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import httptools

from semel.server.auth.issuer_tls import tls_failure, trust_of
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.auth.jwt_keys import MAX_FILE_BYTES, KeySet, read_key_set

FETCH_SECONDS = 5.0
"""Time limit of one fetch, in seconds; looking up the name of the host comes on top of it."""
DEFAULT_AGE_SECONDS = 300.0
MIN_AGE_SECONDS = 30.0
MAX_AGE_SECONDS = 3_600.0
RETRY_SECONDS = 15.0
"""Time from a failed fetch to the next one, in seconds."""
MISS_SECONDS = 10.0
"""Shortest time between two fetches, in seconds, whatever keys tokens name."""
PIECE_BYTES = 16 * 1024
MAX_HEAD_BYTES = 64 * 1024

_MAX_AGE = re.compile(rb"(?:^|[\s,])max-age\s*=\s*\"?([0-9]{1,9})")
_UNCACHED = re.compile(rb"(?:^|[\s,])no-(?:store|cache)(?:$|[\s,=])")
_log = logging.getLogger("semel.server")


class FetchedKeys(NamedTuple):
    """The answer of the URL."""

    body: bytes
    max_age: float | None
    """Seconds for which the answer may be used; None if it does not say."""


class _KeyAnswer:
    """The callbacks of httptools for one answer."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.body = bytearray()
        self.max_age: float | None = None
        self.is_whole = False
        self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._has_length = self._has_length or name in (b"content-length", b"transfer-encoding")
        if name == b"cache-control":
            found = _MAX_AGE.search(value.lower())
            self.max_age = 0.0 if _UNCACHED.search(value.lower()) else float(found[1]) if found else self.max_age

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True

    def feed(self, data: bytes) -> None:
        """Take bytes; empty bytes are the end of the connection."""
        if data:
            self.parser.feed_data(data)
        elif self._has_length:
            raise KeyFileError("the answer was cut off")
        else:
            self.is_whole = True


def fetch_keys(url: str, ca_file: str = "") -> FetchedKeys:
    """Fetch the key set; blocks. Raises `KeyFileError` with the reason, which has no part of the answer.

    `ca_file` has the CA certificates that are trusted; empty trusts those of the system.
    """
    parts, deadline = urlsplit(url), time.monotonic() + FETCH_SECONDS
    is_secure = parts.scheme == "https"
    host = parts.hostname or ""
    address = (host, parts.port or (443 if is_secure else 80))
    try:
        with socket.create_connection(address, timeout=FETCH_SECONDS) as plain:
            if not is_secure:
                return _asked(plain, parts, deadline)
            with trust_of(ca_file).wrap_socket(plain, server_hostname=host) as secure:
                return _asked(secure, parts, deadline)
    except TimeoutError:
        raise KeyFileError("there was no answer in time") from None
    except ssl.SSLError as error:
        raise tls_failure(error, host) from None
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise KeyFileError(f"the connection failed: {reason or type(error).__name__}") from None
    except httptools.HttpParserError:
        raise KeyFileError("the answer is not HTTP") from None


def _asked(connection: socket.socket, parts: SplitResult, deadline: float) -> FetchedKeys:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = (f"GET {target} HTTP/1.1", f"Host: {parts.netloc}", "Accept: application/jwk-set+json, application/json")
    head = "\r\n".join((*lines, "Accept-Encoding: identity", "User-Agent: semel", "Connection: close", "", ""))
    connection.sendall(head.encode("ascii"))
    answer, taken = _KeyAnswer(), 0
    while not answer.is_whole:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(PIECE_BYTES)
        taken += len(data)
        if taken > 2 * MAX_FILE_BYTES + MAX_HEAD_BYTES or len(answer.body) > MAX_FILE_BYTES:
            raise KeyFileError("the answer is too large")
        answer.feed(data)
    status = answer.parser.get_status_code()
    if status != 200:
        told = ", and redirects are not followed" if 300 <= status < 400 else ""
        raise KeyFileError(f"the answer has the status {status}{told}")
    return FetchedKeys(bytes(answer.body), answer.max_age)


class KeyUrl:
    """The current keys of a URL; used on the event loop, which never waits for a fetch."""

    def __init__(self, url: str, algorithms: Collection[str], fetch: Callable[[str], FetchedKeys] = fetch_keys) -> None:
        self.keys = KeySet(())
        self.failures = 0
        """Fetches that have failed since the start."""
        parts = urlsplit(url)
        self._url = url
        self._shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._algorithms = tuple(name for name in algorithms if name != "HS256")  # a secret is not published
        self._fetch = fetch
        self._body: bytes | None = None
        self._has_changed = self._is_away = False
        self._fetched_at: float | None = None
        self._pause = RETRY_SECONDS
        self._wanted = asyncio.Event()

    def look(self, now_ms: int) -> bool:
        """Whether the keys have changed since the last look."""
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def miss(self) -> None:
        """A token names another key: fetch the keys soon."""
        self._wanted.set()

    def reload(self) -> None:
        """Fetch the keys soon."""
        self._wanted.set()

    def age_seconds(self) -> float | None:
        """Seconds since the last fetch that succeeded; None before the first."""
        return None if self._fetched_at is None else time.monotonic() - self._fetched_at

    async def refresh(self) -> None:
        """Fetch the keys; a failure is counted and logged, and changes nothing else."""
        try:
            body, max_age = await asyncio.to_thread(self._fetch, self._url)
            if body != self._body:
                keys = await asyncio.to_thread(
                    read_key_set, body, f"The answer of {self._shown}", self._shown, self._algorithms
                )
                self.keys, self._body, self._has_changed = keys, body, True
                _log.info("the keys of JWTs were fetched", extra={"url": self._shown})
        except Exception as error:  # noqa: BLE001 - whatever the URL answers, the server goes on with its keys
            self._fail(str(error) if isinstance(error, KeyFileError) else type(error).__name__)
            return
        age = DEFAULT_AGE_SECONDS if max_age is None else max_age
        self._pause = min(max(age, MIN_AGE_SECONDS), MAX_AGE_SECONDS)
        self._fetched_at = time.monotonic()
        self._is_away = False

    def _fail(self, why: str) -> None:
        self.failures += 1
        self._pause = RETRY_SECONDS
        if not self._is_away:
            self._is_away = True
            kept = "no JWT is accepted" if self._body is None else "the keys that were fetched last stay in use"
            _log.error("the keys of JWTs cannot be fetched; %s", kept, extra={"url": self._shown, "why": why})

    async def run(self) -> None:
        """Keep the keys fresh until cancelled; the first fetch is that of the start."""
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(max(0.0, MISS_SECONDS - (time.monotonic() - began)))
            self._wanted.clear()
            await self.refresh()
