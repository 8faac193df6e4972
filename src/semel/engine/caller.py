"""The caller of a write, which waits for the answer and may leave before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from semel.engine.back_pressure import NO_PRINCIPAL


class RequestOrigin(Protocol):
    """The request, message or call that a write comes from."""

    def log_facts(self) -> Mapping[str, str]:
        """What every log line about it has: its request id, and its `traceparent` if it has one."""


class WaitingCaller:
    """A caller that waits for an answer; the host calls `leave` when the client can no longer receive it."""

    __slots__ = ("_watchers", "admitted_at", "future", "gone", "origin", "principal")

    def __init__(self, principal: str = NO_PRINCIPAL) -> None:
        self.gone = False
        self.principal = principal
        """The principal whose share of the queue the writes take; empty for none."""
        self.future: asyncio.Future[Any] | None = None
        self.admitted_at = 0.0
        """When its last write entered the queue, in seconds of the monotonic clock."""
        self.origin: RequestOrigin | None = None
        """What the write comes from, for log lines; None for a chore."""
        self._watchers: tuple[Callable[[], object], ...] = ()

    def origins(self) -> Sequence[RequestOrigin]:
        """What the write comes from; asked only when it has failed for good, so that its log line can name it."""
        return () if self.origin is None else (self.origin,)

    @property
    def has_left(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return self.gone or (self.future is not None and self.future.cancelled())

    def settle(self, answer: Any) -> None:
        """Deliver the answer. Called on the event loop, after the commit."""
        future = self.future
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Deliver an error in place of the answer. Called on the event loop."""
        future = self.future
        if future is not None and not future.done():
            future.set_exception(error)

    def leave(self) -> None:
        """Record that the client will not receive the answer."""
        self.gone = True
        for watcher in self._watchers:
            watcher()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` when the client leaves; at once if it has left already."""
        if self.gone:
            watcher()
        else:
            self._watchers += (watcher,)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Undo `watch`."""
        self._watchers = tuple(one for one in self._watchers if one != watcher)
