"""Receipts on a Semel server: one stream per key, at `/v1/stream/<table>/<SHA-256 of scope and key>`.

A change is on the server's disk when it returns. An append whose answer was lost is retried with its `Idempotency-Key`
and stored once. If the server does not answer, `StoreUnavailable` is raised. The token is an argument or the variable
`SEMEL_TOKEN`; it is sent in a header and never appears in an error or URL.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import queue
import re
import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from semel.once.claims import OnceClaim, ReceiptChange
from semel.once.errors import InvalidKey, StoreUnavailable
from semel.once.identity import OnceIdentity
from semel.once.receipt_log import ReceiptEntry, decided, last_entry, needed_ttl_ms, page_of, too_short
from semel.once.stores import MAX_IDLE, TRIES, ReceiptStore
from semel.once.table import Row, checked

TIMEOUT_SECONDS = 10.0
MAX_RACES = 64
"""How often a change is decided again after another caller appended first."""
MAX_ANSWER_BYTES = 16 * 1_048_576
MAX_PAGES = 10_000
SENDABLE = re.compile(r"[\x21-\x7e]+")
"""The characters of a token."""


class ReceiptAnswer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ReceiptLog(NamedTuple):
    """The log of a key, as read from the server."""

    length: int
    last: ReceiptEntry | None
    now_ms: int
    """The server's time, in milliseconds since 1970."""


class ServerStore(ReceiptStore):
    """Receipts on a Semel server."""

    def __init__(self, url: str, table: str, token: str | None) -> None:
        port = _port_of(url)
        parts = urlsplit(url)
        if parts.username or parts.query or parts.fragment or not parts.hostname:
            raise InvalidKey("The URL of a Semel server must have a host, and no user, query or fragment.")
        if token and not SENDABLE.fullmatch(token):
            raise InvalidKey(
                "The token has a character that is not allowed in a header: check for a line break at its end."
            )
        self._is_tls, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._folder = f"{parts.path.rstrip('/')}/v1/stream/{checked(table)}"
        self._token = token
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue(MAX_IDLE)

    def change(self, change: ReceiptChange) -> Sequence[Row]:
        """Apply one change: decide on the entries read, and append unless another caller appended first."""
        path = self._path(change.who)
        for _ in range(MAX_RACES):
            log = self._read(path)
            entry, rows = decided(change, log.last, log.now_ms)
            if entry is None:
                return rows
            if log.last is None:
                assert change.claim is not None, "only a claim starts a log"
                self._create(path, change.claim)
            if self._append(path, entry, log.length + 1):
                return rows
        raise StoreUnavailable(f"The key {change.who.key!r} changes too quickly: try again later. Nothing was run.")

    def close(self) -> None:
        """Close the idle connections."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _path(self, who: OnceIdentity) -> str:
        name = hashlib.sha256(json.dumps(who).encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self._folder}/{name}"

    def _read(self, path: str) -> ReceiptLog:
        entries: list[Any] = []
        length, offset = 0, "-1"
        for _ in range(MAX_PAGES):
            answer = self._asked("GET", f"{path}?offset={offset}")
            if answer.status in (404, 410):
                return ReceiptLog(0, None, _time_of(answer))
            _expect(answer, 200)
            try:
                page = page_of(answer.body)
                length += len(page)
                entries = page[-1:] or entries
                offset = answer.headers.get("stream-next-offset", offset)
                if answer.headers.get("stream-up-to-date") == "true":
                    return ReceiptLog(length, last_entry(entries), _time_of(answer))
            except ValueError as error:
                raise StoreUnavailable(f"The server's answer is not a log of receipts: {error}.") from error
        raise StoreUnavailable(f"The server's log has more than {MAX_PAGES} pages: use a longer lease.")

    def _create(self, path: str, claim: OnceClaim) -> None:
        """Create the log unless it exists. Raises an error if the server would delete it too early."""
        ttl_seconds = -(-needed_ttl_ms(claim) // 1_000)
        headers = {"Content-Type": "application/json", "Stream-TTL": str(ttl_seconds)}
        answer = self._asked("PUT", path, headers)
        _expect(answer, 200, 201, 409)
        if answer.status == 409 and int(self._asked("HEAD", path).headers.get("stream-ttl", "0")) < ttl_seconds:
            raise too_short(claim)

    def _append(self, path: str, entry: ReceiptEntry, number: int) -> bool:
        """Append one entry. Returns False if another caller appended first."""
        headers = {
            "Content-Type": "application/json",
            "Stream-Seq": f"{number:010}",
            "Idempotency-Key": uuid.uuid4().hex,
        }
        answer = self._asked("POST", path, headers, json.dumps(entry.as_json()).encode())
        if answer.status in (404, 409, 410):
            return False
        _expect(answer, 200, 204)
        return True

    def _asked(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> ReceiptAnswer:
        """Send one request. If the connection is broken, it is sent again on a new one."""
        sent = dict(headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        fault: Exception | None = None
        for attempt in range(TRIES):
            if attempt > 0:
                time.sleep(0.1 * 2**attempt)
            connection = self._connection(is_fresh=attempt > 0)
            try:
                connection.request(method, path, body or None, sent)
                response = connection.getresponse()
                text = response.read(MAX_ANSWER_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                fault = error
                continue
            if len(text) > MAX_ANSWER_BYTES:
                connection.close()
                raise StoreUnavailable(f"An answer of the server has more than {MAX_ANSWER_BYTES} bytes.")
            self._give_back(connection)
            answer = ReceiptAnswer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, text
            )
            if answer.status < 500:
                return answer
            fault = StoreUnavailable(f"status {answer.status}")
        raise StoreUnavailable(f"The Semel server does not answer: {fault}.") from fault

    def _connection(self, *, is_fresh: bool) -> http.client.HTTPConnection:
        if not is_fresh:
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                pass
        if self._is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            connection.close()


def _port_of(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        raise InvalidKey("The URL of a Semel server must have a host, and may have a port from 0 to 65535.") from None


def _time_of(answer: ReceiptAnswer) -> int:
    try:
        return round(parsedate_to_datetime(answer.headers["date"]).timestamp() * 1_000)
    except (KeyError, ValueError):
        raise StoreUnavailable("The server's answer has no Date header: check whether a proxy removes it.") from None


def _expect(answer: ReceiptAnswer, *statuses: int) -> None:
    if answer.status not in statuses:
        raise StoreUnavailable(f"The Semel server refused to store a receipt: status {answer.status}.")
