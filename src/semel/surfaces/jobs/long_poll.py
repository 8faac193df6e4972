"""Long polls of workers: served in the order of their arrival, one claim for each job that becomes ready.

The waiting polls are checked when a job becomes ready, when the next delayed job is due, when a rate limit allows the
next start, and once a second, because a signal between nodes may be lost. One query of the waiting jobs shows which
polls could get a job; only these polls are tried, and a new poll with a named claim is tried once in any case. Their
claims go through the engine in order, like all claims. The number of polls tried at once doubles while each finds a
job, so that one job does not wake 50 workers. A poll whose connection has closed is skipped. If the connection closes
while the lease is committed, the job returns to its queue and the attempt is not counted.

The task that serves long polls does not use `engine/follow.py`: after each read it writes for many callers, each with
its own deadline, and reads again between these writes.

A worker whose lease or offer has expired is treated as frozen or disconnected: its other long polls, on any node, end
empty. Nodes notify each other by a signal; if the signal is lost, one offer is made in vain and lapses.
"""

from __future__ import annotations

import asyncio
import logging

from semel.engine.caller import WaitingCaller
from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.engine.notification import TopicWatch
from semel.kernel.clock import World
from semel.server.http.answer import ClientGoneError
from semel.server.ops.log_facts import callers_facts
from semel.surfaces.jobs.audit_trail import JobAuditTrail
from semel.surfaces.jobs.commands import ClaimJobs, DeferJob, JobsClaimed
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.limits import Reach, reaches
from semel.surfaces.jobs.plain_calls import submit
from semel.surfaces.jobs.reading import WaitingJobs, waiting_lines
from semel.surfaces.jobs.rules.completion import TOPIC_READY, topic_of_worker

_log = logging.getLogger("semel.jobs")

MAX_LONG_POLLS = 10_000
MOST_AT_ONCE = 64
POLL_SECONDS = 1.0
LEAST_REST_SECONDS = 0.005

Filters = tuple[tuple[bytes, ...], tuple[bytes, ...], Reach | None]


class LongPoll:
    """A claim that waits for a job."""

    __slots__ = ("caller", "claim", "deadline", "future", "is_new", "silence")

    def __init__(
        self,
        claim: ClaimJobs,
        caller: WaitingCaller,
        deadline: float,
        future: asyncio.Future[JobsClaimed],
        silence: TopicWatch,
    ) -> None:
        self.claim = claim
        self.caller = caller
        self.deadline = deadline
        self.future = future
        self.silence = silence
        """Fires when a lease or offer of the worker has expired."""
        self.is_new = bool(claim.claim)
        """Whether the claim may repeat an answered claim, whose jobs are no longer in the index of waiting jobs."""

    @property
    def filters(self) -> Filters:
        """What selects jobs; long polls with equal filters find the same jobs."""
        return self.claim.kinds, self.claim.queues, self.claim.reach

    def give(self, answer: JobsClaimed) -> None:
        """Answer the long poll."""
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """End the long poll with an error."""
        if not self.future.done():
            self.future.set_exception(error)


class LongPolls:
    """The long polls of this node, served by a task while there are any."""

    def __init__(self, engine: Engine, jobs: JobContract, world: World, audit_trail: JobAuditTrail) -> None:
        self._engine = engine
        self._jobs = jobs
        self._world = world
        self._audit_trail = audit_trail
        self._waiting: dict[LongPoll, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._watch: TopicWatch | None = None
        self._is_stopped = False
        self.reap_until = 0
        """Claims may reap expired leases until this steady time; `JobMaintenance` advances it."""

    def __len__(self) -> int:
        return len(self._waiting)

    async def claim(self, claim: ClaimJobs, caller: WaitingCaller, wait_ms: int) -> tuple[JobsClaimed, bool]:
        """Claim now, or wait for a job that no earlier long poll gets; also returns whether the claim waited."""
        if not wait_ms or self._is_stopped or len(self._waiting) >= MAX_LONG_POLLS:
            return await self._claim(claim, caller), False
        loop = asyncio.get_running_loop()
        silence = self._engine.signals.watch(topic_of_worker(claim.principal, claim.worker))
        poll = LongPoll(claim, caller, loop.time() + wait_ms / 1_000, loop.create_future(), silence)
        self._waiting[poll] = None
        self._wake()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        try:
            return await poll.future, True
        finally:
            self._waiting.pop(poll, None)
            silence.close()

    def stop(self) -> None:
        """Answer every long poll with no job, because the server stops."""
        self._is_stopped = True
        self._wake()

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.wake()

    async def _claim(self, claim: ClaimJobs, caller: WaitingCaller) -> JobsClaimed:
        fresh = claim._replace(reap_until=self.reap_until, asked_at=self._world.wall_ms())
        answer: JobsClaimed = await submit(self._engine, self._jobs, fresh, 0, fresh.most, caller)
        await self.settle(claim, caller, answer)
        return answer

    async def settle(self, claim: ClaimJobs, caller: WaitingCaller, answer: JobsClaimed) -> None:
        """Record the notes of a decided claim, and give its jobs back if its client has disconnected."""
        if answer.notes:
            await self._audit_trail.keep(answer.notes)
        if caller.gone and answer.leases and not claim.claim:
            await self._give_back(answer)

    async def _give_back(self, answer: JobsClaimed) -> None:
        """Return jobs to their queue whose claim has no name and whose client disconnected before the answer."""
        for job, token in answer.leases:
            await self._engine.submit(Write(self._jobs, DeferJob(job.id, token, 0, b"")))

    async def _serve(self) -> None:
        watch = self._watch = self._engine.signals.watch(TOPIC_READY)
        try:
            while self._waiting:
                rest = POLL_SECONDS
                try:
                    rest = await self._serve_all(watch)
                except EngineError as error:
                    _log.warning("no waiting claim could be served", extra={"reason": str(error)})
                self._end_overdue()
                if self._waiting:
                    await watch.wait(self._rest_seconds(rest))
        except BaseException as error:
            for poll in list(self._waiting):
                poll.fail(error)
            self._waiting.clear()
            raise
        finally:
            self._watch = None
            watch.close()

    async def _serve_all(self, watch: TopicWatch) -> float:
        """Serve the long polls in order until none can get a job; returns the seconds until the next one may be due.

        That is when a delayed job is ready, or when a queue has a token of its rate limit again.
        """
        waiting, barren = await self._look(watch)
        rest_ms = POLL_SECONDS * 1_000
        at_once = 1
        while not self._is_stopped:
            self._end_overdue()
            if watch.has_fired:
                waiting, barren = await self._look(watch)
            chosen = self._choose(barren, at_once)
            if not chosen:
                break
            answers = await asyncio.gather(
                *(self._claim(poll.claim, poll.caller) for poll in chosen), return_exceptions=True
            )
            at_once = min(2 * at_once, MOST_AT_ONCE)
            for poll, answer in zip(chosen, answers, strict=True):
                if not self._settle(poll, answer):
                    barren.add(poll.filters)
                    at_once = 1
                    if isinstance(answer, JobsClaimed) and answer.token_wait_ms:
                        rest_ms = min(rest_ms, answer.token_wait_ms)
        waits = (at - waiting.now_ms for _, _, at in waiting.lines or () if at > waiting.now_ms)
        return min((rest_ms, *waits)) / 1_000

    async def _look(self, watch: TopicWatch) -> tuple[WaitingJobs, set[Filters]]:
        """Read the waiting jobs and the filters that match no ready job; `watch` fires when more jobs are ready."""
        watch.arm()
        waiting = await self._engine.read(waiting_lines)
        if waiting.lines is None:
            return waiting, set()
        ready = {(kind, queue) for kind, queue, ready_at in waiting.lines if ready_at <= waiting.now_ms}
        filters = {poll.filters for poll in self._waiting}
        return waiting, {one for one in filters if not any(_fits(one, kind, queue) for kind, queue in ready)}

    def _settle(self, poll: LongPoll, answer: JobsClaimed | BaseException) -> bool:
        """Answer a long poll if its claim is final; returns whether it is."""
        poll.is_new = False
        if isinstance(answer, BaseException):
            if not isinstance(answer, EngineError):
                _log.error("fault in a claim", exc_info=answer, extra=callers_facts([poll.caller]))
            self._drop(poll, answer)
            return True
        if answer.leases or answer.is_saturated or answer.is_silenced:
            self._waiting.pop(poll, None)
            poll.give(answer)
            return True
        return False

    def _choose(self, barren: set[Filters], most: int) -> list[LongPoll]:
        chosen: list[LongPoll] = []
        gone: list[LongPoll] = []
        for poll in self._waiting:
            if poll.caller.gone:
                gone.append(poll)
            elif poll.is_new or poll.filters not in barren:
                chosen.append(poll)
                if len(chosen) == most:
                    break
        for poll in gone:
            self._drop(poll, ClientGoneError("the worker has gone"))
        return chosen

    def _drop(self, poll: LongPoll, error: BaseException) -> None:
        self._waiting.pop(poll, None)
        poll.fail(error)

    def _end_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        is_over = [one for one in self._waiting if self._is_stopped or one.deadline <= now or one.silence.has_fired]
        for poll in is_over:
            del self._waiting[poll]
            poll.give(JobsClaimed((), self._world.wall_ms()))

    def _rest_seconds(self, rest: float) -> float:
        now = asyncio.get_running_loop().time()
        first = min(poll.deadline for poll in self._waiting) - now
        return max(LEAST_REST_SECONDS, min(POLL_SECONDS, rest, first))


def _fits(filters: Filters, kind: bytes, queue: bytes) -> bool:
    kinds, queues, reach = filters
    return (not kinds or kind in kinds) and (not queues or queue in queues) and (reach is None or reaches(reach, queue))
