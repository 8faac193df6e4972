"""Wake-up signals: notify live readers and long polls of a topic after a commit.

A signal carries no data: a woken reader reads the log again from its own cursor. So a signal may be sent twice or
without a reason, but never before the commit that it announces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Signals:
    """Subscriptions of readers by topic; used on the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self.turn = 0
        """Rises with every signal: two reads in one turn see the same commits."""

    def watch(self, topic: bytes) -> Watch:
        """Begin to listen: signals sent from now on are not missed."""
        return Watch(self, topic)

    def send(self, topics: Iterable[bytes]) -> None:
        """Wake all listeners of these topics."""
        self.turn += 1
        for topic in topics:
            for waiting in self._waiting.pop(topic, ()):
                if not waiting.done():
                    waiting.set_result(None)

    def send_all(self) -> None:
        """Wake all listeners: the server is stopping, or it is unknown what has changed."""
        self.send(list(self._waiting))

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())


class Watch:
    """The subscription of one reader."""

    __slots__ = ("_future", "_signals", "_topic")

    def __init__(self, signals: Signals, topic: bytes) -> None:
        self._signals = signals
        self._topic = topic
        self._future: asyncio.Future[None] | None = None
        self.arm()

    def arm(self) -> None:
        """Listen (again), before looking at the log."""
        if self._future is None or self._future.done():
            self._future = asyncio.get_running_loop().create_future()
            self._signals._waiting.setdefault(self._topic, set()).add(self._future)

    @property
    def has_fired(self) -> bool:
        """Whether a signal was sent since the watch was armed."""
        return self._future is not None and self._future.done()

    async def wait(self, seconds: float) -> bool:
        """Wait for a signal; whether it was sent in time."""
        assert self._future is not None
        await asyncio.wait((self._future,), timeout=max(0.0, seconds))
        return self._future.done()

    def wake(self) -> None:
        """Wake this reader alone."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
            self.close()

    def close(self) -> None:
        """Stop listening."""
        waiting = self._signals._waiting.get(self._topic)
        if waiting is not None and self._future is not None:
            waiting.discard(self._future)
            if not waiting:
                del self._signals._waiting[self._topic]
