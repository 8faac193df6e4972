"""The state of a replica in its file: its hybrid logical clock, and its progress in the server's log.

The clock never goes back. Two readings are stored. `hlc` is the last one that was issued or received. `heard` is the
last one that the server has accepted or sent: no new change gets a lower one, even if changes from a wrong clock get
new timestamps.

The cursor and the epoch of the server's store are in the file. Which own entries are known is kept only in memory,
because the file may be replaced by an older copy that lacks entries which the server has. So the first pull after the
file was opened fetches own entries too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from semel.client.deltas.file import LocalFile
from semel.kernel.hlc import drift_ms, receive, tick

WallMs = Callable[[], int]


class FileClock:
    """Reads and advances the clock, always in a transaction of the file."""

    def __init__(self, file: LocalFile, wall_ms: WallMs) -> None:
        self._file = file
        self.wall_ms = wall_ms

    def tick(self) -> int:
        """The time of a new change."""
        now = tick(self._get("hlc"), self.wall_ms())
        self._file.set_meta("hlc", str(now))
        return now

    def hear(self, readings: Iterable[int]) -> int:
        """Advance past readings of other clocks, except those too far ahead.

        Returns how far ahead the latest ignored one was, in milliseconds, or 0.
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
        """Record that the server has a change with this time."""
        if reading > self._get("heard"):
            self._file.set_meta("heard", str(reading))

    def set_back(self, least: int) -> None:
        """Drop readings of a wrong clock: continue after what the server has, and after `least`."""
        self._file.set_meta("hlc", str(max(least, self._get("heard"))))

    def _get(self, name: str) -> int:
        return int(self._file.meta(name) or "0")


class LocalProgress:
    """The progress of one file; changed in its transactions."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._is_complete = False
        """Whether all entries up to the cursor, also own ones, have been received since the file was opened."""
        self.own_after: int | None = None
        """Own entries after this position are known; None if it is not known of any."""

    @property
    def cursor(self) -> int:
        """The cursor of this replica; 0 at the start."""
        return int(self._file.meta("cursor") or "0")

    def move(self, cursor: int) -> None:
        """Move the cursor: all entries up to it are applied."""
        if cursor > self.cursor:
            self._file.set_meta("cursor", str(cursor))
            # No older entry can arrive for rows that were deleted before.
            self._file.execute("DELETE FROM semel_rows WHERE until <= ?", (f"{cursor:020d}",))

    def complete(self, position: int) -> None:
        """Record that a pull or checkpoint has reached its end: own entries up to the cursor are known too."""
        self._is_complete = True
        if self.own_after is None:
            self.own_after = position

    def pushed(self, first: int, cursor: int) -> None:
        """Record the answer to a push: the position of its first new delta, and how far the cursor may move."""
        if first and self.own_after is None:
            self.own_after = first - 1
        if self._is_complete:
            self.move(cursor)

    @property
    def is_stale(self) -> bool:
        """Whether the state from the server is unreliable."""
        return self._file.meta("is_stale") == "1"

    def reset(self, *, is_stale: bool) -> None:
        """Start again from the beginning."""
        self._file.set_meta("cursor", "0")
        self._file.set_meta("is_stale", "1" if is_stale else "0")
        self._is_complete, self.own_after = False, None

    def agrees(self, epoch: int) -> bool:
        """Whether an answer has the epoch of this replica. If not, the replica must be reloaded.

        After a restore from backup the server may have lost acknowledged changes, also before the cursor.
        """
        known = self._file.meta("epoch")
        if known != str(epoch):
            self._file.set_meta("epoch", str(epoch))
            if known is not None:
                self.reset(is_stale=True)
        return known in (None, str(epoch))
