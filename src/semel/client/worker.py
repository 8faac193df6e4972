"""`Worker`: functions for kinds of jobs, and the program that runs them.

A function gets a `Job`, or an `AsyncJob` if it is asynchronous; what it returns is the job's result. It runs at least
once and at most `max_attempts` times, and one result counts.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from semel.client.access import find_access
from semel.client.attempt import Handler
from semel.client.errors import CallError, ConfigurationError
from semel.client.job import AsyncJob, Job
from semel.client.jobs import MOST_WAIT_SECONDS, JobsClient
from semel.client.patience import ENDLESS
from semel.client.results import refuse_unprintable
from semel.client.service import Plan, Service
from semel.client.signals import on_signals

MAX_CONCURRENCY = 1_000
MAX_KINDS = 100
"""Limit of kinds that a claim can name."""
COMPLAIN_SECONDS = 10.0

log = logging.getLogger("semel.worker")

F = TypeVar("F", bound="Callable[[Job], Any] | Callable[[AsyncJob], Awaitable[Any]]")


class Worker:
    """Runs jobs of the kinds that it has functions for."""

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
        """Values that are not given come from SEMEL_URL, SEMEL_TOKEN and SEMEL_JOBS_RESULT_HMAC_KEY when it runs.

        `concurrency` is how many jobs run at once; `queues` which ones it serves, all if not given. `lease` is how many
        seconds of silence the server grants it, at most what the job has; heartbeats are sent three times as often.
        `poll` is how long one claim waits for a job, `grace` how long jobs may go on when the worker is stopped.
        """
        self._access: dict[str, Any] = {"url": url, "token": token, "hmac_key": result_hmac_key}
        name = worker_id or f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._plan = _checked(Plan(name, None if queues is None else tuple(queues), concurrency, lease, poll, grace))
        self._handlers: dict[str, Handler] = {}
        self._service: Service | None = None
        self._complained_at = -COMPLAIN_SECONDS

    def job(self, kind: str) -> Callable[[F], F]:
        """Makes a function the one for jobs of this kind."""

        def register(function: F) -> F:
            if kind in self._handlers:
                raise ConfigurationError(f"There are two functions for jobs of the kind {kind}.")
            if len(self._handlers) == MAX_KINDS:
                raise ConfigurationError(f"A worker has functions for at most {MAX_KINDS} kinds.")
            refuse_unprintable(kind, function)
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
            self._handlers[kind] = Handler(function, is_async)
            return function

        return register

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it has functions for."""
        return tuple(self._handlers)

    def configure(
        self,
        *,
        url: str | None = None,
        token: str | None = None,
        concurrency: int | None = None,
        queues: Sequence[str] | None = None,
    ) -> None:
        """Replace the given options of the worker; before it runs."""
        self._access |= {name: value for name, value in (("url", url), ("token", token)) if value is not None}
        changes: dict[str, Any] = {"concurrency": concurrency, "queues": None if queues is None else tuple(queues)}
        self._plan = _checked(replace(self._plan, **{name: one for name, one in changes.items() if one is not None}))

    def run(self, *, until_idle: bool = False) -> Mapping[str, int]:
        """Run until SIGTERM or SIGINT; the second one ends it at once. Returns as `serve` does."""
        return asyncio.run(self._run(until_idle))

    async def serve(self, *, until_idle: bool = False) -> Mapping[str, int]:
        """Run until `stop` is called, or with `until_idle` until no job is ready.

        Returns how many runs were `completed`, `failed`, `deferred` and `dropped`. Raises the server's verdict when it
        takes nothing from this worker, a wrong token for example; a server that is away is waited for.
        """
        if not self._handlers:
            raise ConfigurationError("The worker has no functions: use @worker.job(kind).")
        if self._service is not None:
            raise ConfigurationError("The worker is running already.")
        access = find_access(**self._access, environ=os.environ)
        # Each job may have a report and a heartbeat under way, and steps besides.
        connections = 3 * self._plan.concurrency + 2
        async with JobsClient(
            access.url,
            token=access.token,
            result_hmac_key=access.hmac_key,
            patience=ENDLESS,
            connections=connections,
            on_retry=self._complain,
        ) as client:
            self._service = Service(client, self._plan, self._handlers)
            log.info("Asking %s for jobs of %d kinds as %s.", access.url, len(self._handlers), self._plan.worker_id)
            try:
                await self._service.run(until_idle=until_idle)
                return {name: self._service.tally[name] for name in ("completed", "failed", "deferred", "dropped")}
            finally:
                self._service = None

    def stop(self) -> None:
        """Claim no more, let jobs end for the grace time, give the rest back; a second call cuts the time short.

        To be called in the loop that the worker runs in.
        """
        if self._service is not None:
            self._service.stop()

    async def _run(self, until_idle: bool) -> Mapping[str, int]:
        with on_signals(self.stop):
            return await self.serve(until_idle=until_idle)

    def _complain(self, error: CallError) -> None:
        """Say that the server is away or busy, but not each time."""
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.warning("%s Trying again.", error)


def _checked(plan: Plan) -> Plan:
    if not 1 <= plan.concurrency <= MAX_CONCURRENCY:
        raise ConfigurationError(f"concurrency is from 1 to {MAX_CONCURRENCY}.")
    if not 0 < plan.poll <= MOST_WAIT_SECONDS:
        raise ConfigurationError(f"poll is more than 0 and at most {MOST_WAIT_SECONDS:g} seconds.")
    if plan.grace < 0:
        raise ConfigurationError("grace is not negative.")
    return plan
