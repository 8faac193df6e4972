"""The ways in which a life ends: SIGKILL or a named point of the commit path, a failover of the database, a power cut.

A power cut needs a disk that records: its way is `tests.store.powercut`. What ends no server (the process of a replica,
the parts of a shop) is a way of its surface's own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

from tests.harness.crash.verdict import Verdict
from tests.harness.lives import PointLives
from tests.harness.server import RunningServer
from tests.harness.together import eventually

ONE_LONG_IN = 6
BEFORE_SECONDS = (0.3, 0.9)
AFTER_SECONDS = 0.3
ROUND_SECONDS = 300.0

F = TypeVar("F")
"""What can happen to a database."""
F_contra = TypeVar("F_contra", contravariant=True)
Outage = tuple[float, float]
"""From when to when nobody could be heard; both are the same if another server was there, but one was started."""


class Way(Protocol):
    """How the lives of a run end."""

    def end(self, number: int) -> str:
        """Wait a moment, end a life, and begin the next one; in a few words, what was done."""

    def judge(self, verdict: Verdict) -> None:
        """What the way itself has to say in the end."""


class Kills:
    """From outside, at a random moment; the life behind every other kill ends by itself, at a point, each in turn."""

    def __init__(
        self,
        servers: Sequence[RunningServer],
        chance: random.Random,
        lives: PointLives,
        alive_seconds: tuple[float, float],
        long_seconds: float = 0.0,
    ) -> None:
        """Every sixth life lasts for `long_seconds`, unless that is 0."""
        self._servers = servers
        self._chance = chance
        self._lives = lives
        self._alive_seconds = alive_seconds
        self._long_seconds = long_seconds
        self.outages: list[Outage] = []

    def end(self, number: int) -> str:
        """One kill, or two."""
        is_long = self._long_seconds and number % ONE_LONG_IN == ONE_LONG_IN - 1
        time.sleep(self._long_seconds if is_long else self._chance.uniform(*self._alive_seconds))
        server = self._chance.choice(self._servers)
        server.kill()
        killed_at = time.monotonic()
        if number % 2:
            self._lives.end_next(server)
        started_at = time.monotonic()
        self._lives.start_next(server, number)
        is_alone = len(self._servers) == 1
        self.outages.append((killed_at, time.monotonic()) if is_alone else (started_at, started_at))
        return "killed"

    def judge(self, verdict: Verdict) -> None:
        """Every point that a life was to die at was hit."""
        missed = self._lives.missed
        verdict.require(not missed, f"no server died at {missed}: nothing was shown about that")


class Database(Protocol[F_contra]):
    """A database that can fail over, and be made whole again; it runs while its context is open."""

    @property
    def urls(self) -> Sequence[str]:
        """For `semel serve --store`, one for each node."""

    @property
    def running(self) -> AbstractContextManager[Any]:
        """Starts it, and removes it in the end."""

    def fail_over(self, what: F_contra, chance: random.Random) -> None:
        """Let it happen; returns when something accepts writes again, or is about to."""

    def attach(self) -> None:
        """Make it whole, so that the next failover loses nothing that was confirmed."""


class Failovers(Generic[F]):
    """The database fails over under its nodes in these manners, in turn; the nodes are told nothing."""

    def __init__(
        self,
        database: Database[F],
        order: Sequence[F],
        chance: random.Random,
        answers: Callable[[], int],
        pause_since: Callable[[float], float],
    ) -> None:
        """`pause_since` tells for how long nothing was answered, of the pauses that ended after that moment."""
        self._database = database
        self._order = order
        self._chance = chance
        self._answers = answers
        self._pause_since = pause_since
        self.pauses: list[tuple[F, float]] = []

    def end(self, number: int) -> str:
        """One failover; the load has gone on when it is over, and the database is whole again."""
        what = self._order[number % len(self._order)]
        time.sleep(self._chance.uniform(*BEFORE_SECONDS))
        began = time.monotonic()
        self._database.fail_over(what, self._chance)
        before = self._answers()
        eventually(lambda: self._answers() > before, f"something is answered behind a failover ({what})", ROUND_SECONDS)
        time.sleep(AFTER_SECONDS)
        self._database.attach()
        time.sleep(AFTER_SECONDS)
        self.pauses.append((what, self._pause_since(began)))
        return f"{what}, {self.pauses[-1][1]:.1f} s without an answer"

    def judge(self, verdict: Verdict) -> None:
        """Nothing: the clients know it all."""
