"""Kills inside of forks, deletes and the clean-up behind them; then every stream and every row is checked.

Chores run all the time, so that lives that end at a point of the commit path end inside of releases and purges, too. On
PostgreSQL two nodes fork, delete and append at once, and one of them is killed at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

import httpx

from tests.harness.crash.run import AsyncSurface, CoroutineClient, CrashPlan
from tests.harness.crash.verdict import Verdict
from tests.streams.forks.family import ROOT, TEXT, Family
from tests.streams.forks.orphans import faults_of, rows_of

FAMILIES = 6
SETTLE_SECONDS = 90.0


class ForksUnderKills(AsyncSurface):
    """Families of streams: no content is lost, and no row is left over."""

    settings: ClassVar = {"SEMEL_SWEEP_INTERVAL_MS": "20"}
    alive_seconds = (0.2, 0.7)
    shows = ("operations", "interrupted")

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self._nodes = [server.url for server in self.servers]
        self._http = httpx.AsyncClient(timeout=10)
        self._families = [
            Family(self._http, self._nodes, f"f{number}", plan.seed * 100 + number) for number in range(FAMILIES)
        ]

    def prepare(self) -> None:
        """Make the stream that all families append to."""
        httpx.put(f"{self._nodes[0]}/v1/stream/{ROOT}", headers=TEXT).raise_for_status()

    def coroutines(self) -> Sequence[CoroutineClient]:
        """The families."""
        return self._families

    def progress(self) -> int:
        """How much the families have done."""
        return sum(family.operations for family in self._families)

    def judge(self, verdict: Verdict) -> None:
        """Check all streams, delete them, and check that no row is left."""
        self.runner.run(self._judge(verdict))
        for family in self._families:
            verdict.count("operations", family.operations)
            verdict.count("interrupted", family.retried)
            for fault in family.faults:
                verdict.blame(fault)

    async def _judge(self, verdict: Verdict) -> None:
        root = (await self._http.get(f"{self._nodes[0]}/v1/stream/{ROOT}")).text
        for family in self._families:
            await family.check_all(root)
        verdict.faults += await asyncio.to_thread(lambda: faults_of(rows_of(self.urls[0])))
        for family in self._families:
            await family.delete_all()
        (await self._http.delete(f"{self._nodes[0]}/v1/stream/{ROOT}")).raise_for_status()
        verdict.faults += await asyncio.to_thread(self._left_over)

    def _left_over(self) -> list[str]:
        """The rows that are left when the clean-up had time enough."""
        end = time.monotonic() + SETTLE_SECONDS
        found = rows_of(self.urls[0])
        while not found.is_empty and time.monotonic() < end:
            time.sleep(0.1)
            found = rows_of(self.urls[0])
        if found.is_empty:
            return []
        counts = {name: len(rows) for name, rows in found._asdict().items()}
        return [f"rows are left after everything was deleted: {counts}", *faults_of(found)]

    async def hang_up(self) -> None:
        """Close the connections."""
        await self._http.aclose()
