"""Checkpoints: the pages of the write-ahead log are copied into the database file, so that the log can start anew.

A long checkpoint runs beside the writes, on a connection of its own in another thread. It cannot finish while commits
go on, so the log would grow without bound; therefore the writer itself copies the last pages, when few are left, and
the next commit starts the log anew. A crash during a checkpoint is repaired from the log, which is whole until then.
"""

from __future__ import annotations

import apsw

from semel.store.protocol import StoreBrokenError
from semel.store.sqlite.query import sentence

CHECKPOINT_PAGES = 4_000
"""A checkpoint is due when the log has this many pages."""
SHORT_PAGES = 400
"""The writer copies at most about this many pages while writes wait, as long as the log is not too long."""
LONG_PAGES = 4 * CHECKPOINT_PAGES
"""A log of this many pages is copied by the writer, however long that takes."""


class Checkpoints:
    """The checkpoints of one database file; `pages` is set by each commit."""

    def __init__(self, writer: apsw.Connection, path: str, vfs: str | None) -> None:
        self.pages = 0
        """Pages of the log since it started anew."""
        self._copied = 0
        """How many of them are in the database file already, as far as is known."""
        self._writer = writer
        self._beside = apsw.Connection(path, vfs=vfs)
        self._beside.execute("PRAGMA synchronous = FULL")
        self._beside.execute("PRAGMA checkpoint_fullfsync = ON")
        self._beside.execute("PRAGMA wal_autocheckpoint = 0")

    def committed(self, pages: int) -> None:
        """A commit has left the log with this many pages."""
        if pages < self.pages:
            self._copied = 0  # the log has started anew
        self.pages = pages

    @property
    def is_due(self) -> bool:
        """Whether the log is long enough for a checkpoint."""
        return self.pages >= CHECKPOINT_PAGES

    @property
    def is_long(self) -> bool:
        """Whether a checkpoint by the writer would keep writes waiting for long, and may run beside them first."""
        return self.pages - self._copied > SHORT_PAGES and self.pages < LONG_PAGES

    def make(self) -> None:
        """Copy all pages, on the writer's connection."""
        try:
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return
        except apsw.Error as error:
            raise StoreBrokenError(sentence(error)) from error
        self.pages = self._copied = 0

    def make_beside(self) -> None:
        """Copy the pages of now in this thread, while the writer adds further ones."""
        try:
            _, copied = self._beside.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return
        except apsw.Error as error:
            raise StoreBrokenError(sentence(error)) from error
        self._copied = max(copied, 0)

    def close(self) -> None:
        """Close the second connection."""
        self._beside.close()
