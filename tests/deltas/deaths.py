"""Servers that die at a named point of a commit, whenever a test says so, and are started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deltas.wire import Deltas, serving
from tests.running import RunningServer
from tests.together import eventually

SITE = Path(__file__).parent.parent / "jobs" / "site"
"""Lets a process die where a file says, and gives it a wall clock that is wrong."""
BEFORE, AFTER = "flushed", "committed"
"""The last point at which nothing is stored yet, and the first at which all is, with nobody told."""


class Mortal:
    """A server, or nodes, and the file that they look at in every commit."""

    def __init__(self, deltas: Deltas, order: Path) -> None:
        self.deltas = deltas
        self._order = order

    def dies(self, point: str, call: Callable[[], object]) -> None:
        """Make a call that commits something in a life that ends at this point of the commit; then begin another.

        A call that does not reach the server, because a connection broke by itself, is made again.
        """
        dead: list[RunningServer] = []

        def is_one_dead() -> bool:
            call()
            dead.extend(node for node in self.deltas.nodes if node not in dead and node.wait_for_death(0.2) is not None)
            return bool(dead)

        self._order.write_text(point)
        try:
            eventually(is_one_dead, f"the server dies at {point}")
        finally:
            self._order.unlink()
        # Another node may have met the order on an errand of its own, until a moment ago.
        dead.extend(node for node in self.deltas.nodes if node not in dead and node.wait_for_death(0.5) is not None)
        for node in dead:
            node.start()
        self.deltas.redial()


@contextmanager
def mortal(folder: Path, store: str) -> Iterator[Mortal]:
    """A server, or two nodes over PostgreSQL, whose logs must show no fault."""
    folder.mkdir(parents=True, exist_ok=True)
    order = folder / "die"
    env = {"PYTHONPATH": str(SITE), "CRASH_FILE": str(order), "SEMEL_CRASH_POINT": BEFORE}
    with serving(folder / "data", store, env=env) as deltas:
        yield Mortal(deltas, order)
