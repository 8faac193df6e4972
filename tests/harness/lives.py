"""Lives of a server that end at a named point of the commit path, each point in turn, and which were missed.

A run that is meant to die at a point and never does has shown nothing about it, so the harness notes the points that
no life died at, and a run that missed one has failed. Besides, some lives have slow commits: what is answered
before it is on disk is lost by a kill only if the kill falls between the two, and a fast disk leaves no room for that.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping, Sequence
from itertools import cycle

from semel.engine.engine import POINTS
from tests.harness.server import RunningServer, ServerFailedError

POINT_SECONDS = (4.0, 30.0, 60.0)
"""How long each life has that is to die at a point. All but the first die when they first pass it, and lack the time
only on a machine that stands still."""
TELLING = "flushed"
"""The last point at which nothing is stored: it comes first, because whatever was answered too early is lost there."""
SLOW_COMMITS: Mapping[str, str] = {"SEMEL_COMMIT_DELAY_MS": "40"}
"""What a life with slow commits is started with: longer than a disk takes, and shorter than any lease."""
ONE_SLOW_IN = 3


class PointLives:
    """Which point is next, and which were missed; `first` says which of them comes second."""

    def __init__(self, chance: random.Random, one_in: Sequence[int], first: int = 0) -> None:
        self._chance = chance
        self._one_in = one_in
        others = [point for point in POINTS if point != TELLING]
        start = first % len(others)
        self._points = cycle([*(point for point in POINTS if point == TELLING), *others[start:], *others[:start]])
        self.missed: list[str] = []
        """The points that no life died at, although it was meant to."""

    def end_next(self, server: RunningServer) -> None:
        """Start the server so that it dies at the next point, and wait for that; it is dead afterwards either way."""
        point = next(self._points)
        for attempt, seconds in enumerate(POINT_SECONDS):
            one_in = 1 if attempt else self._chance.choice(self._one_in)
            server.launch({"SEMEL_CRASH_POINT": point, "SEMEL_CRASH_ONE_IN": str(one_in)})
            code = server.wait_for_death(seconds)
            if code == -signal.SIGKILL:
                return
            if code is not None:
                raise ServerFailedError(f"a server that was to die at {point} ended with {code}")
            server.kill()
        self.missed.append(point)

    def start_next(self, server: RunningServer, number: int) -> None:
        """The life behind the kill of that number: every third one has slow commits."""
        server.start(SLOW_COMMITS if number % ONE_SLOW_IN == 0 else {})
