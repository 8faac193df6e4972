"""Kill servers inside of forks, deletes and the clean-up behind them; then check every stream and every row.

Chores run all the time, so that lives that end at a point of the commit path end inside of releases and purges, too. On
PostgreSQL two nodes fork, delete and append at once, and one of them is killed at a time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.harness.lives import PointLives
from tests.harness.server import RunningServer
from tests.streams.forks.family import ROOT, TEXT, Family
from tests.streams.forks.orphans import faults_of, rows_of

FAMILIES = 6
ALIVE_SECONDS = (0.2, 0.7)
SETTLE_SECONDS = 90.0


@dataclass
class ForksVerdict:
    """What a run has shown."""

    operations: int = 0
    retried: int = 0
    faults: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, no row is left over, and every point of the commit path was hit."""
        return not self.faults and not self.missed

    def __str__(self) -> str:
        shown = "".join(f"\n  {fault}" for fault in self.faults[:10])
        return f"{self.operations} operations, {self.retried} requests repeated, {len(self.faults)} faults{shown}"


class ForksRun:
    """One store, one or two nodes, many lives."""

    def __init__(
        self,
        folder: Path,
        kills: int,
        seed: int,
        report: Callable[[int], None] = lambda done: None,
        store: str = "",
    ) -> None:
        self.store = store or f"sqlite:{folder / 'data-0'}"
        env = {"SEMEL_STORE": store, "SEMEL_SWEEP_INTERVAL_MS": "20"}
        self._nodes = [RunningServer(folder / f"data-{number}", env=env) for number in range(2 if store else 1)]
        self._kills = kills
        self._chance = random.Random(seed)
        self._lives = PointLives(self._chance, (4, 20, 100))
        self._report = report
        self._seed = seed

    def run(self) -> ForksVerdict:
        """Kill and restart, check all streams, delete them, and check that no row is left."""
        verdict = ForksVerdict(missed=self._lives.missed)
        for node in self._nodes:
            node.start()
        try:
            asyncio.run(self._under_load(verdict))
        finally:
            for node in self._nodes:
                node.__exit__(None, None, None)
        return verdict

    async def _under_load(self, verdict: ForksVerdict) -> None:
        urls = [node.url for node in self._nodes]
        async with httpx.AsyncClient(timeout=10) as http:
            (await http.put(f"{urls[0]}/v1/stream/{ROOT}", headers=TEXT, timeout=60)).raise_for_status()
            families = [Family(http, urls, f"f{number}", self._seed * 100 + number) for number in range(FAMILIES)]
            stop = asyncio.Event()
            work = [asyncio.create_task(family.work(stop)) for family in families]
            for done in range(self._kills):
                await self._one_kill(done)
                self._report(done + 1)
            stop.set()
            await asyncio.gather(*work)
            root = (await http.get(f"{urls[0]}/v1/stream/{ROOT}")).text
            for family in families:
                await family.check_all(root)
            verdict.faults += await asyncio.to_thread(lambda: faults_of(rows_of(self.store)))
            for family in families:
                await family.delete_all()
            (await http.delete(f"{urls[0]}/v1/stream/{ROOT}")).raise_for_status()
            verdict.faults += await asyncio.to_thread(self._left_over)
        verdict.faults += [fault for family in families for fault in family.faults]
        verdict.operations = sum(family.operations for family in families)
        verdict.retried = sum(family.retried for family in families)

    async def _one_kill(self, number: int) -> None:
        node = self._nodes[number // 2 % len(self._nodes)]
        await asyncio.sleep(self._chance.uniform(*ALIVE_SECONDS))
        await asyncio.to_thread(node.kill)
        if number % 2:
            await asyncio.to_thread(self._lives.end_next, node)
        await asyncio.to_thread(self._lives.start_next, node, number)

    def _left_over(self) -> list[str]:
        """The rows that are left when the clean-up had time enough."""
        end = time.monotonic() + SETTLE_SECONDS
        found = rows_of(self.store)
        while not found.is_empty and time.monotonic() < end:
            time.sleep(0.1)
            found = rows_of(self.store)
        if found.is_empty:
            return []
        counts = {name: len(rows) for name, rows in found._asdict().items()}
        return [f"rows are left after everything was deleted: {counts}", *faults_of(found)]
