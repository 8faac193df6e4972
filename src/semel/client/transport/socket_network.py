"""The blocking network: sockets of the standard library, for scripts, threads and synchronous frameworks.

It is safe to use from several threads: a connection belongs to one request at a time.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from semel.client.access import Address
from semel.client.transport.network import ByteStream, read_clock

PIECE_BYTES = 65_536

T = TypeVar("T")


def readable(sockets: Sequence[socket.socket], seconds: float) -> bool:
    """Whether one of the sockets has bytes, or has ended, within `seconds`."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select(sockets, [], [], seconds)[0])
    poller = select.poll()  # `select` cannot watch descriptors above 1,023
    for one in sockets:
        poller.register(one, select.POLLIN)
    return bool(poller.poll(seconds * 1_000))


class BlockingStream:
    """One connection that blocks."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @property
    def is_idle(self) -> bool:
        """Whether it is open and has no unread bytes; without an open request, readable means closed."""
        if self._socket.fileno() < 0:
            return False
        return not readable([self._socket], 0)

    def wait_beside(self, other: socket.socket, seconds: float) -> bool:
        """Whether this or another socket has bytes, or has ended, within `seconds`."""
        if self._socket.fileno() < 0 or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            return True
        return readable([self._socket, other], seconds)

    async def send(self, data: bytes, seconds: float) -> None:
        """Send all bytes, in pieces that must be taken within `seconds` each."""
        self._socket.settimeout(seconds)
        if len(data) <= PIECE_BYTES:
            self._socket.sendall(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), PIECE_BYTES):
            self._socket.sendall(view[start : start + PIECE_BYTES])

    async def receive(self, seconds: float) -> bytes:
        """The bytes that have arrived; empty at the end."""
        self._socket.settimeout(max(seconds, 0.001))
        return self._socket.recv(PIECE_BYTES)

    def close(self) -> None:
        """Close the connection; a thread that waits for its bytes is woken."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """Close the descriptor of this process only."""
        self._socket.close()


class BlockingLimit:
    """A semaphore of threads."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    async def acquire(self, seconds: float | None = None) -> object:
        """Wait for a free use, in the caller's thread."""
        if not self._free.acquire(timeout=seconds):
            raise TimeoutError("all connections are in use")
        return True

    def release(self) -> None:
        """Give a use back."""
        self._free.release()


class BlockingBell:
    """Wakes a thread that waits for bytes, by a socket of its own."""

    def __init__(self) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)

    def ring(self) -> None:
        """Wake the thread, now or at its next wait."""
        with suppress(OSError):  # full: it is rung already; closed: no thread waits
            self._outer.send(b"\0")

    async def wait(self, seconds: float, stream: ByteStream | None = None) -> bool:
        """True if it was rung; False if the stream has bytes or has ended."""
        assert stream is None or isinstance(stream, BlockingStream)
        if self._inner.fileno() < 0:
            return True
        if stream is None:
            is_over = not readable([self._inner], seconds)
        else:
            is_over = not stream.wait_beside(self._inner, seconds)
        if is_over:
            raise TimeoutError("no bytes came in time")
        return self._take()

    def _take(self) -> bool:
        is_rung = False
        with suppress(OSError):
            while self._inner.recv(PIECE_BYTES):
                is_rung = True
        return is_rung

    def close(self) -> None:
        """Close its sockets."""
        self._inner.close()
        self._outer.close()


class BlockingNetwork:
    """Blocking sockets; `tls` makes the context of `https` on first use."""

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls

    def loop(self) -> None:
        """Connections that block belong to no event loop."""

    async def connect(self, address: Address, seconds: float) -> BlockingStream:
        """Connect, with TLS for `https`."""
        plain = socket.create_connection((address.host, address.port), seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not address.is_secure:
                return BlockingStream(plain)
            return BlockingStream(self._tls().wrap_socket(plain, server_hostname=address.host))
        except BaseException:
            plain.close()
            raise

    async def sleep(self, seconds: float) -> None:
        """Wait in the caller's thread."""
        time.sleep(seconds)  # noqa: ASYNC251 - this network blocks by design

    async def apart(self, work: Callable[[], T]) -> T:
        """Run a function in the caller's thread."""
        return work()

    def now(self) -> float:
        """The clock of deadlines, in seconds."""
        return read_clock()

    def limit(self, most: int) -> BlockingLimit:
        """A semaphore of threads."""
        return BlockingLimit(most)

    def bell(self) -> BlockingBell:
        """A bell for the calling thread."""
        return BlockingBell()
