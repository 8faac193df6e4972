"""The SQLite file of one replica: its lock, its transactions, and its identity.

Format: tables `semel_meta`, `semel_outbox`, `semel_dead`, `semel_lost` and `semel_rows`; other tables in the file are
not touched. Write-ahead log, `synchronous=FULL`: a transaction that has returned survives a crash and a power failure,
and any other is stored completely or not at all. A row, its delta and the clock are one transaction, and so are a page
and its cursor. So nothing needs repair at startup.

One client at a time opens the file; other programs may read it. The lock is on a second file next to the database, and
the operating system releases it when the process ends, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from semel.client.errors import ConfigurationError, LocalFileError, TransactionError
from semel.client.file_lock import FileLock

FORMAT = "2"
BUSY_MS = 5_000
"""How long to wait for a transaction of another connection that writes the application's own tables."""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA journal_size_limit = 67108864",
)
_TABLES = (
    "CREATE TABLE semel_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # Sequence numbers are never reused: a dead letter returns to the queue with its own.
    """CREATE TABLE semel_outbox (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, delta_id TEXT NOT NULL UNIQUE,
        table_name TEXT NOT NULL, row_id TEXT NOT NULL, body BLOB NOT NULL,
        state TEXT NOT NULL, tries INTEGER NOT NULL, error TEXT
    ) STRICT""",
    "CREATE INDEX semel_outbox_row ON semel_outbox (table_name, row_id)",
    "CREATE INDEX semel_outbox_state ON semel_outbox (state, sequence)",
    """CREATE TABLE semel_dead (
        sequence INTEGER PRIMARY KEY, delta_id TEXT NOT NULL UNIQUE,
        table_name TEXT NOT NULL, row_id TEXT NOT NULL, body BLOB NOT NULL,
        tries INTEGER NOT NULL, status INTEGER NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL,
        refused_ms INTEGER NOT NULL
    ) STRICT""",
    # `named` is the last checkpoint that contained the row. `until` is set for deleted rows: the tombstone is kept up
    # to this position of the log, because older entries of the row may still arrive before it.
    """CREATE TABLE semel_rows (
        table_name TEXT NOT NULL, row_id TEXT NOT NULL, base TEXT NOT NULL, shown TEXT,
        named INTEGER NOT NULL DEFAULT 0, until TEXT,
        PRIMARY KEY (table_name, row_id)
    ) STRICT""",
    "CREATE INDEX semel_rows_until ON semel_rows (until) WHERE until IS NOT NULL",
)
_TEMPORARY = """CREATE TEMP TABLE semel_changes (
    sequence INTEGER PRIMARY KEY, table_name TEXT NOT NULL, row_id TEXT NOT NULL, before TEXT, after TEXT
) STRICT"""
"""Changes of a checkpoint that followers have not received yet; lost when the process ends."""
_LOST = """CREATE TABLE IF NOT EXISTS semel_lost (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, table_name TEXT NOT NULL, row_id TEXT NOT NULL, column_name TEXT,
    own TEXT NOT NULL, winning TEXT NOT NULL, winner TEXT,
    is_row_deleted INTEGER NOT NULL, was_pending INTEGER NOT NULL
) STRICT"""
"""Own writes that lost, until the application has taken them."""
_COUNT = """INSERT INTO semel_meta VALUES ('opened_beside', '1')
    ON CONFLICT DO UPDATE SET value = CAST(value + 1 AS TEXT)"""


class ReplicaIdentity(NamedTuple):
    """The client, the gateway and the server of a file."""

    client: str
    gateway: str
    url: str


class LocalFile:
    """An open file. Any thread may use it, one at a time."""

    def __init__(self, path: Path, vfs: str | None = None) -> None:
        """`vfs` is the name of the SQLite VFS to use."""
        self.path = path.absolute()
        self._lock = threading.RLock()
        self._depth = 0
        self._is_broken = self._is_closed = False
        self.on_commit: Callable[[], None] = _nothing
        """Called after each commit."""
        self._file_lock = FileLock(self.path)
        try:
            self._connection = self._opened(vfs)
        except (apsw.Error, OSError) as error:
            self._file_lock.release()
            raise LocalFileError(f"{self.path} cannot be opened: {error}.") from error
        except BaseException:
            self._file_lock.release()
            raise

    def close(self) -> None:
        """Close the file and release its lock."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._file_lock.is_own:  # else the connection is that of the parent process
                self._connection.close()
            self._file_lock.release()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction, on disk when it ends. A nested block is part of the outer one."""
        with self._lock:
            self._depth += 1
            name = f"level_{self._depth}"
            try:
                self.execute("BEGIN IMMEDIATE" if self._depth == 1 else f"SAVEPOINT {name}")
                try:
                    yield
                except BaseException:
                    self._undo("ROLLBACK" if self._depth == 1 else f"ROLLBACK TO {name}; RELEASE {name}")
                    raise
                self._commit("COMMIT" if self._depth == 1 else f"RELEASE {name}")
            finally:
                self._depth -= 1
            if not self._depth:
                self.on_commit()

    @contextmanager
    def own_transaction(self) -> Iterator[None]:
        """A transaction that must not be part of the caller's: raises `TransactionError` if one is open."""
        with self._lock:
            if self._depth:
                raise TransactionError("A transaction is open: end it before you push or pull.")
            with self.transaction():
                yield

    @contextmanager
    def own_reading(self) -> Iterator[None]:
        """Read a committed state: no other thread writes in the block. Raises `TransactionError` as above."""
        with self._lock:
            if self._depth:
                raise TransactionError("A transaction is open: end it before you wait for changes.")
            yield

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self._lock:
            if self._is_closed:
                raise LocalFileError(f"{self.path} has been closed.")
            if self._is_broken:
                raise LocalFileError(f"{self.path} could not be written: open it again.")
            self._file_lock.check()
            try:
                return list(self._connection.execute(statement, tuple(values)))
            except (apsw.IOError, apsw.FullError, apsw.CorruptError, apsw.BusyError) as error:
                raise LocalFileError(f"{self.path} failed: {error}.") from error

    def _commit(self, statement: str) -> None:
        try:
            self.execute(statement)
        except LocalFileError as error:
            # It is unknown whether the commit is on disk, so the state in memory cannot be trusted any more.
            self._is_broken = self._is_broken or isinstance(error.__cause__, apsw.IOError)
            self._undo("ROLLBACK")
            raise

    def _undo(self, statement: str) -> None:
        """Roll back, unless SQLite has already done so."""
        with suppress(apsw.Error):
            self._connection.execute(statement)

    def meta(self, name: str) -> str | None:
        """Read one value of the replica's metadata."""
        found = self.execute("SELECT value FROM semel_meta WHERE name = ?", (name,))
        return found[0][0] if found else None

    def set_meta(self, name: str, value: str) -> None:
        """Store one value of the replica's metadata."""
        self.execute(
            "INSERT INTO semel_meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, value)
        )

    def bind(self, gateway: str, url: str, client: str | None, fresh_client: str, *, moved: bool) -> ReplicaIdentity:
        """The identity of a file. A new file gets the caller's; an existing one must have the same."""
        with self.own_transaction():
            kept = ReplicaIdentity(*(self.meta(name) or "" for name in ReplicaIdentity._fields))
            if not kept.client:
                kept = ReplicaIdentity(client or fresh_client, gateway, url)
            elif moved:
                kept = kept._replace(url=url)
            _check(self.path, "the gateway", kept.gateway, gateway)
            _check(self.path, "the client", kept.client, client or kept.client)
            if kept.url != url:
                raise ConfigurationError(
                    f"{self.path} belongs to the server at {kept.url}. If that server is at {url} now, open the file "
                    "with moved=True; for another server use another file."
                )
            for name, value in kept._asdict().items():
                self.set_meta(name, value)
            return kept

    def _opened(self, vfs: str | None) -> apsw.Connection:
        # The write-ahead log gets the same mode. An existing file is not opened here: closing it again would release
        # the SQLite locks of other readers in this process.
        with suppress(FileExistsError):
            os.close(os.open(self.path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(str(self.path), vfs=vfs, statementcachesize=100)
        try:
            connection.set_busy_timeout(BUSY_MS)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            self._prepare(connection)
            _sync_log(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: apsw.Connection) -> None:
        with connection:
            known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'semel_meta'").fetchone()
            if known is None:
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO semel_meta VALUES ('format', ?)", (FORMAT,))
            found = connection.execute("SELECT value FROM semel_meta WHERE name = 'format'").fetchone()
            if (version := "?" if found is None else found[0]) != FORMAT:
                raise ConfigurationError(
                    f"{self.path} has format {version}, and this version of Semel reads format {FORMAT} only: use the "
                    "version that wrote it, or another file."
                )
            connection.execute(_LOST)
            connection.execute(_TEMPORARY)


def _nothing() -> None:
    """Commits are not observed."""


def _sync_log(connection: apsw.Connection) -> None:
    """Sync transactions that a crash may have left in the log unsynced: deltas must be on disk before they are sent."""
    connection.set_busy_timeout(0)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return
    except apsw.BusyError:
        pass  # another connection reads an older snapshot, possibly for hours
    finally:
        connection.set_busy_timeout(BUSY_MS)
    # The log stays. A commit syncs all of it, older transactions too; incrementing a counter is such a commit.
    connection.execute(_COUNT)


def _check(path: Path, what: str, kept: str, asked: str) -> None:
    if kept != asked:
        raise ConfigurationError(f"{path} belongs to {what} {kept!r}, not to {asked!r}: use another file.")
