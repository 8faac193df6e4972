"""The part of a connection that recognizes requests by their heads, and starts pipelined ones together.

A request of a known shape is begun without the parser. Requests whose shape is pipelined may be started while earlier
ones of the connection wait for their commit: they enter the engine in order, and their answers leave in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from semel.server.http.head_shapes import (
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    MAX_PIPELINED,
    SLASH,
    HeadShape,
    HeadShapes,
    KnownHead,
    WaitingExchange,
)
from semel.server.http.reader import RequestReader

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol
    from semel.server.http.server import HttpHost


class ShapedRequestReader(RequestReader):
    """A reader that knows head shapes."""

    __slots__ = ("_learned_from", "_shapes", "_unparsed", "known_head")

    def __init__(self, host: HttpHost, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(host, loop)
        self._unparsed = b""
        self._shapes: HeadShapes | None = None
        """None where no request can be plain."""
        self.known_head: KnownHead | None = None
        """The last head of this connection that had a known shape."""
        self._learned_from = b""
        """The bytes that are being parsed, if they begin with a request that may be plain."""

    def _take_alone(self, known: KnownHead, data: bytes) -> bool:
        """Begin a request that comes alone and whole, with a head like the last one of the connection.

        As `_begin_known` would begin it, without its calls: this is the way of almost all plain writes. The value ends
        where the rest of the head must begin, because no shape takes a value with a mark in it.
        """
        before, mark, after, shape = known
        key_at, body_at = len(before), len(data) - shape.length
        stop = body_at - len(after)
        if (
            self.running is not None
            or not key_at <= stop <= key_at + MAX_KEY_BYTES
            or not data.startswith(before)
            or not data.startswith(after, stop)
            or self.waiting
            or self._unparsed
            or self._is_arriving
            or self._is_deaf
            or self.is_stopping
            or self.flow.write_paused
            or self.transport.is_closing()
            or self._shapes is None
            or body_at > self._shapes.most
        ):
            return False
        key = data[key_at:stop]
        if not (key.isalnum() and len(key) <= MAX_NAME_BYTES if mark == SLASH else bool(key) is bool(mark)):
            return False
        if not shape.take(cast("HttpProtocol", self), key, data[body_at:]):
            return False
        self._data_at = self.loop.time()
        return True

    def _begin_known(self, data: bytes) -> bytes:
        """Begin the requests at the beginning of `data` whose heads are known; returns the bytes to be parsed now."""
        if self._shapes is None:
            return data
        if self._may_be_shaped():
            return self._take_shaped(data)
        if self._is_free:
            self._learned_from = b"" if self._is_arriving else data
        elif not (self.waiting or self._is_arriving) and self._shapes.is_pipelined(data):
            self._unparsed = data  # as soon as the running request is answered, these can start together
            self.flow.hold(True)
            return b""
        return data

    def _take_shaped(self, data: bytes) -> bytes:
        """Begin requests whose heads are known, and return the bytes after them."""
        assert self._shapes is not None
        taken = self._shapes.take(cast("HttpProtocol", self), data)
        if taken:
            self._data_at = self.loop.time()
            if self.waiting:
                self.listen()
            return data[taken:]
        if self._is_free:
            self._learned_from = data
        return data

    def _may_be_shaped(self) -> bool:
        """Whether the next bytes are the beginning of a request, and all requests before it are pipelined.

        The first request of a connection goes the full way: from then on the connection counts as used.
        """
        return (
            self._shapes is not None
            and self.latest is not None
            and (self._is_free or self._is_pipelining)
            and not (self._is_arriving or self._is_deaf)
            and not (self.is_stopping or self.flow.write_paused or self.transport.is_closing())
        )

    @property
    def _is_free(self) -> bool:
        """Whether no request runs or waits. Requests may wait while none runs: between two turns of the connection."""
        return self.running is None and not self.waiting

    @property
    def _is_pipelining(self) -> bool:
        """Whether all running and waiting requests are pipelined, and not too many: then a further one may start.

        A pipelined request is only ever added behind others of its kind, so the last one tells.
        """
        last = self.waiting[-1] if self.waiting else self.running
        return last is not None and last.is_pipelined and len(self.waiting) < MAX_PIPELINED

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int, prefix: bytes = b"") -> None:
        """Remember the head of the request that is being handed over, if it came whole and is the first of its bytes.

        `make` is given the key that was cut out of it. `size` is that of its body.
        """
        data = self._learned_from
        if data and self._shapes is not None:
            self._shapes.learn(data, size, make, prefix)

    def begin(self, exchange: WaitingExchange) -> None:
        """Run a request of a known shape, or let it wait for those before it."""
        if self._is_free:
            self.running = exchange
        else:
            self.waiting.append(exchange)
