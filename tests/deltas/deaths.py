"""Servers that die at a named point of a commit, whenever a test says so, and are started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx

from tests.deltas.wire import Deltas, serving
from tests.harness.server import RunningServer
from tests.harness.together import eventually

BEFORE, AFTER = "flushed", "committed"
"""The last point at which nothing is stored yet, and the first at which all is, with nobody told."""
OWN_COMMITS = 2
"""What servers store by themselves in a new store, at their start and soon after it: a term, and a generation."""


class Mortal:
    """A server, or nodes, and the file that they look at in every commit."""

    def __init__(self, deltas: Deltas, order: Path) -> None:
        self.deltas = deltas
        self._order = order
        self._taken = order.with_suffix(".taken")

    def dies(self, point: str, call: Callable[[], object]) -> None:
        """Make a call that commits something in a life that ends at this point of the commit; then begin another.

        A call that does not reach the server, because a connection broke by itself, is made again.
        """
        draft = self._order.with_suffix(".draft")
        draft.write_text(point)
        draft.rename(self._order)  # whole, or not there
        try:
            eventually(partial(self._is_taken_after, call), f"a server is to die at {point}")
        finally:
            self._order.unlink(missing_ok=True)
        dead: list[RunningServer] = []
        eventually(partial(self._has_died, dead), f"the server dies at {point}")
        self._taken.unlink()
        for node in dead:
            node.start()
        self.deltas.redial()

    def _is_taken_after(self, call: Callable[[], object]) -> bool:
        call()
        return self._taken.exists()

    def _has_died(self, dead: list[RunningServer]) -> bool:
        """Whether the one that has taken the order is dead: it may stand still before it is."""
        dead += [node for node in self.deltas.nodes if node.wait_for_death(0.02) is not None]
        return bool(dead)


@contextmanager
def mortal(folder: Path, store: str) -> Iterator[Mortal]:
    """A server, or two nodes over PostgreSQL, whose logs must show no fault."""
    folder.mkdir(parents=True, exist_ok=True)
    order = folder / "die"
    env = {"SEMEL_CRASH_FILE": str(order)}
    with serving(folder / "data", store, env=env) as deltas:
        # An order must be taken by the call that it is for, and not by an errand of the server.
        eventually(lambda: commits(deltas) >= OWN_COMMITS, "the servers have stored what they store by themselves")
        yield Mortal(deltas, order)


def commits(deltas: Deltas) -> int:
    """How many commits the nodes have behind them."""
    figures = [httpx.get(f"{node.url}/metrics").json() for node in deltas.nodes]
    return sum(int(one.get("semel_engine_commits_total{kind=durable}", 0)) for one in figures)
