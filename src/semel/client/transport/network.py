"""What the clients need of a network: connections of bytes, time, and a limit of concurrent uses.

Everything above it is written once, as coroutines. Over the blocking network no `await` suspends, and `finished` runs a
coroutine to its end in the caller's thread; over asyncio the event loop runs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from semel.client.access import Address

if TYPE_CHECKING:  # a script loads no event loop
    from asyncio import AbstractEventLoop

T = TypeVar("T")


def read_clock() -> float:
    """The clock of deadlines: a server counts the hours for which the machine of its client was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ByteStream(Protocol):
    """One connection. Its failures are OSError; a wait that takes too long is TimeoutError."""

    @property
    def is_idle(self) -> bool:
        """Whether it can carry another request: open, and without unread bytes."""

    async def send(self, data: bytes, seconds: float) -> None:
        """Send all bytes; each piece of them must be taken within `seconds`."""

    async def receive(self, seconds: float) -> bytes:
        """The bytes that have arrived, at least one; empty if the peer has closed its side."""

    def close(self) -> None:
        """Close it, also for a thread that waits for its bytes; a second call does nothing."""

    def abandon(self) -> None:
        """Forget it after a fork: the parent process still uses the connection."""


class UseLimit(Protocol):
    """A semaphore."""

    async def acquire(self, seconds: float | None = None) -> object:
        """Wait for a free use; raises TimeoutError after `seconds`, if given."""

    def release(self) -> None:
        """Give a use back."""


class Bell(Protocol):
    """Wakes one waiting task or thread. A ring is kept until the next wait."""

    def ring(self) -> None:
        """Wake it; from any thread."""

    async def wait(self, seconds: float, stream: ByteStream | None = None) -> bool:
        """True if it was rung; False if the stream has bytes or has ended. Raises TimeoutError after `seconds`."""

    def close(self) -> None:
        """Free its resources; later rings do nothing."""


class Network(Protocol):
    """Connections, time, limits and bells."""

    def loop(self) -> AbstractEventLoop | None:
        """The running event loop, to which connections belong; None if they block, and belong to no loop."""

    async def connect(self, address: Address, seconds: float) -> ByteStream:
        """A new connection."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def apart(self, work: Callable[[], T]) -> T:
        """The result of a function that may block, for example on a disk."""

    def now(self) -> float:
        """Seconds by a clock that never falls, and counts the time for which the machine was suspended."""

    def limit(self, most: int) -> UseLimit:
        """A limit of concurrent uses."""

    def bell(self) -> Bell:
        """A bell for the calling task or thread."""


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, because its network blocks."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("A call of the blocking client suspended: it was given the network of an event loop.")
