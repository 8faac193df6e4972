"""The connection pool: at most `most` connections to one server at once, idle ones kept for the next request."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from semel.client.access import Address
from semel.client.errors import SemelError
from semel.client.transport.network import ByteStream, Network

CONNECT_SECONDS = 10.0
KEEP_SECONDS = 60.0
"""Idle connections are closed before the server closes them, after 75 s."""


class IdleConnection(NamedTuple):
    """A connection without a request, and since when."""

    stream: ByteStream
    since: float


class HttpConnectionPool:
    """The connections to one server. Several threads or tasks may use it at once."""

    def __init__(self, network: Network, address: Address, most: int) -> None:
        self._network = network
        self._address = address
        self._limit = network.limit(most)
        self._idle: list[IdleConnection] = []
        self._used: set[ByteStream] = set()
        self._has_ended = False
        self._most = most
        self._pid = os.getpid()

    async def take(self, seconds: float) -> ByteStream:
        """An idle connection, or a new one; waits up to `seconds` while all are in use.

        Raises OSError if none can be made, and TimeoutError if none became free.
        """
        if self._pid != os.getpid():
            self._leave_to_parent()
        await self._limit.acquire(seconds)
        try:
            self._refuse_ended()
            stream = self._kept() or await self._network.connect(self._address, CONNECT_SECONDS)
            self._used.add(stream)
        except BaseException:
            self._limit.release()
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
        self._idle, self._used = [], set()
        self._limit = self._network.limit(self._most)
        self._pid = os.getpid()

    def give_back(self, stream: ByteStream, *, is_reusable: bool) -> None:
        """Keep the connection for the next request, or close it."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        if stream not in self._used:
            stream.abandon()  # taken before a fork: it is the parent's
            return
        self._used.discard(stream)
        if is_reusable and not self._has_ended:
            self._idle.append(IdleConnection(stream, self._network.now()))
        else:
            stream.close()
        self._limit.release()

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
