"""The progress of a replica: its cursor, the epoch of the server's store, and its known own entries.

The cursor and the epoch are in the file. The rest is for the time that the file is open: an older copy may have taken
its place, and then the server has entries of this replica that it does not know. So the first pull since the file was
opened brings those too; from then on, and behind the first push, its own entries are no news to it.
"""

from __future__ import annotations

from semel.client.deltas.file import LocalFile


class Progress:
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
