"""One way to follow a log: live reads of streams, blocks of the ledger, a job until its end, the feed of events.

A follower arms its watch, reads from its cursor, and waits only if there was nothing to give. A commit between the read
and the wait has fired the watch that was armed before the read, so the wait ends at once and no commit is missed.

A wait ends with the first of these: a commit, the deadline of the caller (a long poll, or the pulse of an event
stream), the next time at which the log has to be read without a signal, the departure of the client, the revocation or
the expiry of its credential, and the stop of the server. What ends a follower is passed in as a `FollowEnd`: the engine
knows neither connections nor credentials. The log is read once more after the wait, so that what was committed before
the end is still given.

A follower holds no page: it reads the next one when its caller asks for it, and drops what it has seen before it waits.
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
"""The shortest wait: a timer may fire a little before its time, and the log is not read in a tight loop until then."""

Wake = Callable[[], object]


class EndCause(Enum):
    """Why a follower ends, although its caller would go on."""

    GONE = "the client has disconnected"
    STOP = "the server is stopping"
    CREDENTIAL = "the credential was revoked or has expired"


class WakeSource(Protocol):
    """Tells followers that something may have ended them."""

    def watch(self, watcher: Wake) -> None:
        """Call this when it happens; at once if it has happened."""

    def unwatch(self, watcher: Wake) -> None:
        """Call it no more."""


def _never() -> bool:
    return False


def _forever() -> float:
    return FOREVER


@dataclass(frozen=True, slots=True)
class FollowEnd:
    """What ends a follower. Every cause lasts: once it has come, it is there at each later look.

    The stop of the server wakes all followers by `CommitNotifier.send_all`; the other causes have a source here, or a
    time at which they come.
    """

    is_gone: Callable[[], bool] = _never
    is_stopping: Callable[[], bool] = _never
    credential_seconds: Callable[[], float] = _forever
    """Seconds until the credential expires; 0 or less once it has expired or was revoked."""
    sources: tuple[WakeSource, ...] = ()

    @property
    def cause(self) -> EndCause | None:
        """Why it ends now; None while it goes on."""
        if self.is_gone():
            return EndCause.GONE
        if self.is_stopping():
            return EndCause.STOP
        return EndCause.CREDENTIAL if self.credential_seconds() <= 0 else None

    def watch(self, wake: Wake) -> None:
        """Call this when a cause may have come."""
        for source in self.sources:
            source.watch(wake)

    def unwatch(self, wake: Wake) -> None:
        """Call it no more."""
        for source in self.sources:
            source.unwatch(wake)


NO_END = FollowEnd()
"""For a follower that its task ends."""


class FollowedPage(NamedTuple, Generic[T]):
    """What one look at the log has found."""

    page: T
    is_ready: bool
    """Whether it is given at once; else the follower waits and looks again, and gives it only at the end."""
    rest_seconds: float = FOREVER
    """The longest time until the next look, for changes that no signal tells, or whose signal may be lost."""


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
        """Whether something has ended it."""
        return self.end.cause is not None

    def wake(self) -> None:
        """End its wait, if it waits: it looks again."""
        if self._watch is not None:
            self._watch.wake()

    async def follow(self, look: Callable[[], Awaitable[FollowedPage[T]]], seconds: float = FOREVER) -> T:
        """Look until something is ready; the last look, ready or not, when the time is up or the follower has ended."""
        watch = self._watch
        assert watch is not None, "a follower is entered before it is asked"
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
            await watch.wait(min(left, rest))
