"""Submissions of one connection in flight: sent to the engine and answered in order, several in one write.

Their items are known by id, so that the feed can send an answer before others get its events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from semel.contracts.events.commands import FORBIDDEN, Committed, Rejection, Submit, Submitted
from semel.contracts.events.wire.frame_size import answer_within
from semel.contracts.events.wire.session import Session
from semel.engine.contract import FaultError, Write
from semel.engine.engine import Caller
from semel.engine.queue_share import NOBODY
from semel.server.events.hub import Hub
from semel.server.events.subscriber import Subscriber


class _Pending(NamedTuple):
    command: Submit
    reply_to: str | None
    caller: Caller
    future: asyncio.Future[Submitted]


class Submissions:
    """Answers go to `tell`; `go_on` is called after some were sent, and `fail` when one has no outcome."""

    def __init__(
        self,
        hub: Hub,
        session: Session,
        tell: Callable[[list[bytes]], None],
        go_on: Callable[[], None],
        fail: Callable[[str], None],
        subscriber: Subscriber,
        remote: str,
    ) -> None:
        self._hub = hub
        self._session = session
        self._tell = tell
        self._go_on = go_on
        self._fail = fail
        self._subscriber = subscriber
        self._remote = remote
        self._pending: deque[_Pending] = deque()
        self._names: dict[bytes, asyncio.Future[Submitted]] = {}
        self.principal = NOBODY
        """Whose share of the engine's queue they take."""
        self.items = 0
        """The number of items that wait for a commit."""

    def __len__(self) -> int:
        return len(self._pending)

    def under_way(self, name: bytes) -> asyncio.Future[Any] | None:
        """The answer that the submitter of this event is still to be given."""
        return self._names.get(name)

    def hand_over(self, command: Submit, size: int, reply_to: str | None) -> None:
        """Give one to the engine; it says so at once when it has no room."""
        caller = Caller(self.principal)
        future = self._hub.context.engine.admit(Write(self._hub.contract, command, size, len(command.items)), caller)
        self._pending.append(_Pending(command, reply_to, caller, future))
        self.items += len(command.items)
        for item in command.items:
            self._names[item.name] = future
        future.add_done_callback(self._answered)

    def leave(self) -> None:
        """The client will not receive the answers: cancel what is not decided yet."""
        for pending in reversed(self._pending):  # or a later one might be stored without an earlier one
            pending.caller.leave()

    def _answered(self, future: asyncio.Future[Submitted]) -> None:
        """Tell every answer whose turn it is."""
        messages: list[bytes] = []
        while self._pending and self._pending[0].future.done():
            pending = self._pending.popleft()
            self.items -= len(pending.command.items)
            for item in pending.command.items:
                self._names.pop(item.name, None)
            error = asyncio.CancelledError() if pending.future.cancelled() else pending.future.exception()
            if error is not None:
                self.leave()
                self._tell(messages)
                self._fail(unanswerable(error))
                return
            messages.append(self._message(pending))
        self._tell(messages)
        self._go_on()

    def _message(self, pending: _Pending) -> bytes:
        dialect = self._session.dialect
        assert dialect is not None
        answer = pending.future.result()
        count_results(self._hub.counts, answer)
        if has_denial(answer):
            self._hub.denied(self._remote)
        for result in answer.results:
            if isinstance(result, Committed) and not result.is_new:
                self._subscriber.skip(result.committed_id)
        payload = answer_within(partial(dialect.submitted, pending.command), answer, self._hub.terms.limits)
        return self._session.message("submit_events_result", payload, pending.reply_to, answer.decided_at)


def count_results(counts: dict[str, int], answer: Submitted) -> None:
    """By outcome, for the metrics."""
    for result in answer.results:
        if isinstance(result, Committed):
            counts["committed" if result.is_new else "replayed"] += 1
        else:
            counts["rejected" if isinstance(result, Rejection) else "not_processed"] += 1


def has_denial(answer: Submitted) -> bool:
    """Whether an item was refused because its submitter may not write there, or not under that client id."""
    return any(isinstance(result, Rejection) and result.reason == FORBIDDEN for result in answer.results)


def unanswerable(error: BaseException) -> str:
    """The error for items of unknown outcome: the client repeats the same ids."""
    if isinstance(error, FaultError):
        return f"Something went wrong here; repeat the same ids. Error id {error.error_id}."
    return f"{str(error) or 'The server is stopping.'} Connect again and repeat the same ids."
