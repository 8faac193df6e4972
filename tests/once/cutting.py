"""A server that is told where to cut: before, in and behind a request's body, and in its answer."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from tests.harness.server import HOST

BODY = b'{"charge": 7, "currency": "eur"}'
LARGE = 8 * 2**20
"""More than the buffers of a connection hold."""
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_RESET = struct.pack("ii", 1, 0)


class Cut(Enum):
    """What a server does."""

    REFUSED = "nothing listens"
    AT_ONCE = "it ends the connection before it has read a byte"
    IN_REQUEST = "it ends it in the middle of the request's body"
    BEFORE_ANSWER = "it reads the whole request and ends the connection"
    IN_HEAD = "it ends it in the head of its answer"
    IN_ANSWER = "it ends it in the body of its answer"
    SILENT = "it reads the whole request and says nothing"
    GARBAGE = "it answers in another protocol"
    BROKEN = "it answers with 500"
    REFUSES = "it answers with 402"
    SENDS_ON = "it answers with 303, to itself"


STATUSES = {
    Cut.BROKEN: b"500 Broken",
    Cut.REFUSES: b"402 Payment Required",
    Cut.SENDS_ON: b"303 See Other\r\nLocation: /1",
}


@contextmanager
def cutting(*cuts: Cut) -> Iterator[int]:
    """The port of a server that does this to each connection in turn, and the last to all others."""
    listener = socket.create_server((HOST, 0))
    port: int = listener.getsockname()[1]
    over, threads = threading.Event(), list[threading.Thread]()

    def accept() -> None:
        for number in itertools.count():
            cut = cuts[min(number, len(cuts) - 1)]
            if cut is Cut.REFUSED:
                break
            try:
                one, _ = listener.accept()
            except OSError:
                break
            if number + 1 < len(cuts) and cuts[number + 1] is Cut.REFUSED:
                listener.close()
            threads.append(threading.Thread(target=_serve, args=(one, cut, over), daemon=True))
            threads[-1].start()
        listener.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    if cuts[0] is Cut.REFUSED:
        thread.join(25)
    try:
        yield port
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        for one in [thread, *threads]:
            one.join(25)


def _serve(one: socket.socket, cut: Cut, over: threading.Event) -> None:
    with one, contextlib.suppress(OSError):
        if cut is Cut.AT_ONCE:
            return
        one.settimeout(25)
        _read(one, cut)
        if cut is Cut.IN_REQUEST:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif cut is Cut.SILENT:
            over.wait(25)
        elif cut is Cut.GARBAGE:
            one.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        elif cut is Cut.IN_HEAD:
            one.sendall(b"HTTP/1.")
        elif cut is not Cut.BEFORE_ANSWER:
            head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            body = BODY[:-9] if cut is Cut.IN_ANSWER else BODY
            one.sendall(head % (STATUSES.get(cut, b"200 OK"), len(BODY)) + body)


def _read(one: socket.socket, cut: Cut) -> None:
    """Read a request of HTTP to its end, or to its middle; of another protocol what comes first."""
    data = one.recv(65_536)
    if b"HTTP/1.1" not in data:
        return
    while b"\r\n\r\n" not in data:
        data += one.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    left = (int(found[1]) if found else 0) - len(body)
    if cut is Cut.IN_REQUEST:
        left //= 2
    while left > 0:
        left -= len(one.recv(min(left, 65_536)))
