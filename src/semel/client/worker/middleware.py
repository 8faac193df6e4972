"""Middleware: functions around every run of a job, such as tracing or a database session.

    @worker.middleware
    def session(job, call):
        with Session(engine) as session, session.begin():
            current_session.set(session)
            return call()

A middleware gets the job and the rest of the chain, and returns the result. One with `async def` runs on the event loop
around every function; a plain one runs in the thread (or the process) of a synchronous function, and around no other.
The first that was registered is the outermost; asynchronous ones are outside of synchronous ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from semel.client.worker.job import AnyJob
from semel.client.worker.reports import finished_result

Middleware = Callable[[Any, Callable[[], Any]], Any]
AsyncMiddleware = Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]


class MiddlewareChain:
    """The middleware of a worker, in order of registration."""

    def __init__(self) -> None:
        self._in_thread: list[Middleware] = []
        self._on_loop: list[AsyncMiddleware] = []

    def add(self, function: Callable[..., Any]) -> None:
        """Register a middleware."""
        if is_coroutine_function(function):
            self._on_loop.append(function)
        else:
            self._in_thread.append(function)

    @property
    def is_on_loop(self) -> bool:
        """Whether any of it runs on the event loop."""
        return bool(self._on_loop)

    def call(self, job: AnyJob, function: Callable[[], Any]) -> Any:
        """Run a synchronous function within the synchronous middleware."""
        for one in reversed(self._in_thread):
            function = partial(one, job, function)
        return finished_result(function())

    async def call_async(self, job: AnyJob, function: Callable[[], Awaitable[Any]]) -> Any:
        """Run an asynchronous function within the asynchronous middleware."""
        for one in reversed(self._on_loop):
            function = partial(one, job, function)
        return finished_result(await function())


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it returns a coroutine; also for an object with an asynchronous `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
