"""The library's own worker, made to be killed: its loop claims, runs functions, renews leases and reports.

Its calls go into a journal as those of any worker do, and so does every start of a function: under one lease a function
runs once, however often the report of its end is repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from semel.client import AsyncJob, Defer, Job, Permanent, RetryLater, Worker
from semel.client.client import AsyncClient
from semel.client.errors import RefusedError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.submission import milliseconds
from semel.client.jobs.values import Beat, Claimed, Lease, Reported, Step
from semel.client.retry import ClientCaller
from semel.client.worker.job import AnyJob
from semel.client.worker.lease_keeper import LeaseKeeper
from semel.client.worker.loop import WorkerLoop
from tests.harness.caller import HOST, Body
from tests.harness.moving_network import MovingAsyncioNetwork
from tests.jobs.crash.journal import JOB_NAMES, LONG, LONG_SECONDS, Journal
from tests.jobs.crash.library_calls import body_of, told_step

T = TypeVar("T")
POLL_SECONDS = 0.5
CONCURRENCY = 4
SLOW_LEASES = 1.5
"""A slow function runs up to this many leases: heartbeats keep its own."""


class JournaledJobs(AsyncJobs):
    """Notes each call before it is sent, and its answer."""

    def __init__(self, caller: ClientCaller, name: str, journal: Journal, life: int) -> None:
        super().__init__(caller)
        self._name = name
        self._journal = journal
        self._life = life
        self.dying: set[str] = set()
        """Tokens of leases whose report is the last thing that this process sends."""
        self.die: Callable[[], None] = lambda: None

    async def claim(
        self,
        worker_id: str,
        *,
        most: int = 1,
        kinds: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        wait: float = 0.0,
        lease: int | None = None,
        claim_id: str | None = None,
    ) -> Claimed:
        """A claim; its name in the journal says in which life it was made."""
        named = f"{self._life}.{claim_id}"
        self._journal.note("claims", slot=self._name, claim=named, most=most)
        claimed = await super().claim(
            worker_id, most=most, kinds=kinds, queues=queues, wait=wait, lease=lease, claim_id=claim_id
        )
        body = {"jobs": [body_of(one) for one in claimed.leases]}
        self._journal.note("claimed", slot=self._name, claim=named, status=200, body=body)
        return claimed

    async def heartbeat(self, lease: Lease, *, progress: Any = None) -> Beat:
        """Renew a lease."""
        call = super().heartbeat(lease, progress=progress)
        return await self._noted(lease, "heartbeat", {}, call, lambda beat: {"cancel_requested": beat.cancel_requested})

    async def complete(self, lease: Lease, result: Any = None) -> Reported:
        """Report a result."""
        if lease.token in self.dying:
            self.die()
        return await self._reported(lease, "complete", {"result": result}, super().complete(lease, result))

    async def fail(
        self, lease: Lease, error: Mapping[str, Any], *, retryable: bool = True, retry_after: float | None = None
    ) -> Reported:
        """Report an error."""
        sent = {"error": dict(error), "retryable": retryable}
        call = super().fail(lease, error, retryable=retryable, retry_after=retry_after)
        return await self._reported(lease, "fail", sent, call)

    async def defer(
        self, lease: Lease, delay: float = 0.0, *, reason: str | None = None, wait_children: bool = False
    ) -> Reported:
        """Give a job back."""
        call = super().defer(lease, delay, reason=reason, wait_children=wait_children)
        return await self._reported(lease, "defer", {"delay_ms": milliseconds(delay)}, call)

    async def step(self, lease: Lease, step_key: str) -> Step:
        """Read a step."""
        return await self._noted(lease, "steps", {"step_key": step_key}, super().step(lease, step_key), told_step)

    async def store_step(self, lease: Lease, step_key: str, result: Any) -> Step:
        """Store a step."""
        call = super().store_step(lease, step_key, result)
        return await self._noted(lease, "steps", {"step_key": step_key, "result": result}, call, told_step)

    async def _reported(self, lease: Lease, call: str, sent: Body, answer: Awaitable[Reported]) -> Reported:
        return await self._noted(lease, call, sent, answer, lambda reported: dict(reported.facts))

    async def _noted(self, lease: Lease, call: str, sent: Body, answer: Awaitable[T], said: Callable[[T], Body]) -> T:
        job = body_of(lease)
        self._journal.note_call("sends", self._name, job, call, sent)
        try:
            found = await answer
        except RefusedError as error:
            facts = dict(error.facts)
            self._journal.note_call("told", self._name, job, call, sent, status=error.status, body=facts)
            raise
        self._journal.note_call("told", self._name, job, call, sent, status=200, body=said(found))
        return found


class CrashWorker(Worker):
    """`Worker` with a journal, over connections to any of the servers."""

    def __init__(self, name: str, ports: Sequence[int], journal: Journal, life: int, *, drains: bool) -> None:
        super().__init__(
            f"http://{HOST}:{ports[0]}", worker_id=name, concurrency=CONCURRENCY, poll=POLL_SECONDS, lease=None
        )
        self._name = name
        self._journal = journal
        self._life = life
        self._drains = drains
        self._chance = random.Random(f"{name} {life} loop")
        self._network = MovingAsyncioNetwork(ports, self._chance)
        self._jobs: JournaledJobs | None = None
        self.job("a")(self._run_in_thread)
        self.job("b")(self._run_on_loop)
        self.job(LONG)(self._run_long)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"network": self._network}

    def _made_loops(self, client: AsyncClient, keeper: LeaseKeeper) -> list[WorkerLoop]:
        self._jobs = self._journal_calls(client)
        self._jobs.die = self._hear_no_more
        self._journal_calls(keeper._client)  # heartbeats are sent in the thread of the keeper
        return super()._made_loops(client, keeper)

    def _journal_calls(self, client: AsyncClient) -> JournaledJobs:
        jobs = client.__dict__["jobs"] = JournaledJobs(client.caller, self._name, self._journal, self._life)
        return jobs

    def _hear_no_more(self) -> None:
        self._network.route.is_dying = True

    def _run_in_thread(self, job: Job) -> Any:
        way = self._begun(job)
        if way == "slow":
            time.sleep(self._slow_seconds(job))
        if way == "step":
            return job.once("one", lambda: self._result("step"))
        return self._ended(job, way)

    async def _run_on_loop(self, job: AsyncJob) -> Any:
        way = self._begun(job)
        if way == "slow":
            await asyncio.sleep(self._slow_seconds(job))
        if way == "step":
            return await job.once("one", lambda: self._result("step"))
        return self._ended(job, way)

    def _run_long(self, job: Job) -> Any:
        self._begun(job)
        time.sleep(self._chance.uniform(*LONG_SECONDS))
        return self._result("long")

    def _begun(self, job: AnyJob) -> str:
        """Note that a function starts, and draw what it will do."""
        known = body_of(job.lease)
        self._journal.note("runs", slot=self._name, job={name: known[name] for name in JOB_NAMES})
        ways = ["done"] * 20 + ["slow", "slow", "fail", "later", "give up", "defer", "defer", "step", "step", "die"]
        return "done" if self._drains else self._chance.choice(ways)

    def _ended(self, job: AnyJob, way: str) -> Any:
        if way == "fail":
            raise RuntimeError(self._name)
        if way == "later":
            raise RetryLater(0.02, self._name)
        if way == "give up":
            raise Permanent(self._name, code="never")
        if way == "defer":
            raise Defer(self._chance.choice((0.0, 0.05)))
        if way == "die" and self._jobs is not None:
            self._jobs.dying.add(job.lease.token)
        return self._result(way)

    def _slow_seconds(self, job: AnyJob) -> float:
        return self._chance.uniform(0, SLOW_LEASES * job.lease.lease_ms / 1_000)

    def _result(self, why: str) -> Body:
        return {"by": self._name, "why": why, "draw": self._chance.getrandbits(60)}


def run_loop(name: str, ports: Sequence[int], journal: Journal, life: int, *, drains: bool) -> None:
    """Work until somebody ends the process. What the worker says of errors of its own is a fault of the run."""
    logging.getLogger("semel.worker").setLevel(logging.ERROR)
    CrashWorker(f"{name}-loop", ports, journal, life, drains=drains).run()
