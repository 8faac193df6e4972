"""Background tasks of jobs: renew leases after an outage, reap expired leases, fire schedules, cancel members.

After a start, this node extends every lease to its full period before it reaps any. After an outage of the store of
more than TRUST_MS, every lease is extended by the time of the outage, so that missed heartbeats do not end leases of
healthy workers. If a shared store was unreachable, the last heartbeats may be lost, because they are soft changes: then
leases restart, as after a start. A store that can be read but accepts no writes, for example because its disk is full,
counts as unavailable. A delayed reap has no effect. This module decides nothing: it reads and sends commands, and the
rules decide.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from semel.engine.contract import EngineError, FaultError, UnavailableError, Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.clock import World
from semel.store.protocol import Range
from semel.surfaces.jobs.audit_trail import JobAuditTrail
from semel.surfaces.jobs.commands import FireSchedule, JobsAffected, ScheduleFired
from semel.surfaces.jobs.contract import JOBS_LOCK, JobContract
from semel.surfaces.jobs.ids import CHANCE_BYTES
from semel.surfaces.jobs.long_poll import LongPolls
from semel.surfaces.jobs.maintenance_commands import (
    CancelMembers,
    MembersCancelled,
    PromoteJobs,
    ReapLeases,
    RenewLeases,
)
from semel.surfaces.jobs.reading import due_schedules, leased_ids, unsettled_groups
from semel.surfaces.jobs.rules.reaper import has_ended, leases_until
from semel.surfaces.jobs.rules.schedules import to_promote
from semel.surfaces.jobs.tables import JOB, WAITING

_log = logging.getLogger("semel.jobs")

REAP_SECONDS = 0.25
LEAD_SECONDS = 1.0
"""Seconds between two checks for leadership and due schedules."""
TRUST_MS = 1_000
"""A store that has not worked for longer than this had an outage."""
RUNNING_MS = 500
"""While a batch of writes takes longer than this, the store does not count as working."""
REAPED_AT_ONCE = 100
RENEWED_AT_ONCE = 500
TICKS_AT_ONCE = 100
PROMOTED_AT_ONCE = 500


class JobMaintenance:
    """The maintenance task of one node; the reaper and the schedules run on the leader."""

    def __init__(
        self, engine: Engine, jobs: JobContract, world: World, audit_trail: JobAuditTrail, long_polls: LongPolls
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._world = world
        self._audit_trail = audit_trail
        self._long_polls = long_polls
        self._seen_at: int | None = None
        """The steady time at which the store last worked; None after a start."""
        self._lost = 0
        """The number of lost writes at that time."""
        self._was_away = False
        """Whether a read or write has failed since that time."""
        self._led_at = world.monotonic_ms() - 2**31
        self._leads = False

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.turn()
            except EngineError as error:
                self._was_away = True
                _log.warning("upkeep of jobs waits for the store", extra={"reason": str(error)})
            except Exception:  # noqa: BLE001 - maintenance must go on; the next round tries again
                _log.exception("upkeep of jobs failed")
            await asyncio.sleep(REAP_SECONDS)

    async def turn(self) -> None:
        """Run one round of what is due."""
        writing = self._engine.writing((JOBS_LOCK,))
        now_ms = await self._engine.read(_steady_ms)
        if writing.running_ms > RUNNING_MS:
            return
        if self._seen_at is None or now_ms - self._seen_at > TRUST_MS:
            forgets = self._was_away and self._engine.is_shared
            now_ms = await self._renew(None if forgets else self._seen_at, now_ms)
        elif writing.lost != self._lost:
            await self._probe(now_ms)
        self._seen_at, self._lost, self._was_away = now_ms, writing.lost, False
        self._long_polls.reap_until = now_ms + TRUST_MS
        since_ms = self._world.monotonic_ms() - self._led_at
        if since_ms >= LEAD_SECONDS * 1_000:
            self._led_at = self._world.monotonic_ms()
            self._leads = await self._engine.leads()
            if self._leads:
                await self._tick()
        if self._leads:
            await self._reap()
            await self._promote()
            await self._cancel_members()

    async def _renew(self, since: int | None, now_ms: int) -> int:
        """Extend every lease; returns the steady time at the end.

        Fails if the store has another outage meanwhile, because leases that were already extended have lost time again.
        """
        seen: set[bytes] = set()
        behind: tuple[int, bytes] | None = None
        while True:
            page = await self._engine.read(partial(leased_ids, behind=behind, limit=RENEWED_AT_ONCE))
            ids = tuple(job_id for _, job_id in page if job_id not in seen)
            if ids:
                await self._engine.submit(Write(self._jobs, RenewLeases(ids, since), 0, len(ids)))
                seen.update(ids)
            before_ms, now_ms = now_ms, await self._engine.read(_steady_ms)
            if now_ms - before_ms > TRUST_MS:
                raise UnavailableError("The store went away while leases were renewed.")
            if len(page) < RENEWED_AT_ONCE:
                return now_ms
            behind = page[-1]

    async def _probe(self, now_ms: int) -> None:
        """Check whether the store accepts a write that changes nothing; fails if it does not.

        Earlier writes were lost, but perhaps only because of their content.
        """
        page = await self._engine.read(partial(leased_ids, behind=None, limit=1))
        if page:
            await self._engine.submit(Write(self._jobs, RenewLeases((page[0][1],), now_ms)))

    async def _reap(self) -> None:
        while await self._engine.read(self._is_due):
            command = ReapLeases(REAPED_AT_ONCE, self._long_polls.reap_until)
            done: JobsAffected = await self._engine.submit(Write(self._jobs, command, 0, REAPED_AT_ONCE))
            await self._audit_trail.keep(done.notes)
            if done.number == 0:
                return

    async def _promote(self) -> None:
        """Count jobs that have become ready as queued, in portions."""
        for _ in range(TICKS_AT_ONCE):
            until = await self._engine.read(_to_promote)
            if until is None:
                return
            await self._engine.submit(Write(self._jobs, PromoteJobs(PROMOTED_AT_ONCE, until), 0, PROMOTED_AT_ONCE))

    async def _cancel_members(self) -> None:
        """Cancel the members of groups that are marked for it, in portions."""
        for group in await self._engine.read(partial(unsettled_groups, limit=TICKS_AT_ONCE)):
            behind: bytes | None = b""
            while behind is not None:
                command = CancelMembers(group, behind, REAPED_AT_ONCE)
                done: MembersCancelled = await self._engine.submit(Write(self._jobs, command, 0, REAPED_AT_ONCE))
                await self._audit_trail.keep(done.notes)
                behind = done.last

    def _is_due(self, reading: Reading) -> bool:
        """Whether a lease has expired or a job has waited too long."""
        now = reading.now
        leases = reading.range(leases_until(now.steady_ms, REAPED_AT_ONCE))
        if any(has_ended(job, self._jobs.policy, now) for job in leases):
            return True
        return bool(reading.keys(Range(JOB, "due", (WAITING,), 1, stop=(now.expiry_ms + 1,))))

    async def _tick(self) -> None:
        for name in await self._engine.read(partial(due_schedules, limit=TICKS_AT_ONCE)):
            try:
                await self._fire(name)
            except FaultError as error:
                _log.error("a schedule failed", extra={"schedule": name.decode(), "error_id": error.error_id})

    async def _fire(self, name: bytes) -> None:
        for _ in range(TICKS_AT_ONCE):
            command = FireSchedule(name, self._world.random_bytes(CHANCE_BYTES))
            ticked: ScheduleFired = await self._engine.submit(Write(self._jobs, command))
            await self._audit_trail.keep(ticked.notes)
            self._audit_trail.count("accepted", ticked.submitted)
            if not ticked.again:
                return


def _steady_ms(reading: Reading) -> int:
    return reading.now.steady_ms


def _to_promote(reading: Reading) -> int | None:
    """The current time if there are jobs to promote; otherwise None."""
    until = reading.now.expiry_ms
    return until if any(reading.keys(wanted) for wanted in to_promote(until, 1)) else None
