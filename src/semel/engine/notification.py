"""Wake-up signals: notify live readers and long polls of a topic after a commit.

A signal carries no data: a woken reader reads the log again from its own cursor. A signal may therefore be sent twice
or without a change, but never before the commit that it announces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class CommitNotifier:
    """Subscriptions of readers by topic; used on the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self.turn = 0
        """Increases with every signal: two reads in one turn see the same commits."""

    def watch(self, topic: bytes) -> TopicWatch:
        """Subscribe to a topic: no signal sent from now on is missed."""
        return TopicWatch(self, topic)

    def send(self, topics: Iterable[bytes]) -> None:
        """Wake all readers of these topics."""
        self.turn += 1
        for topic in topics:
            for waiting in self._waiting.pop(topic, ()):
                if not waiting.done():
                    waiting.set_result(None)

    def send_all(self) -> None:
        """Wake all readers: the server is stopping, or it is unknown what has changed."""
        self.send(list(self._waiting))

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())


class TopicWatch:
    """The subscription of one reader."""

    __slots__ = ("_future", "_signals", "_topic")

    def __init__(self, signals: CommitNotifier, topic: bytes) -> None:
        self._signals = signals
        self._topic = topic
        self._future: asyncio.Future[None] | None = None
        self.arm()

    def arm(self) -> None:
        """Listen for the next signal; called before each read of the log."""
        if self._future is None or self._future.done():
            self._future = asyncio.get_running_loop().create_future()
            self._signals._waiting.setdefault(self._topic, set()).add(self._future)

    @property
    def has_fired(self) -> bool:
        """Whether a signal was sent since the watch was armed."""
        return self._future is not None and self._future.done()

    async def wait(self, seconds: float) -> bool:
        """Wait for a signal; returns whether one was sent in time."""
        assert self._future is not None
        await asyncio.wait((self._future,), timeout=max(0.0, seconds))
        return self._future.done()

    def wake(self) -> None:
        """Wake this reader alone."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
            self.close()

    def close(self) -> None:
        """Unsubscribe."""
        waiting = self._signals._waiting.get(self._topic)
        if waiting is not None and self._future is not None:
            waiting.discard(self._future)
            if not waiting:
                del self._signals._waiting[self._topic]
