"""Maintenance of jobs: extends leases after an outage, reaps expired leases, fires schedules.

After a start every live lease gets a full period before anything is reaped here; and after an outage of the store for
longer than a moment, every lease is extended by that time: an outage in which no worker could send a heartbeat ends no
healthy worker's lease. A shared store that could not be reached may have lost the last heartbeats, which are soft
changes: then leases begin anew, as after a start. A store that can be read and accepts no writes, as when its disk is
full, counts as an outage too. A reap that was delayed itself is void when its turn comes. Nothing is decided here: this
module reads, and sends commands that decide again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from semel.contracts.jobs.commands import Done, Promote, Reap, Renew, Tick, Ticked
from semel.contracts.jobs.contract import JOBS, Jobs
from semel.contracts.jobs.ids import CHANCE_BYTES
from semel.contracts.jobs.reading import due_schedules, leased_ids
from semel.contracts.jobs.rules.promote import to_promote
from semel.contracts.jobs.rules.reap import has_ended, leases_until
from semel.contracts.jobs.tables import JOB, WAITING
from semel.engine.contract import EngineError, FaultError, UnavailableError, Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.world import World
from semel.server.jobs.journal import Journal
from semel.server.jobs.waiters import Waiters
from semel.store.protocol import Range

_log = logging.getLogger("semel.jobs")

REAP_SECONDS = 0.25
LEAD_SECONDS = 1.0
"""Seconds between two checks for leadership and due schedules."""
TRUST_MS = 1_000
"""A store that was not seen for longer than this was away."""
RUNNING_MS = 500
"""A store that takes longer than this for writes does not count as seen meanwhile."""
REAPED_AT_ONCE = 100
RENEWED_AT_ONCE = 500
TICKS_AT_ONCE = 100
PROMOTED_AT_ONCE = 500


class Upkeep:
    """The maintenance task of one node; the reaper and the schedules run on the leader."""

    def __init__(self, engine: Engine, jobs: Jobs, world: World, journal: Journal, waiters: Waiters) -> None:
        self._engine = engine
        self._jobs = jobs
        self._world = world
        self._journal = journal
        self._waiters = waiters
        self._seen_at: int | None = None
        """When the store last worked, in steady time."""
        self._lost = 0
        """Writes that it had not taken by then."""
        self._was_away = False
        """Whether the store has refused to be read or written since then."""
        self._led_at = world.monotonic_ms() - 2**31
        self._leads = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.turn()
            except EngineError as error:
                self._was_away = True
                _log.warning("upkeep of jobs waits for the store", extra={"reason": str(error)})
            except Exception:  # noqa: BLE001 - upkeep goes on; what broke is tried again in a moment
                _log.exception("upkeep of jobs failed")
            await asyncio.sleep(REAP_SECONDS)

    async def turn(self) -> None:
        """One round: do what is due."""
        writing = self._engine.writing((JOBS,))
        now_ms = await self._engine.read(_steady_ms)
        if writing.running_ms > RUNNING_MS:
            return
        if self._seen_at is None or now_ms - self._seen_at > TRUST_MS:
            forgets = self._was_away and self._engine.is_shared
            now_ms = await self._renew(None if forgets else self._seen_at, now_ms)
        elif writing.lost != self._lost:
            await self._probe(now_ms)
        self._seen_at, self._lost, self._was_away = now_ms, writing.lost, False
        self._waiters.reap_until = now_ms + TRUST_MS
        since_ms = self._world.monotonic_ms() - self._led_at
        if since_ms >= LEAD_SECONDS * 1_000:
            self._led_at = self._world.monotonic_ms()
            self._leads = await self._engine.leads()
            if self._leads:
                await self._tick()
        if self._leads:
            await self._reap()
            await self._promote()

    async def _renew(self, since: int | None, now_ms: int) -> int:
        """More time for every lease that is out; when that was done.

        If the store goes away meanwhile, those that had their time back have lost some again, and all begins anew.
        """
        seen: set[bytes] = set()
        behind: tuple[int, bytes] | None = None
        while True:
            page = await self._engine.read(partial(leased_ids, behind=behind, limit=RENEWED_AT_ONCE))
            ids = tuple(job_id for _, job_id in page if job_id not in seen)
            if ids:
                await self._engine.submit(Write(self._jobs, Renew(ids, since), 0, len(ids)))
                seen.update(ids)
            before_ms, now_ms = now_ms, await self._engine.read(_steady_ms)
            if now_ms - before_ms > TRUST_MS:
                raise UnavailableError("The store went away while leases were renewed.")
            if len(page) < RENEWED_AT_ONCE:
                return now_ms
            behind = page[-1]

    async def _probe(self, now_ms: int) -> None:
        """Writes were lost, perhaps because of what was in them: see whether the store takes one that changes nothing.

        If it does not, this fails, and the store has not been seen.
        """
        page = await self._engine.read(partial(leased_ids, behind=None, limit=1))
        if page:
            await self._engine.submit(Write(self._jobs, Renew((page[0][1],), now_ms)))

    async def _reap(self) -> None:
        while await self._engine.read(self._is_due):
            command = Reap(REAPED_AT_ONCE, self._waiters.reap_until)
            done: Done = await self._engine.submit(Write(self._jobs, command, 0, REAPED_AT_ONCE))
            await self._journal.keep(done.notes)
            if done.number == 0:
                return

    async def _promote(self) -> None:
        """Count jobs that have become ready as queued, a limited number at a time."""
        for _ in range(TICKS_AT_ONCE):
            until = await self._engine.read(_to_promote)
            if until is None:
                return
            await self._engine.submit(Write(self._jobs, Promote(PROMOTED_AT_ONCE, until), 0, PROMOTED_AT_ONCE))

    def _is_due(self, reading: Reading) -> bool:
        """Whether a lease has run out, or a job has waited too long."""
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
            command = Tick(name, self._world.random_bytes(CHANCE_BYTES))
            ticked: Ticked = await self._engine.submit(Write(self._jobs, command))
            await self._journal.keep(ticked.notes)
            self._journal.count("accepted", ticked.submitted)
            if not ticked.again:
                return


def _steady_ms(reading: Reading) -> int:
    return reading.now.steady_ms


def _to_promote(reading: Reading) -> int | None:
    """The time by which a job has become ready, or is not counted yet; None when there is none."""
    until = reading.now.expiry_ms
    return until if any(reading.keys(wanted) for wanted in to_promote(until, 1)) else None
