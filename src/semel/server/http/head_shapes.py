"""Head shapes: request heads that were parsed before are recognized by their bytes.

A head is cut at the value that changes with each request, the idempotency key; the rest, byte for byte, is its shape. A
shape is learned only after the full parser has read such a head and its surface has found a plain request in it, so a
shaped request is one that the full path would take too. Whatever is unknown goes the full way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol

MAX_SHAPES = 4_096
"""Limit on the shapes that are kept; beyond it all are forgotten, and learned again."""
MAX_SHAPE_BYTES = 2 * 1024
"""A longer head has no shape."""

_NAMES = (b"\r\nIdempotency-Key: ", b"\r\nidempotency-key: ")
_VALUE = re.compile(rb"[!-~]{1,256}")
"""No space, no control character and nothing beyond ASCII: such a value ends where its line ends."""


class CutHead(NamedTuple):
    """A request, cut at its key."""

    shape: bytes
    key: bytes
    """Empty without one."""
    body_at: int


def cut(data: bytes, most: int = MAX_SHAPE_BYTES) -> CutHead | None:
    """Cut the head of a request of at most `most` bytes; None if it cannot have a shape."""
    end = data.find(b"\r\n\r\n", 0, most)
    if end < 0:
        return None
    for name in _NAMES:
        at = data.find(name, 0, end)
        if at >= 0:
            at += len(name)
            stop = data.find(b"\r\n", at, end + 2)
            key = data[at:stop]
            return CutHead(data[:at] + data[stop:end], key, end + 4) if _VALUE.fullmatch(key) else None
    return CutHead(data[:end], b"", end + 4)


class RunningExchange(Protocol):
    """What a connection needs of the request that runs on it."""

    keep_alive: bool

    def lose(self) -> None:
        """The client has gone."""


class HeadShape(Protocol):
    """The plain request of a surface that a shape stands for."""

    length: int
    """Bytes of its body."""

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Begin the request, which is then the one that runs on the connection; False leaves it to the full path."""


class HeadShapes:
    """The shapes that are known to one application."""

    def __init__(self, head_bytes: int) -> None:
        """`head_bytes` is the limit of heads on the full path."""
        self._known: dict[bytes, HeadShape] = {}
        self._most = min(head_bytes, MAX_SHAPE_BYTES)

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget every shape, and the credentials that their heads hold."""
        self._known.clear()

    def take(self, connection: HttpProtocol, data: bytes) -> bool:
        """Begin a request if its head has a known shape and its body is here, and nothing else."""
        head = cut(data, self._most)
        if head is None:
            return False
        shape = self._known.get(head.shape)
        if shape is None or len(data) - head.body_at != shape.length:
            return False
        return shape.take(connection, head.key, data[head.body_at :])

    def learn(self, data: bytes, size: int, make: Callable[[bytes], HeadShape | None]) -> None:
        """Recognize the head of these bytes from now on, if they are one request with a body of that size.

        `make` is given the key that was cut out, and says whether the head has a shape.
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
