"""A service that counts: what arrived, what took effect, and whether one key ever arrived twice at once.

It is apart from everything under test, and honours keys: the first request with a key takes effect, the others do not.
What it answers is said beforehand, by path: a status, with headers; or `LOST`, an effect whose answer never comes.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

LOST, DRIP, ENDLESS, BROKEN = -1, -2, -3, -4
"""No answer; one that comes a byte at a time; one that never ends; one that breaks off."""


CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg5OP5LsRy7O8J1SIF
GY9W6V5KqussOMbJZy3tlVza1pChRANCAASbrYTJRCaF05/pP5xnkJUlQ/jJaSMG
sMwkPdJJF6MbgGyJXr3wNnqnPgJIX5qG3z6GluyLPnjSNvMJ7gls8VkE
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUYqXzvFcZWHWf8jxGptp85jxK23swCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNzA3NDUzNloYDzIxMjYxMDI0
MDc0NTM2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASbrYTJRCaF05/pP5xnkJUlQ/jJaSMGsMwkPdJJF6MbgGyJXr3wNnqn
PgJIX5qG3z6GluyLPnjSNvMJ7gls8VkEo28wbTAdBgNVHQ4EFgQU6+OzeaDgSAUX
WvG0pkZubYjivYwwHwYDVR0jBBgwFoAU6+OzeaDgSAUXWvG0pkZubYjivYwwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIhAILFRLaRWe35CuauNLdb2hrMdi+ZKrz4DJrYAOXPj7NzAiBu
okEKJ+UbQ3LnqBuTvhhHBq4JiBQ7I9SSf0XVPBqYgw==
-----END CERTIFICATE-----
"""
"""Of 127.0.0.1, with its key, until 2126: for tests alone."""


class Arrived(NamedTuple):
    """One request."""

    method: str
    path: str
    key: str
    headers: dict[str, str]
    body: bytes
    at: float


class CounterService:
    """What was counted, and what will be answered."""

    def __init__(self) -> None:
        self.url = ""
        self.arrived: list[Arrived] = []
        self.effects: dict[str, bytes] = {}
        self.overlaps = 0
        self.most_at_once = 0
        self.hold_seconds = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self.answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._running: list[str] = []

    def answer(self, path: str, *statuses: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """The next answers on a path; behind them 201 for what is new, and 200 for a key that is known."""
        self.answers[path] += [(status, headers or {}, body) for status in statuses]

    def keys(self, path: str | None = None) -> list[str]:
        """The keys of what arrived, in order."""
        return [one.key for one in self.arrived if path is None or one.path == path]

    def known(self, key: str) -> tuple[int, bytes]:
        """Whether a key took effect, and with which body."""
        return (200, self.effects[key]) if key in self.effects else (404, b"")

    def took(self, one: Arrived) -> tuple[int, dict[str, str], bytes]:
        """Count a request, and say how it is answered."""
        with self._lock:
            self.arrived.append(one)
            self.overlaps += one.key in self._running
            self._running.append(one.key)
            self.most_at_once = max(self.most_at_once, len(self._running))
            answers = self.answers[one.path]
            status, headers, body = answers.pop(0) if answers else (200 if one.key in self.effects else 201, {}, b"ok")
            if status < 300:
                self.effects.setdefault(one.key, one.body)
        self.gate.wait(25)
        time.sleep(self.hold_seconds)
        with self._lock:
            self._running.remove(one.key)
        return status, headers, body


def _odd(handler: BaseHTTPRequestHandler, status: int) -> None:
    if status == BROKEN:
        handler.send_header("Content-Length", "1000")
    handler.end_headers()
    piece, pause = (b"x" * 65_536, 0.0) if status == ENDLESS else (b"x", 0.05)
    for _ in range(1 if status == BROKEN else 400):
        try:
            handler.wfile.write(piece)
        except OSError:
            return
        time.sleep(pause)


def _handler(service: CounterService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = dict(self.headers.items())
            key = headers.get("Idempotency-Key", "")
            one = Arrived(self.command, self.path, key, headers, body, time.monotonic())
            status, more, answer = service.took(one)
            self.close_connection = True
            if status == LOST:
                return
            self.send_response(200 if status < 0 else status)
            for name, value in more.items():
                self.send_header(name, value)
            if status < 0:
                _odd(self, status)
                return
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            """Whether a key took effect: 200 or 404. This is counted nowhere."""
            status, body = service.known(self.headers.get("Idempotency-Key", ""))
            self.close_connection = True
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the names of the standard library

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no fault of this service."""


@contextmanager
def counting(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[CounterService]:
    """A service on a real socket, in threads of this process."""
    service = CounterService()
    server = _Server(("127.0.0.1", port), _handler(service))
    service.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.gate.set()
        server.shutdown()
        server.server_close()
        thread.join(25)
