"""A service behind a proxy: it notes each request to the byte, and answers as its path says.

It honours no key: each request that arrives takes effect. As a process of its own it tells its effects to a counter
that is apart from it, and dies or stands still where a header says so:

    python -m tests.proxy.upstream PORT COUNTER_URL
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

POINTS = ("begun", "effect", "answering")


class Seen(NamedTuple):
    """One request as it arrived."""

    line: str
    fields: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        """The values of a field."""
        return [value for key, value in self.fields if key.lower() == name.lower()]


@dataclass
class Upstream:
    """What arrived, and what is answered."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    effects: int = 0
    replies: dict[str, bytes] = field(default_factory=dict)
    """The whole answer on a path, to the byte; the connection is closed behind it."""
    gate: threading.Event = field(default_factory=threading.Event)
    """Answers on /hold wait for it."""
    begun: threading.Event = field(default_factory=threading.Event)
    """Whether the head of a request has arrived."""
    broken_off: threading.Event = field(default_factory=threading.Event)
    """Whether a client left in its body, or while it was answered on /endless."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    count: Callable[[str, Seen], None] = lambda _, __: None
    """Told of each effect, and of each request that is held, by `effects` and `held`."""

    def took(self, one: Seen) -> int:
        """Count an effect."""
        with self.lock:
            self.seen.append(one)
            self.effects += 1
            number = self.effects
        self.count("effects", one)
        return number


def _head(stream: socket.SocketIO) -> tuple[str, list[tuple[str, str]]] | None:
    line = stream.readline()
    if not line:
        return None
    fields = []
    while text := stream.readline().rstrip(b"\r\n"):
        name, _, value = text.partition(b":")
        fields.append((name.decode("latin-1"), value.strip().decode("latin-1")))
    return line.decode("latin-1").rstrip(), fields


def _body(stream: socket.SocketIO, fields: list[tuple[str, str]]) -> bytes:
    lower = {name.lower(): value for name, value in fields}
    if lower.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(stream.readline().split(b";")[0] or b"0", 16):
            body += _exactly(stream, size)
            stream.readline()
        stream.readline()
        return body
    return _exactly(stream, int(lower.get("content-length", "0")))


def _exactly(stream: socket.SocketIO, size: int) -> bytes:
    body = b""
    while len(body) < size:
        piece = stream.read(size - len(body))
        if not piece:
            raise ConnectionResetError
        body += piece
    return body


def _die_or_hold(one: Seen, point: str, service: Upstream) -> None:
    if one.values("x-die") == [point]:
        os.kill(os.getpid(), signal.SIGKILL)
    if one.values("x-hold") == [point]:
        service.count("held", one)
        service.gate.wait(25)


def reply(status: int, body: bytes, *fields: str) -> bytes:
    """An answer with its length."""
    head = [
        f"HTTP/1.1 {status} Whatever",
        f"Content-Length: {len(body)}",
        "Date: Tue, 17 Nov 2026 08:00:00 GMT",
        *fields,
    ]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def _handled(connection: socket.socket, service: Upstream) -> None:
    stream = connection.makefile("rb")
    with connection, stream, suppress(OSError):
        head = _head(stream)  # type: ignore[arg-type] # a buffered reader has the same methods
        if head is None:
            return
        service.begun.set()
        line, fields = head
        path = line.split()[1].partition("?")[0]
        if path == "/deaf":
            service.gate.wait(25)
            return
        if path == "/echo":
            _echo(connection, stream)  # type: ignore[arg-type]
            return
        try:
            one = Seen(line, fields, _body(stream, fields))  # type: ignore[arg-type]
        except ConnectionResetError:
            service.broken_off.set()
            return
        _die_or_hold(one, "begun", service)
        number = service.took(one)
        _die_or_hold(one, "effect", service)
        _answered(connection, service, one, path, number)


def _answered(connection: socket.socket, service: Upstream, one: Seen, path: str, number: int) -> None:
    if path in service.replies:
        connection.sendall(service.replies[path])
    elif path == "/lost":
        return
    elif path == "/half":
        connection.sendall(reply(201, b"x" * 100)[:-50])
    elif path == "/endless":
        _endless(connection, service)
    elif path == "/drip":
        _drip(connection)
    elif path == "/events":
        _events(connection)
    else:
        if path == "/hold":
            service.gate.wait(25)
        status = int(path.rpartition("/")[2]) if path.startswith("/as/") else 201
        answer = reply(status, b"charge %d of " % number + one.body, f"Location: /charges/{number}", "X-Own: yes")
        if one.values("x-die") == ["answering"]:
            connection.sendall(answer[:-3])
            time.sleep(0.1)  # the half is on its way
        _die_or_hold(one, "answering", service)
        connection.sendall(answer)


def _endless(connection: socket.socket, service: Upstream) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        for _ in range(2_500):
            connection.sendall(b"4\r\nping\r\n")
            time.sleep(0.01)
    except OSError:
        service.broken_off.set()


def _echo(connection: socket.socket, stream: socket.SocketIO) -> None:
    """Ten bytes, of which the first five are answered before the others are read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    for _ in range(2):
        connection.sendall(_exactly(stream, 5))


def _drip(connection: socket.socket) -> None:
    """Longer than the time for a whole answer, and never silent for long."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1_000):
        connection.sendall(b"x")
        time.sleep(0.02)


def _events(connection: socket.socket) -> None:
    """Events for longer than the time for a whole answer."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(50):
        connection.sendall(b"c\r\ndata: ping\n\n\r\n")
        time.sleep(0.02)
    connection.sendall(b"0\r\n\r\n")


def _accepted(listener: socket.socket, service: Upstream) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_handled, args=(connection, service), daemon=True).start()


@contextmanager
def serving(port: int = 0) -> Iterator[Upstream]:
    """The service on a real socket, in threads of this process; one request a connection."""
    service = Upstream()
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=_accepted, args=(listener, service), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.gate.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(25)


def _main(port: int, counter: str) -> None:
    def count(what: str, one: Seen) -> None:
        told = urllib.request.Request(f"{counter}/{what}", b"1", method="POST")
        told.add_header("Idempotency-Key", one.values("idempotency-key")[0])
        with urllib.request.urlopen(told, timeout=25):
            pass

    with serving(port) as service:
        service.count = count
        threading.Event().wait(120)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
