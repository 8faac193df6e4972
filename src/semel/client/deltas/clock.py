"""The hybrid logical clock (HLC) of a replica, stored in its file: it never falls, also across restarts.

Two readings are kept. `hlc` is the last one that was given or heard. `heard` is the last one that the server is known
to have taken or to have told of: below it no new change may be dated, even when changes from a wrong clock are dated
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from semel.client.deltas.file import LocalFile
from semel.kernel.hlc import drift_ms, receive, tick

WallMs = Callable[[], int]


class FileClock:
    """Reads and moves the clock; always within a transaction of the file."""

    def __init__(self, file: LocalFile, wall_ms: WallMs) -> None:
        self._file = file
        self.wall_ms = wall_ms

    def tick(self) -> int:
        """The time of a new change."""
        now = tick(self._get("hlc"), self.wall_ms())
        self._file.set_meta("hlc", str(now))
        return now

    def hear(self, readings: Iterable[int]) -> int:
        """Readings of others: later changes are dated behind them. One too far ahead is not believed.

        Returns how far ahead the latest of those was, in milliseconds; 0 when there was none.
        """
        now_ms, latest, ahead = self.wall_ms(), 0, 0
        for reading in readings:
            drift = drift_ms(reading, now_ms)
            ahead = max(ahead, drift)
            if not drift:
                latest = max(latest, reading)
        if latest:
            self._file.set_meta("hlc", str(receive(self._get("hlc"), latest, now_ms)))
            self.settle(latest)
        return ahead

    def settle(self, reading: int) -> None:
        """The server has a change of that time."""
        if reading > self._get("heard"):
            self._file.set_meta("heard", str(reading))

    def set_back(self, least: int) -> None:
        """Forget readings of a wrong clock: go on behind what the server has, and behind `least`."""
        self._file.set_meta("hlc", str(max(least, self._get("heard"))))

    def _get(self, name: str) -> int:
        return int(self._file.meta(name) or "0")
