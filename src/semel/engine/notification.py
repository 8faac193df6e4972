"""Wake-up signals: notify live readers and long polls of a topic after a commit.

A signal carries no data: a woken reader reads the log again from its own cursor. A signal may therefore be sent twice
or without a change, but never before the commit that it announces.

A reader that waits may be served without being woken: its `take` is called first, and sends what was committed if that
is at hand and the client keeps up. Many readers are woken in slices, so that the event loop is not held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from math import isinf

WOKEN_AT_ONCE = 512
"""Limit on the readers that are woken in one pass of the event loop; the others follow in the next passes."""


class CommitNotifier:
    """Subscriptions of readers by topic; used on the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, set[TopicWatch]] = {}
        self._fired: deque[TopicWatch] = deque()
        """Readers that were sent a signal and are still to be woken."""
        self._own_topics: set[bytes] = set()
        """Topics of the server's own tasks, which are no live readers."""
        self.turn = 0
        """Increases with every signal: two reads in one turn see the same commits."""

    def watch(self, topic: bytes, *, is_own: bool = False) -> TopicWatch:
        """Subscribe to a topic: no signal from now on is missed. The server's own tasks are no live readers."""
        if is_own:
            self._own_topics.add(topic)
        return TopicWatch(self, topic)

    def send(self, topics: Iterable[bytes]) -> None:
        """Wake all readers of these topics."""
        self.turn += 1
        is_waking = bool(self._fired)
        for topic in topics:
            self._fired.extend(self._waiting.pop(topic, ()))
        if self._fired and not is_waking:
            self._wake_some()

    def _wake_some(self) -> None:
        fired = self._fired
        for _ in range(min(WOKEN_AT_ONCE, len(fired))):
            fired.popleft()._fire()
        if fired:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def send_all(self) -> None:
        """Wake all readers: the server is stopping, or it is unknown what has changed."""
        self.send(list(self._waiting))

    def __len__(self) -> int:
        """The number of live readers."""
        return sum(len(waiting) for topic, waiting in self._waiting.items() if topic not in self._own_topics)


class TopicWatch:
    """The subscription of one reader."""

    __slots__ = ("_future", "_signals", "_topic", "take")

    def __init__(self, signals: CommitNotifier, topic: bytes) -> None:
        self._signals = signals
        self._topic = topic
        self._future: asyncio.Future[bool] | None = None
        self.take: Callable[[], bool] | None = None
        """Called at a signal; if it returns true, the reader has all that was committed, and waits on."""
        self.arm()

    def arm(self) -> None:
        """Listen for the next signal; called before each read of the log."""
        if self._future is None or self._future.done():
            self._future = asyncio.get_running_loop().create_future()
            self._enter()

    @property
    def has_fired(self) -> bool:
        """Whether a signal was sent since the watch was armed."""
        return self._future is not None and self._future.done()

    async def wait(self, seconds: float) -> bool:
        """Wait for a signal; returns whether one was sent in time."""
        future = self._future
        assert future is not None
        if future.done():
            return True
        loop = asyncio.get_running_loop()
        timer = None if isinf(seconds) else loop.call_later(max(0.0, seconds), self._end_wait, future)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()

    def _end_wait(self, future: asyncio.Future[bool]) -> None:
        """End a wait without a signal; the watch stays armed."""
        if not future.done():
            self._future = None
            self.arm()
            future.set_result(False)

    def _fire(self) -> None:
        """A signal was sent while the watch was armed."""
        future = self._future
        if future is None or future.done():
            return  # the reader has ended, or is awake
        if self._takes():
            self._enter()
        else:
            future.set_result(True)

    def _takes(self) -> bool:
        try:
            return self.take is not None and self.take()
        except Exception:  # noqa: BLE001 - the reader meets the error again in its own task; the others are woken
            return False

    def wake(self) -> None:
        """Wake this reader alone."""
        if self._future is not None and not self._future.done():
            self._future.set_result(True)
            self._leave()

    def close(self) -> None:
        """Unsubscribe."""
        self._leave()
        self._future = self.take = None

    def _enter(self) -> None:
        self._signals._waiting.setdefault(self._topic, set()).add(self)

    def _leave(self) -> None:
        waiting = self._signals._waiting.get(self._topic)
        if waiting is not None:
            waiting.discard(self)
            if not waiting:
                del self._signals._waiting[self._topic]
