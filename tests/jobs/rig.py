"""The rules of jobs on a store in memory, one batch at a time in this thread, with clocks that are moved by hand.

For tests of decisions: what a batch answers, what it asked the store for, and what rows it left behind.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, TypeVar

from semel.engine.generations import GENERATION
from semel.engine.group_commit import Commit
from semel.engine.reading import Reading
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable, Range, Store
from semel.surfaces.jobs.commands import (
    ClaimJobs,
    GroupPlace,
    JobCommand,
    JobDraft,
    JobLease,
    JobReport,
    JobsClaimed,
    SingleRule,
    SubmitJobs,
)
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.tables import ALONE, GENERATED, JOB, JOB_RECORD, JOB_TENANT, JOB_TOTALS, NO_TOTALS, TABLES
from tests.engine.rig import Desk
from tests.engine.toy import ToyWorld

T = TypeVar("T")

START = 1_760_000_000_000
FOR_EVER = 2**62
HOUR_MS = 3_600_000
OPEN = JobPolicy(queued=JobBounds(0), max_inflight=0)
"""No limit is near."""
ROWS = 100_000

_numbers = itertools.count(1)


def draft(
    queue: str = "q",
    *,
    key: str = "",
    principal: str = "ann",
    payload: str = "p",
    kind: str = "k",
    params: bytes = b"{}",
    priority: int = 4,
    delay_ms: int = 0,
    max_attempts: int = 5,
    lease_ms: int = 1_000,
    single: SingleRule | None = None,
    place: GroupPlace | None = None,
    is_generated: bool = False,
) -> JobDraft:
    """A job as it would be asked for."""
    return JobDraft(
        principal=principal.encode(),
        key=key.encode(),
        key_prefix=key[:4],
        payload_hash=sha256(payload.encode()).digest(),
        kind=kind.encode(),
        params=params,
        queue=queue.encode(),
        priority=priority,
        client=b"",
        start=b"",
        delay_ms=delay_ms,
        run_at=None,
        max_attempts=max_attempts,
        lease_ms=lease_ms,
        retries_failed=False,
        given=frozenset(),
        chance=next(_numbers).to_bytes(8, "big"),
        single=single,
        place=place,
        is_generated=is_generated,
    )


def claim(
    *queues: str,
    most: int = 1,
    worker: str = "w",
    name: str = "",
    kinds: Iterable[str] = (),
    asked_at: int = START,
    waits: bool = False,
) -> ClaimJobs:
    """A claim that reaps first."""
    return ClaimJobs(
        principal=b"workers",
        worker=worker.encode(),
        most=most,
        kinds=tuple(kind.encode() for kind in kinds),
        queues=tuple(queue.encode() for queue in queues),
        reach=None,
        lease_ms=None,
        claim=name.encode(),
        reap_until=FOR_EVER,
        asked_at=asked_at,
        secret=b"a secret of the store",
        waits=waits,
    )


def done(lease: JobLease) -> JobReport:
    """The run of a lease went well."""
    return JobReport(lease.job.id, lease.token, True, b"1", sha256(b"1").digest())


def failed(lease: JobLease) -> JobReport:
    """It failed, for good."""
    return JobReport(
        lease.job.id, lease.token, False, b"{}", sha256(b"{}").digest(), "boom", "it broke", retryable=False
    )


class Rig:
    """Jobs under one policy; another one on the same store is the next life of the server."""

    def __init__(self, policy: JobPolicy = OPEN, world: ToyWorld | None = None, store: Store | None = None) -> None:
        self.world = world or ToyWorld(START)
        self.jobs = JobContract(policy)
        self.stored = store or MemoryStore((GENERATION, *TABLES), self.world.wall_ms)
        self._desk = Desk(self.stored, self.world)
        self.commit = Commit.NOTHING
        """How the last batch ended."""
        self.reruns = 0
        """How often a decision of the last batch had to be made again, because it needed more rows."""

    def together(self, *commands: JobCommand) -> list[Any]:
        """What these are told, in one batch and in this order; none of them may end in a fault."""
        self._desk.store.loads.clear()
        result = self._desk.run(*commands, contract=self.jobs)
        assert not result.failed, self._desk.observer.faults
        self.reruns = result.reruns
        self.commit = result.commit
        return [outcome.answer for _, outcome in result.decided]

    def do(self, command: JobCommand) -> Any:
        """What one is told, in a batch of its own."""
        [answer] = self.together(command)
        return answer

    def submit(self, drafts: Iterable[JobDraft]) -> list[Any]:
        """Submit them, a hundred at a time, as requests do."""
        waiting, answers = list(drafts), []
        while waiting:
            answers += self.do(SubmitJobs(tuple(waiting[:100])))
            del waiting[:100]
        return answers

    def claim(self, *queues: str, **fields: Any) -> tuple[JobLease, ...]:
        """The leases that a claim is given now."""
        claimed: JobsClaimed = self.do(claim(*queues, asked_at=self.world.wall, **fields))
        return claimed.leases

    @property
    def looked_at(self) -> list[Range]:
        """The ranges that the last batch asked the store for."""
        return [wanted for _, ranges in self._desk.store.loads for wanted in ranges]

    def read(self, look: Callable[[Reading], T]) -> T:
        """What a reader sees."""
        around = self._desk.around
        with self.stored.read() as snapshot:
            return look(Reading(snapshot, around.soft, around.timekeeper.now(snapshot.now_ms)))

    def rows(self, table: AnyTable) -> list[Any]:
        """Every row of a table."""
        with self.stored.read() as snapshot:
            return list(snapshot.page(table, 0, None, ROWS, 2**40))

    def sweep(self) -> None:
        """Delete what has expired, a portion at a time, until nothing has."""
        for _ in range(100):
            commands = self.read(self.jobs.chores)
            if not commands:
                return
            self.together(*commands)
        raise AssertionError("the sweep does not end")

    def check_counts(self) -> None:
        """What is counted is what there is."""
        with self.stored.read() as snapshot:
            totals = snapshot.get(JOB_TOTALS, ALONE) or NO_TOTALS
        phases = Counter(job.phase for job in self.rows(JOB))
        records = [row for row in self.rows(JOB_RECORD) if row.alias != GENERATED]
        assert (totals.waiting, totals.leased, totals.records) == (phases[0], phases[1], len(records)), totals
        counted = {row.principal: row.records for row in self.rows(JOB_TENANT) if row.records}
        assert counted == Counter(row.principal for row in records)
        generated = Counter(row.principal for row in self.rows(JOB_RECORD) if row.alias == GENERATED)
        told = {row.principal: row.generated for row in self.rows(JOB_TENANT) if row.generated}
        assert told == generated + Counter({b"": generated.total()})
