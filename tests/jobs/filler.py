"""Fills a store with jobs through the rules themselves, without a server: thousands in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.store.protocol import Store
from semel.surfaces.jobs.commands import CancelJob, ClaimJobs, JobDraft, JobReport, SubmitJobs
from semel.surfaces.jobs.contract import JobContract as Contract
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.rules.completion import digest_of

POLICY = JobPolicy(queued=JobBounds(0), max_inflight=0)


class Filler:
    """Fills a store through the rules themselves, many jobs at once."""

    def __init__(self, store: Store) -> None:
        self._engine = Engine(store, SystemWorld())
        self._contract = Contract(POLICY)
        self._number = 0

    async def stop(self) -> None:
        await self._engine.stop()

    async def _do(self, command: Any, cost: int = 1) -> Any:
        return await self._engine.submit(Write(self._contract, command, 0, cost))

    async def submit(self, count: int, kind: bytes, queue: bytes, principal: bytes, delay_ms: int = 0) -> list[bytes]:
        """Submit so many; their ids."""
        ids: list[bytes] = []
        while len(ids) < count:
            size = min(100, count - len(ids))
            drafts = tuple(self._draft(kind, queue, principal, delay_ms) for _ in range(size))
            ids += [one.job.id for one in await self._do(SubmitJobs(drafts), size)]
        return ids

    def _draft(self, kind: bytes, queue: bytes, principal: bytes, delay_ms: int) -> JobDraft:
        self._number += 1
        chance = self._number.to_bytes(8, "big")
        rest = (b"", b"", delay_ms, None, 1, 3_600_000, False, frozenset[str](), chance)
        return JobDraft(principal, b"", "", b"", kind, b"{}", queue, 4, *rest)

    async def claim(self, count: int, queue: bytes) -> list[Any]:
        """Lease so many."""
        leases: list[Any] = []
        while len(leases) < count:
            most = min(100, count - len(leases))
            rest = (None, None, b"", 0, SystemWorld().wall_ms(), b"s" * 32)
            claimed = await self._do(ClaimJobs(b"w", b"w", most, (), (queue,), *rest), most)
            assert claimed.leases
            leases += claimed.leases
        return leases

    async def end(self, leases: Sequence[Any], *, ok: bool) -> None:
        """Report on them."""
        for start in range(0, len(leases), 500):
            some = leases[start : start + 500]
            value = b"1" if ok else b'{"code":"c","message":"m"}'
            reports = [
                JobReport(job.id, key, ok, value, digest_of(job.id, ok, value), "c", "m", False) for job, key in some
            ]
            await asyncio.gather(*map(self._do, reports))

    async def cancel(self, ids: Sequence[bytes]) -> None:
        for job_id in ids:
            await self._do(CancelJob(job_id, b"", is_admin=True, forces=False))
