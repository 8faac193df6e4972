"""One attempt to deliver a message over HTTP, with the standard library only.

The whole exchange ends before its deadline, however slowly the receiver reads or answers: each wait on the socket is
limited to the time that is left. It follows no redirect, uses no proxy and reads at most 64 KiB of an answer.
This module imports `http.client`, so it is imported only when a message is sent.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from semel.once.message_drafts import is_header_value
from semel.once.messages import Delivery, EnvSecret, OutboxMessage, key_header

MAX_ANSWER_BYTES = 65_536
SEND_BYTES = 65_536
AGENT = "semel-outbox"
MISMATCHES = frozenset({"IDEMPOTENCY_KEY_COLLISION", "WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED"})
"""Error codes of a Semel server's jobs and ledger for a key that was used for another write."""


class MissingSecretError(Exception):
    """The environment variable of a header's secret is not set or cannot be sent."""


class Sending(NamedTuple):
    """The options of a delivery."""

    connect_seconds: float
    secret: Callable[[str], str | None]
    clock: Callable[[], float]
    tls: ssl.SSLContext | None = None
    monotonic: Callable[[], float] = time.monotonic


def delivered(message: OutboxMessage, deadline: float, sending: Sending) -> Delivery:
    """Make one attempt. Nothing is sent after the deadline. A crash here changes nothing in the outbox."""
    try:
        headers = sent_headers(message, sending.secret)
    except MissingSecretError as error:
        return Delivery(error=str(error), is_seen=False)
    parts = urlsplit(message.url)
    is_secure = parts.scheme == "https"
    connection = _Connection(parts.hostname or "", parts.port, _Time(deadline, sending.monotonic), is_secure)
    try:
        try:
            connection.open(sending)
        except (OSError, ValueError) as error:  # a host that cannot be encoded is a ValueError
            return Delivery(error=f"no connection: {_words(error)}", is_seen=False)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return _exchanged(connection, message, target, headers, sending)
    finally:
        connection.hang_up()


def _exchanged(
    connection: _Connection, message: OutboxMessage, target: str, headers: dict[str, str], sending: Sending
) -> Delivery:
    try:
        connection.request(message.method, target, message.body, headers)
        answer = connection.getresponse()
        body = _body(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Delivery(error=f"no answer: {_words(error)}")
    status = answer.status
    is_final = status == http.HTTPStatus.CONFLICT and _says_never(body)
    retry_after = retry_after_seconds(answer.getheader("Retry-After"), answer.getheader("Date"), sending.clock())
    return Delivery(status, retry_after, _refusal(status), is_final=is_final)


def sent_headers(message: OutboxMessage, secret: Callable[[str], str | None]) -> dict[str, str]:
    """The headers of an attempt: the same each time, with the current values of secrets."""
    headers = {"Idempotency-Key": key_header(message.key), "Connection": "close"}
    if not any(name.lower() == "user-agent" for name in message.headers):
        headers["User-Agent"] = AGENT
    for name, value in message.headers.items():
        headers[name] = _secret(value, secret) if isinstance(value, EnvSecret) else value
    return headers


def _secret(value: EnvSecret, secret: Callable[[str], str | None]) -> str:
    found = secret(value.name)
    if not found or not is_header_value(found):
        raise MissingSecretError(f"the variable {value.name} is not set, or its value is not a single line of text")
    return value.prefix + found


def retry_after_seconds(text: str | None, date: str | None, now: float) -> float | None:
    """`Retry-After` in seconds. A date is compared with the receiver's `Date` header, or with `now` without one."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal():
        return float(text)
    until, since = _instant(text), _instant(date)
    if until is None:
        return None
    return max(0.0, until - (now if since is None else since))


def _instant(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _body(answer: http.client.HTTPResponse) -> bytes:
    """The first 64 KiB of an answer. A truncated answer is an error: the receiver may have died while it worked."""
    body = answer.read(MAX_ANSWER_BYTES)
    while len(body) < MAX_ANSWER_BYTES and (piece := answer.read(MAX_ANSWER_BYTES - len(body))):
        body += piece
    if answer.length and len(body) < MAX_ANSWER_BYTES:
        raise http.client.IncompleteRead(b"", answer.length)
    return body


def _says_never(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict):
        return False
    error = document.get("error")
    code = error.get("code") if isinstance(error, dict) else error
    return document.get("retry") == "never" or (isinstance(code, str) and code in MISMATCHES)


def _refusal(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    return "a redirect, which is not followed" if 300 <= status < 400 else f"refused with {status}"


def _words(error: BaseException) -> str:
    """The cause of an error, without any data that was sent."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


class _Time:
    """The time left until a deadline."""

    def __init__(self, deadline: float, monotonic: Callable[[], float]) -> None:
        self._deadline = deadline
        self._monotonic = monotonic

    def left(self) -> float:
        left = self._deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Connection(http.client.HTTPConnection):
    """A connection on which every wait ends at the deadline."""

    def __init__(self, host: str, port: int | None, left: _Time, is_secure: bool) -> None:
        self.default_port = 443 if is_secure else 80  # the default port is not in the Host header
        super().__init__(host, port)
        self._time = left
        self._is_secure = is_secure
        self._raw: socket.socket | None = None

    def open(self, sending: Sending) -> None:
        """Connect. No part of the message is sent."""
        seconds = min(sending.connect_seconds, self._time.left())
        sock = self._raw = socket.create_connection((self.host, self.port), seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._is_secure:
            tls = sending.tls or ssl.create_default_context()
            sock = self._raw = tls.wrap_socket(sock, server_hostname=self.host)
        self._time.left()
        self.sock = _TimedSocket(sock, self._time)

    def hang_up(self) -> None:
        """Close the socket. The base class would close it before the answer is read."""
        self.close()
        if self._raw is not None:
            self._raw.close()


class _TimedSocket:
    """The part of a socket that `http.client` uses."""

    def __init__(self, sock: socket.socket, left: _Time) -> None:
        self._sock = sock
        self._time = left

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            self._sock.settimeout(self._time.left())
            view = view[self._sock.send(view[:SEND_BYTES]) :]

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._time))

    def close(self) -> None:
        """Does nothing: `hang_up` closes the socket."""


class _TimedReader(io.RawIOBase):
    """Reads from a socket until the deadline."""

    def __init__(self, sock: socket.socket, left: _Time) -> None:
        super().__init__()
        self._sock = sock
        self._time = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._time.left())
        return self._sock.recv_into(buffer)
