"""The connection pools: at most `most` requests to one server at once; idle connections are kept for the next request.

What waits for the server (long polls, followers, WebSockets) holds a connection for long, and has a limit of its own of
the same size: however many wait, a write does not.

Connections belong to an event loop, so each loop has a pool; connections that block have one for all threads.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from semel.client.access import Address
from semel.client.errors import SemelError
from semel.client.transport.network import ByteStream, Network, UseLimit

if TYPE_CHECKING:  # a script loads no event loop
    from asyncio import AbstractEventLoop

CONNECT_SECONDS = 10.0
KEEP_SECONDS = 60.0
"""Idle connections are closed before the server closes them, after 75 s."""


class IdleConnection(NamedTuple):
    """A connection without a request, and since when."""

    stream: ByteStream
    since: float


class PoolFullError(TimeoutError):
    """No connection became free in time."""


class HttpConnectionPool:
    """The connections of one loop to one server, or those that block. Several threads or tasks may use it at once."""

    def __init__(self, network: Network, address: Address, most: int) -> None:
        self._network = network
        self._address = address
        self._most = most
        self._has_ended = False
        self._forget()

    def _forget(self) -> None:
        self._limit, self._waits = self._network.limit(self._most), self._network.limit(self._most)
        self._idle: list[IdleConnection] = []
        self._used: dict[ByteStream, UseLimit] = {}
        self._pid = os.getpid()

    async def take(self, seconds: float, *, is_wait: bool = False) -> ByteStream:
        """An idle connection, or a new one; waits up to `seconds` while all are in use.

        Raises OSError if none can be made, and PoolFullError if none became free.
        """
        if self._pid != os.getpid():
            self._leave_to_parent()
        limit = self._waits if is_wait else self._limit
        try:
            await limit.acquire(seconds)
        except TimeoutError:
            raise PoolFullError from None
        try:
            self._refuse_ended()
            stream = self._kept() or await self._network.connect(self._address, CONNECT_SECONDS)
            self._used[stream] = limit
        except BaseException:
            limit.release()
            raise
        return stream

    def _kept(self) -> ByteStream | None:
        while self._idle:
            try:
                stream, since = self._idle.pop()  # the newest first: old ones may end
            except IndexError:  # another thread took it
                return None
            if self._network.now() - since < KEEP_SECONDS and stream.is_idle:
                return stream
            stream.close()
        return None

    def _leave_to_parent(self) -> None:
        """After a fork the connections are the parent's: two processes would read each other's answers."""
        for stream in (*self._used, *(idle.stream for idle in self._idle)):
            stream.abandon()
        self._forget()

    def give_back(self, stream: ByteStream, *, is_reusable: bool) -> None:
        """Keep the connection for the next request, or close it."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        limit = self._used.pop(stream, None)
        if limit is None:
            stream.abandon()  # taken before a fork: it is the parent's
            return
        if is_reusable and not self._has_ended:
            self._idle.append(IdleConnection(stream, self._network.now()))
        else:
            stream.close()
        limit.release()

    def close(self) -> None:
        """Close all connections. Requests in progress fail; a later request connects again."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        for stream in tuple(self._used):
            stream.close()
        while self._idle:
            with suppress(IndexError):  # another thread took it
                self._idle.pop().stream.close()

    def end(self) -> None:
        """Close all connections; later requests raise."""
        self._has_ended = True
        self.close()

    def _refuse_ended(self) -> None:
        if self._has_ended:
            raise SemelError("The client has been closed.")


class ConnectionPools:
    """The pools of a client: one for each event loop that uses it, or one for all threads."""

    def __init__(self, network: Network, address: Address, most: int) -> None:
        self._network = network
        self._address = address
        self._most = most
        self._pools: dict[AbstractEventLoop | None, HttpConnectionPool] = {}
        self._has_ended = False

    def here(self) -> HttpConnectionPool:
        """The pool of the running loop."""
        loop = self._network.loop()
        pool = self._pools.get(loop)
        return self._made(loop) if pool is None else pool

    def _made(self, loop: AbstractEventLoop | None) -> HttpConnectionPool:
        for other in tuple(self._pools):
            if other is not None and other.is_closed():
                self._pools.pop(other, None)
        pool = self._pools.setdefault(loop, HttpConnectionPool(self._network, self._address, self._most))
        if self._has_ended:
            pool.end()
        return pool

    def close(self) -> None:
        """Close all connections. Requests in progress fail; a later request connects again."""
        for pool in tuple(self._pools.values()):
            pool.close()

    def end(self) -> None:
        """Close all connections; later requests raise."""
        self._has_ended = True
        for pool in tuple(self._pools.values()):
            pool.end()
