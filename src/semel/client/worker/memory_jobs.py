"""Jobs in memory, for tests of job functions: a small part of the server's rules, without a server.

It keeps idempotency keys, `unique`, `debounce`, priorities, delays, attempts, pauses, cancellations and steps. It has
no leases, no time limits and no queue limits; time is a number that the test sets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from semel.client.errors import CallError, KeyCollisionError, NotFinishedError, NotFoundError
from semel.client.jobs.integrity import canonical_bytes
from semel.client.jobs.submission import fresh_name
from semel.client.jobs.values import (
    Cancellation,
    JobInfo,
    JobMember,
    JobRequest,
    Join,
    Lease,
    Outcome,
    State,
    Status,
    Submitted,
)
from semel.client.worker.job import MemberOutcome
from semel.client.worker.reports import DeferredReport, DoneReport, Report
from semel.kernel.json.canonical import parse

PRIORITIES = {"critical": 0, "high": 2, "normal": 4, "low": 7}
ATTEMPTS = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Backoff of a server with default settings, in seconds; the server adds jitter."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, eq=False)
class MemoryJob:
    """One job."""

    number: int
    request: JobRequest
    key: str
    created: float
    ready: float
    state: State = "queued"
    attempt: int = 0
    revision: int = 0
    reason: str | None = None
    outcome: Outcome | None = None
    finished: float | None = None
    steps: dict[str, Any] = field(default_factory=dict)
    join_name: tuple[str, ...] | None = None
    """What `unique` and `debounce` compare."""
    members: list[MemoryJob] = field(default_factory=list)
    """The members of its group, or its children."""
    name: str | None = None
    """The name of a child."""
    waits: bool = False
    """Whether it waits for its members."""

    @property
    def job_id(self) -> str:
        """The id, made of the number."""
        return f"job_{self.number:032x}"

    @property
    def priority(self) -> int:
        """The priority as a number."""
        given = self.request.priority
        return PRIORITIES.get(given, 4) if isinstance(given, str) else 4 if given is None else given

    @property
    def max_attempts(self) -> int:
        """The maximum number of runs."""
        return self.request.max_attempts or ATTEMPTS

    @property
    def has_ended(self) -> bool:
        """Whether it is completed or permanently failed."""
        return self.state in ("completed", "failed")

    @property
    def status(self) -> Status:
        """The status, as a submission is told."""
        return self.state if self.state in ("completed", "failed") else "in_progress"


class MemoryJobs:
    """The calls of `client.jobs` that job functions and handles use."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._jobs: dict[str, MemoryJob] = {}
        self._by_key: dict[str, MemoryJob] = {}
        self._numbers = itertools.count(1)

    @property
    def jobs(self) -> tuple[MemoryJob, ...]:
        """All jobs, oldest first."""
        return tuple(self._jobs.values())

    async def submit_request(self, job: JobRequest, *, wait: float | None = None) -> Submitted:
        """Submit a job once; `wait` is ignored, because nothing runs meanwhile."""
        canonical = canonical_bytes({"kind": job.kind, "params": dict(job.params)})
        key = fresh_name() if job.key is None else job.key
        known = self._by_key.get(key)
        if known is not None:
            if canonical_bytes({"kind": known.request.kind, "params": dict(known.request.params)}) != canonical:
                raise KeyCollisionError(409, "IDEMPOTENCY_KEY_COLLISION", "The key has another job.", {}, 0.0)
            if known.state == "failed" and known.reason != "cancelled" and job.on_failed == "retry":
                known.state, known.ready, known.attempt, known.outcome = "queued", self.now, 0, None
                known.revision += 1
            return self._submitted(known, dedup=True)
        joined = self._joined(job, canonical)
        if joined is not None:
            self._by_key[key] = joined
            return self._submitted(joined, dedup=True)
        delay = job.debounce.delay if job.debounce is not None else job.delay or 0.0
        if job.run_at is not None:
            delay = max(0.0, (job.run_at - self._instant(self.now)).total_seconds())
        name = _join_name(job, canonical)
        made = MemoryJob(next(self._numbers), job, key, self.now, self.now + delay, join_name=name)
        made.waits = job.join is not None
        if job.group is not None:
            self._found(job.group).members.append(made)
        self._jobs[made.job_id] = self._by_key[key] = made
        return self._submitted(made, dedup=False)

    def _joined(self, job: JobRequest, canonical: bytes) -> MemoryJob | None:
        """The earlier job that stands for a submission, by `unique` or `debounce`."""
        name = _join_name(job, canonical)
        if name is None:
            return None
        same = [one for one in self._jobs.values() if one.join_name == name]
        if not same:
            return None
        found = same[-1]
        if job.unique is not None:
            waits = ("scheduled", "queued", "leased")
            states = job.unique.states or (waits if job.unique.window is None else (*waits, "completed"))
            is_recent = job.unique.window is None or self.now - found.created < job.unique.window
            return found if self._state(found) in states and is_recent else None
        assert job.debounce is not None
        if found.has_ended or found.attempt:
            return None
        found.request = replace(found.request, params=job.params)
        latest = found.created + (job.debounce.longest or math.inf)
        found.ready = min(self.now + job.debounce.delay, latest)
        return found

    async def submit_group(
        self, join: JobRequest, members: Iterable[JobRequest], *, on_failure: Literal["wait", "cancel"] = "wait"
    ) -> Submitted:
        """Submit jobs, and one that runs when all of them have ended."""
        listed, key = list(members), join.key or fresh_name()
        submitted = await self.submit_request(replace(join, key=key, join=Join(len(listed), on_failure)))
        for place, one in enumerate(listed):
            await self.submit_request(replace(one, group=submitted.job_id, key=one.key or f"{key}/{place}"))
        return submitted

    async def submit_child(self, parent: MemoryJob, name: str, job: JobRequest) -> Submitted:
        """Submit a child of a job that runs."""
        submitted = await self.submit_request(replace(job, key=f"{parent.job_id}/{name}"))
        child = self._found(submitted.job_id)
        if child not in parent.members:
            child.name = name
            parent.members.append(child)
        return submitted

    def members_of(self, job: MemoryJob) -> list[MemberOutcome]:
        """The members or children of a job, with the outcomes of those that have ended."""
        is_over = all(one.has_ended for one in job.members)
        return [
            MemberOutcome(
                JobMember(one.job_id, one.name, self._state(one), one.reason), one.outcome if is_over else None
            )
            for one in job.members
        ]

    async def submit_many(self, jobs: Iterable[JobRequest]) -> list[Submitted | CallError]:
        """Submit jobs, each once; an error is returned as an answer."""
        answers: list[Submitted | CallError] = []
        for one in jobs:
            try:
                answers.append(await self.submit_request(one))
            except CallError as error:
                answers.append(error)
        return answers

    async def get(self, job_id: str, *, wait: float = 0.0) -> JobInfo:
        """The state of a job; it does not wait."""
        job = self._found(job_id)
        request = job.request
        return JobInfo(
            job_id=job.job_id,
            request_id=job.job_id,
            kind=request.kind,
            queue=request.queue or "default",
            priority=job.priority,
            state=self._state(job),
            status=job.status,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            revision=job.revision,
            created=self._instant(job.created),
            finished=None if job.finished is None else self._instant(job.finished),
            cancel_requested=False,
            reason=job.reason,
            facts={},
            params=dict(request.params),
            progress=None,
            outcome=job.outcome,
        )

    async def result(self, job_id: str, *, wait: float = 0.0) -> Outcome:
        """The outcome of a job. Nothing runs by itself, so it does not wait."""
        job = self._found(job_id)
        if job.outcome is None:
            raise NotFinishedError(f"The job {job_id} is {self._state(job)}: call test.run() first.")
        return job.outcome

    async def cancel(self, job_id: str, *, force: bool = False) -> Cancellation:
        """Cancel a job that waits; jobs run one at a time, so none is running."""
        job = self._found(job_id)
        if not job.has_ended:
            self._end(job, Outcome(job_id, False, error={"code": "cancelled", "message": "cancelled"}), "cancelled")
        return Cancellation(job.state, False, {"reason": job.reason})

    def take(self) -> MemoryJob | None:
        """The next job that is ready: by priority, then by the time when it became ready."""
        ready = [one for one in self._jobs.values() if not one.has_ended and one.ready <= self.now and not one.waits]
        if not ready:
            return None
        job = min(ready, key=lambda one: (one.priority, one.ready, one.number))
        job.attempt += 1
        return job

    def next_ready(self) -> float | None:
        """When the next waiting job is ready; None if none waits."""
        return min((one.ready for one in self._jobs.values() if not one.has_ended and not one.waits), default=None)

    def lease_of(self, job: MemoryJob) -> Lease:
        """The lease of a run."""
        now, request = self._instant(self.now), job.request
        return Lease(
            job.job_id,
            job.job_id,
            request.kind,
            stored(dict(request.params)),
            request.queue or "default",
            job.priority,
            job.attempt,
            job.max_attempts,
            job.attempt,
            "",
            (request.lease or 300) * 1_000,
            now,
            self._instant(job.created),
        )

    def report(self, job: MemoryJob, report: Report, pause: float | None) -> float | None:
        """Take the report of a run. Returns when the job runs again, or None if it has ended."""
        if isinstance(report, DoneReport):
            self._end(job, Outcome(job.job_id, True, report.result), None)
            return None
        if isinstance(report, DeferredReport):
            job.attempt -= 1
            job.ready = self.now + report.delay
            job.waits = report.wait_children and not all(one.has_ended for one in job.members)
            return None if job.waits else job.ready
        if report.retryable and job.attempt < job.max_attempts:
            usual = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (job.attempt - 1))
            job.ready = self.now + (usual if pause is None else pause)
            return job.ready
        reason = "exhausted" if report.retryable else "permanent"
        self._end(job, Outcome(job.job_id, False, error=dict(report.error)), reason)
        return None

    def _end(self, job: MemoryJob, outcome: Outcome, reason: str | None) -> None:
        job.state = "completed" if outcome.ok else "failed"
        job.outcome, job.reason, job.finished = outcome, reason, self.now
        for other in self._jobs.values():
            if other.waits and job in other.members:
                self._tell(other, job)

    def _tell(self, waiting: MemoryJob, member: MemoryJob) -> None:
        """A job that another one waits for has ended."""
        join = waiting.request.join
        if member.state == "failed" and join is not None and join.on_failure == "cancel":
            for one in waiting.members:
                if not one.has_ended:
                    error = {"code": "cancelled", "message": "another member failed"}
                    self._end(one, Outcome(one.job_id, False, error=error), "cancelled")
        is_whole = join is None or len(waiting.members) == (join.size or 0) or member.state == "failed"
        if is_whole and all(one.has_ended for one in waiting.members):
            waiting.waits, waiting.ready = False, self.now

    def _found(self, job_id: str) -> MemoryJob:
        if job_id not in self._jobs:
            raise NotFoundError(404, "not_found", "There is no such job in this test.", {}, 0.0)
        return self._jobs[job_id]

    def _state(self, job: MemoryJob) -> State:
        return "scheduled" if job.state == "queued" and (job.ready > self.now or job.waits) else job.state

    def _submitted(self, job: MemoryJob, *, dedup: bool) -> Submitted:
        status: Status = job.status if dedup else "accepted"
        created = self._instant(job.created)
        return Submitted(
            job.job_id,
            job.job_id,
            job.key,
            dedup,
            status,
            self._state(job),
            job.attempt,
            job.revision,
            created,
            None,
            job.outcome,
            {},
        )

    def _instant(self, seconds: float) -> datetime:
        return _EPOCH + timedelta(seconds=seconds)


def _join_name(job: JobRequest, canonical: bytes) -> tuple[str, ...] | None:
    if job.unique is not None:
        return ("unique", canonical.decode() if job.unique.key is None else f"key {job.unique.key}")
    return None if job.debounce is None else ("debounce", job.kind, job.debounce.key)


def stored(value: Any) -> Any:
    """A value as it is after it was stored as JSON."""
    return parse(canonical_bytes(value))
