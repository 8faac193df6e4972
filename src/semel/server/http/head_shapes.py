"""Head shapes: request heads that were parsed before are recognized by their bytes.

The shape of a head is its bytes without the value that changes with each request, the idempotency key. A shape is
learned only after the full parser has read such a head and the surface has found a plain request in it, so the full
path would accept every request that a shape accepts. A head without a known shape takes the full path.

A client usually sends one kind of request on a connection, so each connection remembers the two parts of its last head,
before and after the key: the next head is then compared with them, and nothing is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol

MAX_SHAPES = 4_096
"""Limit on the known shapes; at the limit all are dropped, and learned again."""
MAX_SHAPE_BYTES = 2 * 1024
"""A longer head has no shape."""

_NAMES = (b"\r\nIdempotency-Key: ", b"\r\nidempotency-key: ")
MAX_KEY_BYTES = 256
_VALUE = re.compile(rb"[!-~]{1,256}")
"""Printable ASCII without spaces, so that the value ends exactly where its line ends."""


class CutHead(NamedTuple):
    """A request head, split into its shape and its key."""

    shape: bytes
    key: bytes
    """Empty if the head has no key."""
    key_at: int
    body_at: int


def cut(data: bytes, most: int = MAX_SHAPE_BYTES) -> CutHead | None:
    """Split a request head of at most `most` bytes; None if the head cannot have a shape."""
    end = data.find(b"\r\n\r\n", 0, most)
    if end < 0:
        return None
    for name in _NAMES:
        at = data.find(name, 0, end)
        if at >= 0:
            at += len(name)
            stop = data.find(b"\r\n", at, end + 2)
            key = data[at:stop]
            return CutHead(data[:at] + data[stop:end], key, at, end + 4) if _VALUE.fullmatch(key) else None
    return CutHead(data[:end], b"", end + 4, end + 4)


class RunningExchange(Protocol):
    """The interface of a running request towards its connection."""

    keep_alive: bool

    def lose(self) -> None:
        """The client has disconnected."""


class HeadShape(Protocol):
    """The plain request of a surface that a shape stands for."""

    length: int
    """The length of the body, in bytes."""

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start the request, which then runs on the connection; False leaves the request to the full path.

        A key that is not empty and has other than visible ASCII characters must be left to the full path.
        """


class KnownHead(NamedTuple):
    """The last head of a connection that had a known shape: its bytes before and after the key."""

    before: bytes
    after: bytes
    """From the line end after the key to the end of the head; empty if the head has no key."""
    shape: HeadShape


class HeadShapes:
    """The known shapes of one application."""

    def __init__(self, head_bytes: int) -> None:
        """`head_bytes` is the size limit of heads on the full path."""
        self._known: dict[bytes, HeadShape] = {}
        self._most = min(head_bytes, MAX_SHAPE_BYTES)

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Drop every shape, and with them the credentials in the heads."""
        self._known.clear()

    def take(self, connection: HttpProtocol, data: bytes) -> bool:
        """Start the request if its head has a known shape and `data` is exactly one request with its whole body."""
        if connection.known_head is not None:
            before, after, shape = connection.known_head
            if data.startswith(before):
                key_at = stop = len(before)
                if after:
                    stop = data.find(b"\r\n", key_at, key_at + MAX_KEY_BYTES + 2)
                body_at = stop + len(after)
                if (
                    stop >= key_at
                    and data.startswith(after, stop)
                    and body_at <= self._most
                    and len(data) - body_at == shape.length
                ):
                    return shape.take(connection, data[key_at:stop], data[body_at:])
        return self._take_other(connection, data)

    def _take_other(self, connection: HttpProtocol, data: bytes) -> bool:
        """As `take`, for a head that differs from the last one of its connection."""
        connection.known_head = None
        if not self._known:
            return False
        head = cut(data, self._most)
        if head is None:
            return False
        shape = self._known.get(head.shape)
        if shape is None or len(data) - head.body_at != shape.length:
            return False
        at, stop = head.key_at, head.key_at + len(head.key)
        connection.known_head = KnownHead(data[:at], data[stop : head.body_at], shape)
        return shape.take(connection, head.key, data[head.body_at :])

    def learn(self, data: bytes, size: int, make: Callable[[bytes], HeadShape | None]) -> None:
        """Learn the shape of this head, if `data` is one request with a body of `size` bytes.

        `make` gets the key, and returns the shape's request, or None if the head has no shape.
        """
        head = cut(data, self._most)
        if head is None or len(data) - head.body_at != size:
            return
        shape = make(head.key)
        if shape is None:
            return
        if len(self._known) >= MAX_SHAPES:
            self._known.clear()
        self._known[head.shape] = shape
