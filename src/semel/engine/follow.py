"""How a log is followed: live reads of streams, blocks of the ledger, a job until its end, the feed of events.

A follower arms its watch, reads from its cursor, and waits only if there was nothing to return. A commit between the
read and the wait fires the watch that was armed before the read, so the wait ends at once and no commit is missed.

A wait ends with the first of these: a commit, the deadline of the caller (a long poll, or the heartbeat of an event
stream), the next time at which the log has to be read without a signal, the departure of the client, the revocation or
the expiry of its credential, and the stop of the server. The end of a follower is passed in as a `FollowEnd`: the
engine knows neither connections nor credentials. The log is read once more after the wait, so that everything committed
before the end is still returned.

A follower holds no page: it reads the next one when its caller asks for it, and drops the last page before it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from semel.engine.notification import CommitNotifier, TopicWatch

T = TypeVar("T")

FOREVER = float("inf")
LEAST_REST_SECONDS = 0.005
"""The shortest wait, in seconds: a timer may fire a little early, and the log must not be read in a tight loop."""

Wake = Callable[[], object]


class EndCause(Enum):
    """Why a follower ends although its caller would continue."""

    GONE = "the client has disconnected"
    STOP = "the server is stopping"
    CREDENTIAL = "the credential was revoked or has expired"


class WakeSource(Protocol):
    """Wakes followers when a condition may have ended them."""

    def watch(self, watcher: Wake) -> None:
        """Call `wake` when the condition occurs; at once if it has occurred."""

    def unwatch(self, watcher: Wake) -> None:
        """Undo `watch`."""


def _never() -> bool:
    return False


def _forever() -> float:
    return FOREVER


@dataclass(frozen=True, slots=True)
class FollowEnd:
    """The conditions that end a follower. Each is permanent: once it holds, every later check sees it.

    The stop of the server wakes all followers by `CommitNotifier.send_all`; each of the other conditions has a
    `WakeSource`, or a time at which it occurs.
    """

    is_gone: Callable[[], bool] = _never
    is_stopping: Callable[[], bool] = _never
    credential_seconds: Callable[[], float] = _forever
    """Seconds until the credential expires; 0 or less if it has expired or was revoked."""
    sources: tuple[WakeSource, ...] = ()

    @property
    def cause(self) -> EndCause | None:
        """Why the follower has to end now; None if it may continue."""
        if self.is_gone():
            return EndCause.GONE
        if self.is_stopping():
            return EndCause.STOP
        return EndCause.CREDENTIAL if self.credential_seconds() <= 0 else None

    def watch(self, wake: Wake) -> None:
        """Call `wake` when a condition may have occurred."""
        for source in self.sources:
            source.watch(wake)

    def unwatch(self, wake: Wake) -> None:
        """Undo `watch`."""
        for source in self.sources:
            source.unwatch(wake)


NO_END = FollowEnd()
"""For a follower that ends only when its task is cancelled."""


class FollowedPage(NamedTuple, Generic[T]):
    """The result of one read of the log."""

    page: T
    is_ready: bool
    """Whether it is returned at once; otherwise the follower waits and reads again, and returns it only at the end."""
    rest_seconds: float = FOREVER
    """The longest time until the next read, in seconds, for changes without a signal, or whose signal may be lost."""


class LogFollower:
    """Follows one topic; a context manager, used on the event loop."""

    def __init__(self, signals: CommitNotifier, topic: bytes, end: FollowEnd = NO_END) -> None:
        self._signals = signals
        self._topic = topic
        self._watch: TopicWatch | None = None
        self.end = end

    def __enter__(self) -> Self:
        self._watch = self._signals.watch(self._topic)
        self.end.watch(self.wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end.unwatch(self.wake)
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    @property
    def is_over(self) -> bool:
        """Whether the follower has ended."""
        return self.end.cause is not None

    def wake(self) -> None:
        """End the wait, if there is one: the follower reads again."""
        if self._watch is not None:
            self._watch.wake()

    async def follow(
        self,
        look: Callable[[], Awaitable[FollowedPage[T]]],
        seconds: float = FOREVER,
        take: Callable[[], bool] | None = None,
    ) -> T:
        """Read until a page is ready; returns the last page, ready or not, when the time is up or the follower has
        ended.

        A commit during a wait is offered to `take` first. If it returns true, the client has been sent everything that
        was committed, and the wait goes on.
        """
        watch = self._watch
        assert watch is not None, "follow needs an entered context manager"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            watch.arm()
            found = await look()
            left = deadline - loop.time()
            if found.is_ready or left <= 0 or self.end.cause is not None:
                return found.page
            rest = min(found.rest_seconds, max(LEAST_REST_SECONDS, self.end.credential_seconds()))
            del found
            watch.take = take
            try:
                await watch.wait(min(left, rest))
            finally:
                watch.take = None
