"""The network of an event loop: an asyncio protocol that hands over bytes as they arrive.

Flow control: a connection with more than 256 KiB of unread bytes stops reading, and a sender waits while the socket
takes no more.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from semel.client.access import Address
from semel.client.transport.network import ByteStream, read_clock

MOST_UNREAD = 262_144
PIECE_BYTES = 65_536

T = TypeVar("T")


def is_readable(descriptor: int) -> bool:
    """Whether a socket has bytes, or has ended."""
    if descriptor < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


class AsyncioStream(asyncio.Protocol):
    """One connection of an event loop, used by one task at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._has_ended = False
        self._fault: BaseException | None = None
        self._is_full = False
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none, and has the same methods

    def data_received(self, data: bytes) -> None:
        """Keep bytes until they are read; above the limit, stop reading."""
        self._unread += data
        if len(self._unread) > MOST_UNREAD and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The peer sends no more: `receive` tells it after the unread bytes."""
        self._has_ended = True
        self._wake()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is over."""
        self._has_ended = True
        self._fault = exc
        self._wake()

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._is_full = False
        self._wake()

    @property
    def is_idle(self) -> bool:
        """Whether it is open and has no unread bytes, also none that the loop has not read yet."""
        if self._has_ended or self._unread or self._transport is None or self._transport.is_closing():
            return False
        raw = self._transport.get_extra_info("socket")
        return raw is None or not is_readable(raw.fileno())

    @property
    def is_readable(self) -> bool:
        """Whether `receive` would not wait."""
        return bool(self._unread) or self._has_ended

    def tell(self, waiter: asyncio.Future[None] | None) -> None:
        """Finish this future when bytes arrive or the connection ends."""
        self._waiter = waiter

    async def send(self, data: bytes, seconds: float) -> None:
        """Send all bytes; a piece that the socket does not take within `seconds` raises TimeoutError."""
        if len(data) <= PIECE_BYTES:
            self._write(data)
            return
        for start in range(0, len(data), PIECE_BYTES):
            self._write(data[start : start + PIECE_BYTES])
            while self._is_full and not self._has_ended:
                await self._wait(seconds)

    def _write(self, data: bytes) -> None:
        if self._has_ended or self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection has ended")
        self._transport.write(data)

    async def receive(self, seconds: float) -> bytes:
        """The bytes that have arrived; empty at the end."""
        while not self._unread and not self._has_ended:
            await self._wait(seconds)
        if not self._unread:
            if self._fault is not None:
                raise ConnectionResetError("the connection was lost") from self._fault
            return b""
        data = bytes(self._unread)
        self._unread.clear()
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Close it at once: bytes that were not sent are dropped."""
        if self._transport is None:
            return
        if asyncio._get_running_loop() is self._loop:
            self._transport.abort()
            return
        with suppress(RuntimeError):  # the loop is closed, and its connections with it
            self._loop.call_soon_threadsafe(self._transport.abort)

    def abandon(self) -> None:
        """Nothing to do: an event loop is not used on after a fork."""

    async def _wait(self, seconds: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, _expire, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError("no bytes came in time"))


class AsyncioBell:
    """Wakes a task of the running event loop, also from other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the task, now or at its next wait."""
        with suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._is_rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float, stream: ByteStream | None = None) -> bool:
        """True if it was rung; False if the stream has bytes or has ended."""
        assert stream is None or isinstance(stream, AsyncioStream)
        if not self._is_rung and not (stream is not None and stream.is_readable):
            waiter = self._waiter = self._loop.create_future()
            timer = self._loop.call_later(seconds, _expire, waiter)
            if stream is not None:
                stream.tell(waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
                if stream is not None:
                    stream.tell(None)
        is_rung, self._is_rung = self._is_rung, False
        return is_rung

    def close(self) -> None:
        """It holds nothing."""


class AsyncioLimit:
    """A semaphore of tasks."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    async def acquire(self, seconds: float | None = None) -> object:
        """Wait for a free use; raises TimeoutError after `seconds`, if given."""
        if not self._free.locked():
            return await self._free.acquire()
        async with asyncio.timeout(seconds):
            return await self._free.acquire()

    def release(self) -> None:
        """Give a use back."""
        self._free.release()


class LoopStreams(NamedTuple):
    """The connections of one event loop, and what closes them when the loop ends."""

    streams: WeakSet[AsyncioStream]
    closing: AsyncGenerator[None, None]


async def closed_at_end(streams: WeakSet[AsyncioStream]) -> AsyncGenerator[None, None]:
    """Close connections when the loop ends: `asyncio.run` ends the generators of a loop before it closes the loop."""
    try:
        yield
    finally:
        for stream in tuple(streams):
            stream.close()


class AsyncioNetwork:
    """The connections of the running event loop; `tls` makes the context of `https` on first use."""

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopStreams] = WeakKeyDictionary()

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        return asyncio.get_running_loop()

    async def connect(self, address: Address, seconds: float) -> AsyncioStream:
        """Connect, with TLS for `https`."""
        loop = asyncio.get_running_loop()
        context = self._tls() if address.is_secure else None
        async with asyncio.timeout(seconds):
            _, stream = await loop.create_connection(
                lambda: AsyncioStream(loop), address.host, address.port, ssl=context
            )
        if loop not in self._by_loop:
            streams: WeakSet[AsyncioStream] = WeakSet()
            self._by_loop[loop] = LoopStreams(streams, closed_at_end(streams))
            await anext(self._by_loop[loop].closing)  # from its first step on the loop knows the generator
        self._by_loop[loop].streams.add(stream)
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the loop."""
        await asyncio.sleep(seconds)

    async def apart(self, work: Callable[[], T]) -> T:
        """Run a function in a thread, so that the loop goes on."""
        return await asyncio.to_thread(work)

    def now(self) -> float:
        """The clock of deadlines, in seconds."""
        return read_clock()

    def limit(self, most: int) -> AsyncioLimit:
        """A semaphore of tasks."""
        return AsyncioLimit(most)

    def bell(self) -> AsyncioBell:
        """A bell for a task of the running loop."""
        return AsyncioBell()
