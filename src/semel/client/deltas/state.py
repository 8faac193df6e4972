"""The state of a replica in its file: its hybrid clock, and its progress in the server's log.

The clock never falls. Two readings are kept. `hlc` is the last one that was given or received. `heard` is the last one
that the server is known to have taken or sent: no new change is dated below it, even when changes from a wrong clock
are dated again.

The cursor and the epoch of the server's store are in the file. Which own entries are known is kept only while the file
is open, because an older copy may have taken its place, and then the server has entries of this replica that the copy
does not know. So the first pull after the file was opened brings own entries too.
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


class LocalProgress:
    """Of one file; changed within its transactions."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._is_complete = False
        """Whether everything up to the cursor is known, own entries too, since the file was opened."""
        self.own_after: int | None = None
        """Own entries behind this position are known; None when that cannot be said of any."""

    @property
    def cursor(self) -> int:
        """The cursor of this replica; 0 at the beginning."""
        return int(self._file.meta("cursor") or "0")

    def move(self, cursor: int) -> None:
        """Everything up to there is known."""
        if cursor > self.cursor:
            self._file.set_meta("cursor", str(cursor))
            # No older word can come on rows that were gone before that.
            self._file.execute("DELETE FROM semel_rows WHERE until <= ?", (f"{cursor:020d}",))

    def complete(self, position: int) -> None:
        """A pull has reached the end of the log, or a checkpoint its own: own entries up to there are known too."""
        self._is_complete = True
        if self.own_after is None:
            self.own_after = position

    def pushed(self, first: int, cursor: int) -> None:
        """A push was answered: the position of its first new delta, and how far the cursor may move."""
        if first and self.own_after is None:
            self.own_after = first - 1
        if self._is_complete:
            self.move(cursor)

    @property
    def is_stale(self) -> bool:
        """Whether the state from the server is unreliable."""
        return self._file.meta("is_stale") == "1"

    def reset(self, *, is_stale: bool) -> None:
        """Begin anew."""
        self._file.set_meta("cursor", "0")
        self._file.set_meta("is_stale", "1" if is_stale else "0")
        self._is_complete, self.own_after = False, None

    def agrees(self, epoch: int) -> bool:
        """Whether an answer has the epoch of this replica; if not, it has to begin anew.

        After a restore the server may have lost what it has acknowledged here, before the cursor as well.
        """
        known = self._file.meta("epoch")
        if known != str(epoch):
            self._file.set_meta("epoch", str(epoch))
            if known is not None:
                self.reset(is_stale=True)
        return known in (None, str(epoch))
