"""Two ways beside each other: the same requests by a quick way and by the full one give the same answers and rows.

A surface draws requests and compares answers. Here is the store of one way, and the command line of `make nightly
NAME=express`, which compares as many requests as one likes, from seed after seed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from semel.engine.caller import WaitingCaller
from semel.engine.clock import DecisionClock
from semel.engine.group_commit import SilentObserver
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable, Row
from tests.engine.toy import ToyWorld

PLENTY = 2**40
Rows = dict[AnyTable, dict[Any, Row]]


class _Faults(SilentObserver):
    """Collects the errors of decisions."""

    def __init__(self, faults: list[BaseException]) -> None:
        self._faults = faults

    def fault(self, error_id: str, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        """Remember the error."""
        self._faults.append(error)


class Side:
    """The store of one way, and what decisions need around it."""

    def __init__(self, tables: Sequence[AnyTable], world: ToyWorld) -> None:
        self._tables = tables
        self.store = MemoryStore(tables, world.wall_ms)
        self.soft = SoftChanges()
        self.clock = DecisionClock(world, SilentObserver())
        self.faults: list[BaseException] = []
        self.around = Surroundings(
            store=self.store,
            soft=self.soft,
            timekeeper=self.clock,
            observer=_Faults(self.faults),
            error_id=lambda: "fault",
            is_admitted=lambda order: False,
            reach=lambda point: None,
        )

    def rows(self) -> Rows:
        """Every row, with the soft changes that are not stored yet."""
        with self.store.read() as snapshot:
            pages = {table: snapshot.page(table, 0, None, 100_000, PLENTY) for table in self._tables}
        return {table: self._with_soft(table, rows) for table, rows in pages.items()}

    def _with_soft(self, table: AnyTable, rows: Sequence[Row]) -> dict[Any, Row]:
        return {table.key_of(row): self.soft.over(table, row) for row in rows}


class Comparison(Protocol):
    """Two ways under the same requests."""

    def step(self) -> None:
        """Some requests."""


def compare_steps(make: Callable[[int], Comparison], steps: int, requests: str) -> Callable[[int, int], Counter[str]]:
    """What `main` asks for, of a comparison that is made of a seed and counts its requests in that attribute."""

    def compare(seed: int, cases: int) -> Counter[str]:
        one = make(seed)
        for _ in range(steps):
            one.step()
        return Counter(cases=getattr(one, requests))

    return compare


def main(about: str | None, compare: Callable[[int, int], Counter[str]], at_once: int = 5_000) -> None:
    """Compare until there were as many requests as asked for; a run of one seed has at most so many at once."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="requests")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    seen: Counter[str] = Counter()
    seed = asked.seed
    while seen["cases"] < asked.cases:
        seen += compare(seed, min(at_once, asked.cases - seen["cases"]))
        seed += 1
        told = ", ".join(f"{count} {name}" for name, count in sorted(seen.items()))
        sys.stdout.write(f"\r{told}; next: --seed {seed}")
        sys.stdout.flush()
    sys.stdout.write("\nno answer and no row differs\n")
