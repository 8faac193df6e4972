"""Head shapes: request heads that were parsed before are recognized by their bytes.

The shape of a head is its bytes without the value that changes with each request: the idempotency key, or a name in the
path if the surface says after which bytes such a name begins. A shape is learned only after the full parser has read
such a head and the surface has found a plain request in it, so the full path would accept every request that a shape
accepts. A head without a known shape takes the full path.

A client usually sends one kind of request on a connection, so each connection remembers the two parts of its last head,
before and after that value: the next head is then compared with them, and nothing is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol

MAX_SHAPES = 4_096
"""Limit on the known shapes; at the limit all are dropped, and learned again."""
MAX_SHAPE_BYTES = 2 * 1024
"""A longer head has no shape."""

_LINE_END = b"\r\n"
SLASH = b"/"
_NAMES = (b"\r\nIdempotency-Key: ", b"\r\nidempotency-key: ")
MAX_KEY_BYTES = 256
_VALUE = re.compile(rb"[!-~]{1,256}")
"""Printable ASCII without spaces, so that the value ends exactly where its line ends."""
MAX_NAME_BYTES = 64
MAX_PIPELINED = 256
"""Limit on the requests of one connection that are started together."""
MAX_PREFIXES = 16
VARYING = (b"x-request-id", b"traceparent", b"origin", b"expect", b"transfer-encoding")
"""Headers that rule out a shape on every surface: their values change, or the full path acts on them."""


class CutHead(NamedTuple):
    """A request head, split into its shape and its key."""

    shape: bytes
    key: bytes
    """The idempotency key or the name in the path; empty if the head has neither."""
    key_at: int
    body_at: int


def cut(data: bytes, most: int = MAX_SHAPE_BYTES, prefixes: Collection[bytes] = ()) -> CutHead | None:
    """Split a request head of at most `most` bytes; None if the head cannot have a shape.

    After each of the `prefixes` the head has a name of letters and digits, which ends at a slash.
    """
    end = data.find(b"\r\n\r\n", 0, most)
    if end < 0:
        return None
    for prefix in prefixes:
        if data.startswith(prefix):
            at = len(prefix)
            stop = data.find(b"/", at, at + MAX_NAME_BYTES + 1)
            name = data[at : max(at, stop)]
            return CutHead(data[:at] + data[stop:end], name, at, end + 4) if name.isalnum() else None
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
    is_pipelined: bool
    """Whether a further request of the connection may be started before this one is answered; see `HeadShape`."""

    def lose(self) -> None:
        """The client has disconnected."""


class WaitingExchange(RunningExchange, Protocol):
    """The interface of a request that waits for earlier ones of its connection."""

    def start(self) -> None:
        """All earlier requests are answered: the answer to this one is next."""


class HeadShape(Protocol):
    """The plain request of a surface that a shape stands for."""

    length: int
    """The length of the body, in bytes."""
    is_pipelined: bool
    """Whether requests that came together may be started together: the engine decides them in order, and each answer
    waits for the one before.
    """

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start the request, which then runs on the connection; False leaves the request to the full path.

        A key that is not empty and has other than visible ASCII characters must be left to the full path.
        """


class KnownHead(NamedTuple):
    """The last head of a connection that had a known shape: its bytes before and after the key."""

    before: bytes
    mark: bytes
    """Where the value ends: a line end for a key, a slash for a name; empty if the head has neither."""
    after: bytes
    """From the mark to the end of the head."""
    shape: HeadShape


def _is_complete(connection: HttpProtocol, shape: HeadShape, data: bytes, at: int, end: int) -> bool:
    """Whether the request at this place is whole, and is alone unless it may be pipelined."""
    if shape.is_pipelined:
        return end <= len(data)
    return end == len(data) and not at and connection.running is None and not connection.waiting


class HeadShapes:
    """The known shapes of one application."""

    def __init__(self, head_bytes: int) -> None:
        """`head_bytes` is the size limit of heads on the full path."""
        self._known: dict[bytes, HeadShape] = {}
        self._prefixes: dict[bytes, None] = {}
        self.most = min(head_bytes, MAX_SHAPE_BYTES)

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Drop every shape, and with them the credentials in the heads."""
        self._known.clear()

    def is_pipelined(self, data: bytes) -> bool:
        """Whether `data` begins with a request that may be started together with others."""
        head = cut(data, self.most, self._prefixes) if self._known else None
        shape = None if head is None else self._known.get(head.shape)
        return shape is not None and shape.is_pipelined

    def take(self, connection: HttpProtocol, data: bytes) -> int:
        """Start the requests at the beginning of `data` whose heads have known shapes, and return their size in bytes.

        That is one request, if `data` is exactly this request with its whole body and no other runs, or several
        pipelined ones.
        """
        taken = 0
        for _ in range(MAX_PIPELINED):
            end = self._take_next(connection, data, taken) or self._take_other(connection, data, taken)
            taken = end or taken
            if not end or end == len(data):
                break
        return taken

    def _take_next(self, connection: HttpProtocol, data: bytes, at: int) -> int:
        """Start the request at this place if its head is like the last one of its connection; the end of it, or 0."""
        if connection.known_head is None:
            return 0
        before, mark, after, shape = connection.known_head
        if not data.startswith(before, at):
            return 0
        key_at = stop = at + len(before)
        if mark:
            stop = data.find(mark, key_at, key_at + MAX_KEY_BYTES + 2)
        body_at = stop + len(after)
        end = body_at + shape.length
        key = data[key_at:stop]
        if (
            stop >= key_at
            and data.startswith(after, stop)
            and body_at - at <= self.most
            and _is_complete(connection, shape, data, at, end)
            and (mark != SLASH or (key.isalnum() and len(key) <= MAX_NAME_BYTES))
        ):
            return end if shape.take(connection, key, data[body_at:end]) else 0
        return 0

    def _take_other(self, connection: HttpProtocol, data: bytes, at: int) -> int:
        """As `_take_next`, for a head that differs from the last one of its connection."""
        connection.known_head = None
        head = cut(data[at : at + self.most], self.most, self._prefixes) if self._known else None
        shape = None if head is None else self._known.get(head.shape)
        if head is None or shape is None:
            return 0
        key_at, body_at = at + head.key_at, at + head.body_at
        stop, end = key_at + len(head.key), body_at + shape.length
        if not _is_complete(connection, shape, data, at, end):
            return 0
        mark = b"" if not head.key else SLASH if data.startswith(SLASH, stop) else _LINE_END
        connection.known_head = KnownHead(data[at:key_at], mark, data[stop:body_at], shape)
        return end if shape.take(connection, head.key, data[body_at:end]) else 0

    def learn(self, data: bytes, size: int, make: Callable[[bytes], HeadShape | None], prefix: bytes = b"") -> None:
        """Learn the shape of this head, if `data` begins with the whole request, which has a body of `size` bytes.

        `make` gets the key, and returns the shape's request, or None if the head has no shape. After `prefix` the head
        has a name that changes; empty if it has none.
        """
        if prefix and data.startswith(prefix) and len(self._prefixes) < MAX_PREFIXES:
            self._prefixes[prefix] = None
        head = cut(data, self.most, self._prefixes)
        if head is None or len(data) - head.body_at < size:
            return
        shape = make(head.key)
        if shape is None:
            return
        if len(self._known) >= MAX_SHAPES:
            self._known.clear()
        self._known[head.shape] = shape
