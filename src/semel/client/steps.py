"""Steps of a job that happen once over all its runs: looked up, done if no run has done them, and stored.

The first stored result is the step's for ever, and what every later run gets. A worker that dies between doing a step
and storing it leaves nothing behind, and the next run does it again: hand the step's name on to whatever it calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from semel.client.errors import StepError
from semel.client.jobs import JobsClient
from semel.client.values import Lease, Step

T = TypeVar("T")


class Steps:
    """The steps of one run; its calls end with it."""

    def __init__(self, client: JobsClient, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._under_way: set[str] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def ask(self, step_key: str) -> Step:
        """The stored result."""
        return await self._tracked(self._client.step(self._lease, step_key))

    async def store(self, step_key: str, result: Any) -> Step:
        """Store a result, unless there is one; returns the stored one."""
        return await self._tracked(self._client.store_step(self._lease, step_key, result))

    def wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        """The same for a thread: blocks it, not the loop."""
        try:
            asked = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:
            call.close()  # the loop is closed: the function has outlived its worker
            raise
        return asked.result()

    @contextmanager
    def begun(self, step_key: str) -> Iterator[None]:
        """Keeps a step from being begun twice at once, which would do it twice."""
        if step_key in self._under_way:
            raise StepError("A step of this name is under way in this run already.")
        self._under_way.add(step_key)
        try:
            yield
        finally:
            self._under_way.discard(step_key)

    def close(self) -> None:
        """Cancel open requests: the run is over."""
        self._is_closed = True
        for call in self._calls:
            call.cancel()

    async def _tracked(self, call: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            call.close()
            raise asyncio.CancelledError
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await task
