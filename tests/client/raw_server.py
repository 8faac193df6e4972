"""A TCP server that answers each connection from a script of bytes, for answers that no real server gives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.harness.server import HOST

Behaviour = Callable[[socket.socket, int], None]
"""Called with each connection and its number, from 0."""


def request_of(connection: socket.socket) -> bytes:
    """One request of the client, with its body; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            while len(body) < int(value):
                body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def answers(*texts: bytes) -> Behaviour:
    """Each request of a connection gets the next text; after the last one the connection is closed."""

    def behave(connection: socket.socket, number: int) -> None:
        for text in texts:
            if not request_of(connection):
                return
            connection.sendall(text)

    return behave


def always(text: bytes, asked: list[bytes]) -> Behaviour:
    """Every request gets this text, and is noted."""

    def behave(connection: socket.socket, number: int) -> None:
        while request := request_of(connection):
            asked.append(request)
            connection.sendall(text)

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first connection behaves like the first, and so on; the last one goes on."""
    return lambda connection, number: behaviours[min(number, len(behaviours) - 1)](connection, number)


@contextmanager
def raw_server(behave: Behaviour) -> Iterator[str]:
    """The URL of a server that behaves so."""
    listener = socket.create_server((HOST, 0))

    def accept() -> None:
        number = 0
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection, number), daemon=True).start()
                number += 1

    def serve(connection: socket.socket, number: int) -> None:
        with suppress(OSError), connection:
            behave(connection, number)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        listener.close()
