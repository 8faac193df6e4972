"""Runs the coroutine of an answer without a task while it waits at most once.

A plain write waits once: for its commit. A task for it would be one more object and two more passes through the event
loop. A coroutine that waits a second time, such as a long poll, continues in a task that the host tracks. If the
connection is lost meanwhile, the coroutine runs to its end and its answer is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any

from semel.server.http.answer import Answer, ClientGoneError, StreamedAnswer
from semel.server.http.request import Request

if TYPE_CHECKING:
    from semel.server.http.exchange import HttpExchange

Work = Coroutine[Any, Any, Answer | StreamedAnswer]


class PlainWork:
    """The coroutine of one answer. Used on the event loop only."""

    __slots__ = ("_exchange", "_request", "_work")

    def __init__(self, exchange: HttpExchange, work: Work, request: Request) -> None:
        self._exchange = exchange
        self._work = work
        self._request = request

    def start(self) -> None:
        """Run to the first wait. A callback waits for a future; anything else needs a task."""
        found, awaited = self._step()
        if not found:
            return
        if asyncio.isfuture(awaited):
            awaited._asyncio_future_blocking = False  # as a task does when it begins to wait for a future
            awaited.add_done_callback(self._resume)
        else:
            self._continue_in_task(awaited)

    def _resume(self, future: asyncio.Future[Any]) -> None:
        """Continue when the future is done; the coroutine's own `await` gets the result or the exception."""
        found, awaited = self._step()
        if found:
            self._continue_in_task(awaited)

    def _step(self) -> tuple[bool, Any]:
        """Run to the next wait, and return the awaited object; if the coroutine ends, reply with its result."""
        exchange = self._exchange
        try:
            return True, self._work.send(None)
        except StopIteration as end:
            exchange.reply(end.value)
        except (ClientGoneError, asyncio.CancelledError):
            exchange.end_unanswered()
        except Exception as error:  # noqa: BLE001 - the application logs it and renders the answer
            exchange.fail(self._request, error)
        return False, None

    def _continue_in_task(self, awaited: Any) -> None:
        rest = _rest_of(self._work, awaited)
        self._exchange.connection.spawn(self._exchange.run(rest, self._request), self._work.close)


@coroutine
def _rest_of(work: Work, awaited: Any) -> Generator[Any, Any, Answer | StreamedAnswer]:
    """The rest of the coroutine, for a task: yields each awaited object to the task, and passes the outcome back."""
    failure: BaseException | None = None
    while True:
        try:
            yield awaited
        except BaseException as error:  # noqa: BLE001 - a cancellation belongs to the coroutine
            failure = error
        try:
            awaited = work.send(None) if failure is None else work.throw(failure)
        except StopIteration as end:
            result: Answer | StreamedAnswer = end.value
            return result
        failure = None
