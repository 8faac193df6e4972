"""The calls of a running job in a test: steps, children and members, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from semel.client.errors import StepError
from semel.client.jobs.values import JobRequest, Step, Submitted
from semel.client.transport.network import finished
from semel.client.worker.job import MemberOutcome
from semel.client.worker.memory_jobs import MemoryJob, MemoryJobs, stored


class MemorySteps:
    """The steps of one job."""

    def __init__(self, jobs: MemoryJobs, job: MemoryJob) -> None:
        self._jobs = jobs
        self._job = job
        self._kept = job.steps
        self._under_way: set[str] = set()

    @contextmanager
    def begun(self, step_key: str) -> Iterator[None]:
        """Prevents that a step starts twice at the same time."""
        if step_key in self._under_way:
            raise StepError("A step with this name is already running in this run.")
        self._under_way.add(step_key)
        try:
            yield
        finally:
            self._under_way.discard(step_key)

    def known(self, step_key: str) -> Step:
        """The stored result of a step."""
        return Step(step_key in self._kept, self._kept.get(step_key), False)

    def kept(self, step_key: str, result: Any) -> Step:
        """Store a result unless there is one."""
        dedup = step_key in self._kept
        self._kept.setdefault(step_key, stored(result))
        return Step(True, self._kept[step_key], dedup)

    def child(self, name: str, request: JobRequest) -> Submitted:
        """Submit a child of the job."""
        return finished(self.submit_child(name, request))

    def members(self) -> list[MemberOutcome]:
        """The members or children that the job waits for."""
        return self._jobs.members_of(self._job)

    async def submit_child(self, name: str, request: JobRequest) -> Submitted:
        """As `child`."""
        return await self._jobs.submit_child(self._job, name, request)

    async def member_outcomes(self) -> list[MemberOutcome]:
        """As `members`."""
        return self.members()

    async def ask(self, step_key: str) -> Step:
        """As `known`."""
        return self.known(step_key)

    async def store(self, step_key: str, result: Any) -> Step:
        """As `kept`."""
        return self.kept(step_key, result)
