"""Checkpoints: the pages of the write-ahead log are copied into the database file, so that the log can start anew.

A long checkpoint runs beside the writes, on a connection of its own in another thread. It cannot finish while commits
go on, so the log would grow without bound; therefore the writer itself copies the last pages, when few are left, and
the next commit starts the log anew. Each round beside the writes leaves the pages that were committed meanwhile: a few
rounds leave so few that the writer copies and syncs them in about the time of a commit. A crash during a checkpoint is
repaired from the log, which is whole until then.

A reader that began earlier, for example a backup, or Litestream, which makes the checkpoints itself, keeps pages from
being copied, or the log from starting anew. Then the next checkpoint is due when the log has grown by `RETRY_PAGES`.
"""

from __future__ import annotations

import os

import apsw

from semel.store.protocol import StoreBrokenError
from semel.store.sqlite.query import sentence
from semel.store.sqlite.write_lock import WriteLock

CHECKPOINT_PAGES = 4_000
"""A checkpoint is due when the log has this many pages."""
SHORT_PAGES = 64
"""The writer copies at most about this many pages while writes wait; more are copied beside them, up to `MAX_ROUNDS`
times.
"""
MAX_ROUNDS = 8
FEW_PAGES = 400
"""The same limit after that many rounds."""
RETRY_PAGES = 100
"""After a checkpoint that a reader has kept from copying all pages, this many further pages make the next one due."""
LONG_PAGES = 4 * CHECKPOINT_PAGES
"""A log of this many pages is copied by the writer, however long that takes."""


class Checkpoints:
    """The checkpoints of one database file; `pages` is set by each commit."""

    def __init__(self, writer: apsw.Connection, path: str, vfs: str | None) -> None:
        self.pages = 0
        """Pages of the log since it started anew."""
        self._copied = 0
        """How many of them are in the database file already, as far as is known."""
        self._rounds = 0
        """Rounds beside the writes since the log started anew."""
        self._due_at = CHECKPOINT_PAGES
        """The length of the log at which the next checkpoint is due."""
        self._writer = writer
        self._beside = apsw.Connection(path, vfs=vfs)
        self._beside.execute("PRAGMA synchronous = FULL")
        self._beside.execute("PRAGMA checkpoint_fullfsync = ON")
        self._beside.execute("PRAGMA wal_autocheckpoint = 0")

    def committed(self, pages: int) -> None:
        """A commit has left the log with this many pages."""
        if pages < self.pages:
            self._start_anew()
        self.pages = pages

    @property
    def is_due(self) -> bool:
        """Whether the log is long enough for a checkpoint."""
        return self.pages >= self._due_at

    @property
    def is_long(self) -> bool:
        """Whether a checkpoint by the writer would keep writes waiting for long, and may run beside them first."""
        most = SHORT_PAGES if self._rounds < MAX_ROUNDS else FEW_PAGES
        return self.pages - self._copied > most and self.pages < LONG_PAGES

    @property
    def is_overdue(self) -> bool:
        """Whether the log is so long that the writer must copy many pages."""
        return self.is_due and self.pages >= LONG_PAGES and self.pages - self._copied > FEW_PAGES

    def make(self) -> None:
        """Copy all pages, on the writer's connection."""
        if self._is_whole(self._writer):
            self._start_anew()
            self.pages = 0

    def make_beside(self) -> None:
        """Copy the pages of now in this thread, while the writer adds further ones."""
        self._rounds += 1
        self._is_whole(self._beside)

    def _is_whole(self, connection: apsw.Connection) -> bool:
        """Copy pages of the log, and return whether all that it had at the beginning are copied."""
        began = self.pages
        try:
            found, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:  # another process makes a checkpoint, or reads the file without the log
            self._due_at = began + RETRY_PAGES
            return False
        except apsw.Error as error:
            raise StoreBrokenError(sentence(error)) from error
        self._copied = max(copied, 0)
        if copied < found:
            self._due_at = began + RETRY_PAGES
        return copied >= found

    def _start_anew(self) -> None:
        self._copied = self._rounds = 0
        self._due_at = CHECKPOINT_PAGES

    def close(self) -> None:
        """Close the second connection."""
        self._beside.close()


def sync_log(writer: apsw.Connection, path: str, lock: WriteLock) -> None:
    """Sync the log at the start, before anything is answered.

    A crash may have left commits in the log that were written but not synced. No caller was told of them yet, but from
    now on retries and readers will see them.
    """
    try:
        writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        # Another process (an export, a backup, Litestream) is reading, so the log cannot be truncated. A commit, even
        # one that changes nothing, syncs the whole log.
        with lock.patience():
            writer.execute("PRAGMA user_version = 0")
    except apsw.FullError:
        # The log has not grown, but the database has no room for it. SQLite locks no bytes of the log, so that a
        # descriptor of its own does no harm.
        handle = os.open(f"{path}-wal", os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
