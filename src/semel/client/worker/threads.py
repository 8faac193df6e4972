"""The thread pool of synchronous job functions: one thread per concurrent job.

The threads are daemons, so a function that does not return when the worker stops does not keep the process alive: its
job has been given back, and the server refuses its report.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """The outcome of a function: a value, or an error."""

    value: Any
    error: BaseException | None = None


class _Call(NamedTuple):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Ended]


class Threads:
    """At most `most` threads at once; a further function waits for a free one.

    A function that does not return after its lease was lost can be abandoned: another thread replaces its own. At most
    `most` threads can be abandoned at once, so their number is limited.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_left = most
        self._left = 0
        """Abandoned threads that have not returned yet."""
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._spare = 0
        """Threads without a call; negative: calls without a thread."""
        self._started = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Ended]:
        """Start a function. The future's result is an `Ended`, never an exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            self._start_missing(1)
            self._spare -= 1
        self._calls.put(_Call(lambda: context.run(function), loop, future))
        return future

    def _start_missing(self, more: int = 0) -> None:
        """Start a thread if a call, or one of `more` calls, has none."""
        if self._spare < more and self._started < self._most:
            threading.Thread(target=self._work, name=f"semel-job-{self._started + 1}", daemon=True).start()
            self._started += 1
            self._spare += 1

    def leave(self, call: asyncio.Future[Ended]) -> bool:
        """Abandon a function. Returns False if too many are abandoned already."""
        if self._left == self._most_left:
            return False
        self._left += 1
        self._most += 1
        call.add_done_callback(self._returned)
        with self._lock:
            self._start_missing()
        return True

    def _returned(self, call: asyncio.Future[Ended]) -> None:
        """Reuse the thread of an abandoned function that has returned: one thread less is needed."""
        self._left -= 1
        self._most -= 1

    def close(self) -> None:
        """End the threads, each after its current function."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            ended = _call(call.function)
            with self._lock:
                self._spare += 1  # before the future is set, so that the next call finds this thread
            # The loop may be closed: no task waits for a function that outlived its worker.
            with suppress(RuntimeError):
                call.loop.call_soon_threadsafe(_settle, call.future, ended)
            del call, ended


def _call(function: Callable[[], Any]) -> Ended:
    try:
        return Ended(function())
    except BaseException as error:  # noqa: BLE001 - an error of the function ends its job, not the thread
        return Ended(None, error)


def _settle(future: asyncio.Future[Ended], ended: Ended) -> None:
    if not future.done():
        future.set_result(ended)
