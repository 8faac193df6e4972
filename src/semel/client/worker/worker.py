"""`Worker`: job functions, and the process that runs them until SIGTERM or SIGINT.

    worker = Worker(concurrency=8)

    @worker.job(queue="billing", attempts=3)
    def bill(order: str) -> str: ...

A function runs at least once and at most `attempts` times, and one result counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from semel.client.access import Access, find_access
from semel.client.call_observer import CallObserver
from semel.client.client import AsyncClient
from semel.client.errors import CallError, ConfigurationError, InvalidArgumentError
from semel.client.jobs.requests import MOST_WAIT_SECONDS
from semel.client.jobs.values import CatchUp, Debounce, ScheduleInfo, Unique
from semel.client.retry import ENDLESS, Patience
from semel.client.worker.functions import JobDecorator, JobFunction
from semel.client.worker.handler import Handler
from semel.client.worker.job import AsyncJob, Job
from semel.client.worker.lease_keeper import LeaseKeeper
from semel.client.worker.loop import WorkerLoop, WorkerPlan
from semel.client.worker.middleware import MiddlewareChain
from semel.client.worker.options import Backoff, JobOptions, Priority
from semel.client.worker.processes import ProcessPool, checked_place
from semel.client.worker.schedules import CronSchedule, store_schedules
from semel.client.worker.submitters import Submitters
from semel.client.worker.testing import WorkerTest

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", bound=JobFunction[..., ..., Any, Any])

SIGNALS = (signal.SIGTERM, signal.SIGINT)
KIND = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


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
COUNTS = ("completed", "failed", "deferred", "dropped")

log = logging.getLogger("semel.worker")


class Worker:
    """Job functions, and what runs them."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        result_hmac_key: str | bytes | None = None,
        concurrency: int = 8,
        processes: int | None = None,
        queues: Sequence[str] | None = None,
        lease: int | None = None,
        poll: float = 20.0,
        grace: float = 30.0,
        worker_id: str | None = None,
        store_schedules: bool = True,
        telemetry: CallObserver | None = None,
    ) -> None:
        """Defaults come from SEMEL_URL, SEMEL_TOKEN and SEMEL_JOBS_RESULT_HMAC_KEY at start. `concurrency` is the
        number of jobs that run at once in threads and on the event loop; `processes` the number of those that run in
        processes, by default as many as this machine has CPUs. `queues` are those served, by default all. `lease` is
        the lease in seconds, at most the job's own; a heartbeat is sent every third of it. `poll` is how long one claim
        waits for a job, in seconds; `grace` how long jobs may run after `stop`. `store_schedules` stores the schedules
        of `cron` when the worker starts. With `telemetry` a run continues the trace of its submitter.
        """
        self._telemetry = telemetry
        self._access: dict[str, Any] = {"url": url, "token": token, "hmac_key": result_hmac_key}
        name = worker_id or f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._plan = _checked(
            WorkerPlan(name, None if queues is None else tuple(queues), concurrency, lease, poll, grace)
        )
        self._processes = os.cpu_count() or 1 if processes is None else processes
        if not 1 <= self._processes <= MAX_CONCURRENCY:
            raise ConfigurationError(f"processes must be from 1 to {MAX_CONCURRENCY}.")
        self._stores_schedules = store_schedules
        self._handlers: dict[str, Handler] = {}
        self._schedules: dict[str, CronSchedule] = {}
        self._middleware = MiddlewareChain()
        self._submitters = Submitters(self._settings)
        self._loops: list[WorkerLoop] = []
        self._complained_at = -COMPLAIN_SECONDS

    def _found_access(self) -> Access:
        return find_access(os.environ, **self._access)

    def _settings(self) -> dict[str, Any]:
        """The arguments of a client of the same server."""
        access = self._found_access()
        given = {"url": access.url, "token": access.token or "", "result_hmac_key": access.hmac_key or b""}
        return {**given, "telemetry": self._telemetry}

    @overload
    def job(
        self, kind: Callable[Concatenate[AsyncJob, P], Coroutine[Any, Any, T]], /
    ) -> JobFunction[Concatenate[AsyncJob, P], P, Coroutine[Any, Any, T], T]: ...

    @overload
    def job(self, kind: Callable[Concatenate[Job, P], T], /) -> JobFunction[Concatenate[Job, P], P, T, T]: ...

    @overload
    def job(self, kind: Callable[P, Coroutine[Any, Any, T]], /) -> JobFunction[P, P, Coroutine[Any, Any, T], T]: ...

    @overload
    def job(self, kind: Callable[P, T], /) -> JobFunction[P, P, T, T]: ...

    @overload
    def job(
        self,
        kind: str | None = None,
        /,
        *,
        queue: str | None = None,
        attempts: int | None = None,
        priority: Priority | None = None,
        lease: int | None = None,
        timeout: float | None = None,
        backoff: Backoff | None = None,
        unique: Unique | None = None,
        debounce: Debounce | None = None,
        process: bool = False,
    ) -> JobDecorator: ...

    def job(self, kind: Callable[..., Any] | str | None = None, /, **options: Any) -> Any:
        """Decorator: the function runs jobs of this kind; by default the kind is the function's name.

        The options are those of jobs that are submitted with the function; `backoff` and `timeout` also hold for other
        jobs of this kind. `process` runs it in a process instead of a thread, for CPU-bound work.
        """
        if kind is None or isinstance(kind, str):
            return JobDecorator(lambda function: self._register(kind, function, JobOptions(**options)))
        return self._register(None, kind, JobOptions())

    def _register(
        self, kind: str | None, function: Callable[..., Any], options: JobOptions
    ) -> JobFunction[..., ..., Any, Any]:
        name: str = getattr(function, "__name__", "") if kind is None else kind
        if KIND.fullmatch(name) is None:
            raise ConfigurationError("The kind of a job must have 1 to 128 characters of A-Za-z0-9_.:-.")
        if name in self._handlers:
            raise ConfigurationError(f"Two functions are registered for jobs of the kind {name}: keep one.")
        if len(self._handlers) == MAX_KINDS:
            raise ConfigurationError(f"A worker can have functions for at most {MAX_KINDS} kinds.")
        options.check()
        handler = Handler(name, function, options, self._middleware)
        if options.process:
            checked_place(handler)
        self._handlers[name] = handler
        return JobFunction(handler, self._submitters, self._found_access)

    def cron(
        self,
        cron: str,
        /,
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        time_zone: str | None = None,
        catch_up: CatchUp | None = None,
        paused: bool = False,
    ) -> Callable[[G], G]:
        """Decorator of a job function: the server submits a job of it at each instant of `cron`, with these parameters.

        Write it above `@worker.job`.
        `cron` is `minute hour day month weekday`, or @hourly, @daily, @weekly or @monthly, in `time_zone` (UTC by
        default). `name` names the schedule, by default as the kind. `catch_up` says which missed instants get a job:
        `last` (default), `all` or `none`.
        """

        def register(made: G) -> G:
            if not isinstance(made, JobFunction):
                raise ConfigurationError("A schedule needs a job: write @worker.job under @worker.cron.")
            used = made.kind if name is None else name
            if used in self._schedules:
                raise ConfigurationError(f"Two schedules have the name {used}: pass another name.")
            try:
                given = made.handler.signature.encode((), params or {})
            except InvalidArgumentError as error:
                raise ConfigurationError(f"The schedule {used} does not fit its function: {error}") from None
            own = made.handler.options
            self._schedules[used] = CronSchedule(
                name=used,
                cron=cron,
                kind=made.kind,
                params=given,
                time_zone=time_zone,
                queue=own.queue,
                priority=own.priority,
                attempts=own.attempts,
                catch_up=catch_up,
                paused=paused,
            )
            return made

        return register

    def middleware(self, function: F) -> F:
        """Decorator: the function is called around every run; see `semel.client.worker.middleware`."""
        self._middleware.add(function)
        return function

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds for which it has functions."""
        return tuple(self._handlers)

    @property
    def schedules(self) -> tuple[CronSchedule, ...]:
        """The schedules of `cron`, which the worker stores at the server when it starts."""
        return tuple(self._schedules.values())

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
            raise ConfigurationError("The worker has no functions: add one with @worker.job.")
        if self._loops:
            raise ConfigurationError("The worker is running already.")
        running = self._plan.concurrency + self._processes
        settings = {**self._settings(), "patience": ENDLESS, "on_retry": self._complain}
        # Each job may have a report and steps in flight, and a heartbeat over connections of its own.
        async with (
            AsyncClient(**settings, connections=2 * running + 4) as client,
            LeaseKeeper(AsyncClient(**settings, connections=running)) as keeper,
        ):
            self._loops = self._made_loops(client, keeper)
            try:
                stores = self._schedules and self._stores_schedules
                if not stores or await self._has_stored(client):
                    log.info("Asking %s for jobs of %d kinds.", client.access.url, len(self._handlers))
                    await _run_together(self._loops, until_idle=until_idle)
                tally = sum((one.tally for one in self._loops), Counter[str]())
                return {name: tally[name] for name in COUNTS}
            finally:
                self._loops = []

    async def _has_stored(self, client: AsyncClient) -> bool:
        """Store the schedules. False if the worker was stopped before the server has answered."""
        storing = asyncio.create_task(store_schedules(client.jobs, self.schedules))
        stopped = asyncio.create_task(self._loops[0].stopped())
        try:
            await asyncio.wait({storing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not storing.done():
                return False
            storing.result()
            return True
        finally:
            storing.cancel()
            stopped.cancel()
            await asyncio.gather(storing, stopped, return_exceptions=True)

    def _made_loops(self, client: AsyncClient, keeper: LeaseKeeper) -> list[WorkerLoop]:
        """A loop for functions in threads and on the event loop, and one for those in processes."""
        apart = {kind: one for kind, one in self._handlers.items() if one.options.process}
        here = {kind: one for kind, one in self._handlers.items() if kind not in apart}
        loops = [WorkerLoop(client.jobs, self._plan, here, keeper)] if here else []
        if apart:
            plan = replace(self._plan, concurrency=self._processes)
            loops.append(WorkerLoop(client.jobs, plan, apart, keeper, ProcessPool()))
        return loops

    def stop(self) -> None:
        """Claim no more jobs, wait the grace time for running ones, give back the rest. A second call does not wait.

        Call it in the event loop of the worker.
        """
        for one in self._loops:
            one.stop()

    async def store_schedules(self) -> list[ScheduleInfo]:
        """Store the schedules of `cron` at the server, for example at deployment. Needs the role `admin`."""
        async with AsyncClient(**self._settings(), patience=Patience()) as client:
            return await store_schedules(client.jobs, self.schedules)

    def testing(self, *, now: float = 0.0) -> WorkerTest:
        """Run jobs in this process without a server: `with worker.testing() as test:`. For tests."""
        return WorkerTest(self._handlers, self._submitters, now)

    async def aclose(self) -> None:
        """Close the connections that job functions submit over."""
        await self._submitters.aclose()

    def close(self) -> None:
        """Close the connections that job functions submit over in synchronous code."""
        self._submitters.close()

    async def _run(self, until_idle: bool) -> Mapping[str, int]:
        with on_signals(self.stop):
            return await self.serve(until_idle=until_idle)

    def _complain(self, error: CallError) -> None:
        """Log that the server is unavailable or busy, at a limited rate."""
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.warning("%s Trying again.", error)


async def _run_together(loops: Sequence[WorkerLoop], *, until_idle: bool) -> None:
    """Run loops until all have ended; an error of one stops the others and is raised."""

    async def run(loop: WorkerLoop) -> None:
        try:
            await loop.run(until_idle=until_idle)
        except BaseException:
            for other in loops:
                other.stop()
            raise

    ends = await asyncio.gather(*(run(one) for one in loops), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end


def _checked(plan: WorkerPlan) -> WorkerPlan:
    if not 1 <= plan.concurrency <= MAX_CONCURRENCY:
        raise ConfigurationError(f"concurrency must be from 1 to {MAX_CONCURRENCY}.")
    if not 0 < plan.poll <= MOST_WAIT_SECONDS:
        raise ConfigurationError(f"poll must be more than 0 and at most {MOST_WAIT_SECONDS:g} seconds.")
    if plan.grace < 0:
        raise ConfigurationError("grace must not be negative.")
    return plan
