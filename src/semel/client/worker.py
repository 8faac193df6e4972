"""`Worker`: runs functions for kinds of jobs until SIGTERM or SIGINT.

A function gets a `Job`, or an `AsyncJob` if it is asynchronous, and returns the job's result. It runs at least once and
at most `max_attempts` times, and one result counts.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from semel.client.attempt import Handler
from semel.client.errors import CallError, ConfigurationError
from semel.client.job import AsyncJob, Job
from semel.client.jobs import MOST_WAIT_SECONDS, JobsClient
from semel.client.reports import refuse_unprintable
from semel.client.retry import ENDLESS
from semel.client.transport import find_access
from semel.client.worker_loop import WorkerLoop, WorkerPlan

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call a function in the running loop on SIGINT and SIGTERM while the block runs; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # `signal.signal` instead of `loop.add_signal_handler`, which Windows lacks.
    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(call)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


MAX_CONCURRENCY = 1_000
MAX_KINDS = 100
"""Maximum kinds in a claim."""
COMPLAIN_SECONDS = 10.0

log = logging.getLogger("semel.worker")

F = TypeVar("F", bound="Callable[[Job], Any] | Callable[[AsyncJob], Awaitable[Any]]")


class Worker:
    """Runs jobs of the kinds for which it has functions."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        result_hmac_key: str | bytes | None = None,
        concurrency: int = 8,
        queues: Sequence[str] | None = None,
        lease: int | None = None,
        poll: float = 20.0,
        grace: float = 30.0,
        worker_id: str | None = None,
    ) -> None:
        """Defaults come from SEMEL_URL, SEMEL_TOKEN and SEMEL_JOBS_RESULT_HMAC_KEY at start. `concurrency` is the
        number of jobs that run at once; `queues` are those served, by default all. `lease` is the lease in seconds, at
        most the job's own; a heartbeat is sent every third of it. `poll` is how long one claim waits for a job, in
        seconds; `grace` how long jobs may run after `stop`.
        """
        self._access: dict[str, Any] = {"url": url, "token": token, "hmac_key": result_hmac_key}
        name = worker_id or f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._plan = _checked(
            WorkerPlan(name, None if queues is None else tuple(queues), concurrency, lease, poll, grace)
        )
        self._handlers: dict[str, Handler] = {}
        self._service: WorkerLoop | None = None
        self._complained_at = -COMPLAIN_SECONDS

    def job(self, kind: str) -> Callable[[F], F]:
        """Decorator: the function runs jobs of this kind."""

        def register(function: F) -> F:
            if kind in self._handlers:
                raise ConfigurationError(f"Two functions are registered for jobs of the kind {kind}: keep one.")
            if len(self._handlers) == MAX_KINDS:
                raise ConfigurationError(f"A worker can have functions for at most {MAX_KINDS} kinds.")
            refuse_unprintable(kind, function)
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
            self._handlers[kind] = Handler(function, is_async)
            return function

        return register

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds for which it has functions."""
        return tuple(self._handlers)

    def configure(
        self,
        *,
        url: str | None = None,
        token: str | None = None,
        concurrency: int | None = None,
        queues: Sequence[str] | None = None,
    ) -> None:
        """Replace options of the worker before it runs."""
        self._access |= {name: value for name, value in (("url", url), ("token", token)) if value is not None}
        changes: dict[str, Any] = {"concurrency": concurrency, "queues": None if queues is None else tuple(queues)}
        self._plan = _checked(replace(self._plan, **{name: one for name, one in changes.items() if one is not None}))

    def run(self, *, until_idle: bool = False) -> Mapping[str, int]:
        """Run until SIGTERM or SIGINT; a second signal stops at once. Returns the counts of `serve`."""
        return asyncio.run(self._run(until_idle))

    async def serve(self, *, until_idle: bool = False) -> Mapping[str, int]:
        """Run until `stop` is called, or with `until_idle` until no job is ready.

        Returns how many runs were `completed`, `failed`, `deferred` and `dropped`. Raises the server's refusal if it
        rejects this worker, for example for a wrong token. An unavailable server is retried.
        """
        if not self._handlers:
            raise ConfigurationError("The worker has no functions: add one with @worker.job(kind).")
        if self._service is not None:
            raise ConfigurationError("The worker is running already.")
        access = find_access(**self._access, environ=os.environ)
        # Each job may have a report, a heartbeat and steps in flight.
        connections = 3 * self._plan.concurrency + 2
        async with JobsClient(
            access.url,
            token=access.token,
            result_hmac_key=access.hmac_key,
            patience=ENDLESS,
            connections=connections,
            on_retry=self._complain,
        ) as client:
            self._service = WorkerLoop(client, self._plan, self._handlers)
            log.info("Asking %s for jobs of %d kinds as %s.", access.url, len(self._handlers), self._plan.worker_id)
            try:
                await self._service.run(until_idle=until_idle)
                return {name: self._service.tally[name] for name in ("completed", "failed", "deferred", "dropped")}
            finally:
                self._service = None

    def stop(self) -> None:
        """Claim no more jobs, wait the grace time for running ones, give back the rest. A second call does not wait.

        Call it in the event loop of the worker.
        """
        if self._service is not None:
            self._service.stop()

    async def _run(self, until_idle: bool) -> Mapping[str, int]:
        with on_signals(self.stop):
            return await self.serve(until_idle=until_idle)

    def _complain(self, error: CallError) -> None:
        """Log that the server is unavailable or busy, at a limited rate."""
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.warning("%s Trying again.", error)


def _checked(plan: WorkerPlan) -> WorkerPlan:
    if not 1 <= plan.concurrency <= MAX_CONCURRENCY:
        raise ConfigurationError(f"concurrency must be from 1 to {MAX_CONCURRENCY}.")
    if not 0 < plan.poll <= MOST_WAIT_SECONDS:
        raise ConfigurationError(f"poll must be more than 0 and at most {MOST_WAIT_SECONDS:g} seconds.")
    if plan.grace < 0:
        raise ConfigurationError("grace must not be negative.")
    return plan
