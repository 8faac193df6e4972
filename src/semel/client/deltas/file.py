"""The SQLite file of a replica: its transactions, identity and settings.

Format: tables `semel_meta`, `semel_outbox`, `semel_dead` and `semel_rows`; other tables of the file are left alone.
Write-ahead log, `synchronous=FULL`: a transaction that has returned survives a crash and a power cut, and one that has
not is wholly there or not at all. Everything that belongs together is one transaction: a row and its delta and the
clock; a page and its cursor. So there is nothing to repair at the start.

One client has the file at a time. Others may read it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from semel.client.deltas.lock import FileLock
from semel.client.errors import ConfigurationError, LocalFileError, TransactionError

FORMAT = "2"
BUSY_MS = 5_000
"""How long another connection's transaction is waited for, which writes the application's own tables into the file."""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA journal_size_limit = 67108864",
)
_TABLES = (
    "CREATE TABLE semel_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # Numbers are never given twice: a delta that was set aside comes back under its own.
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
    # `named` is the last checkpoint that told the row. `until` is of rows that are gone: up to this place in the log
    # that must be known, and behind it no older word on them can come.
    """CREATE TABLE semel_rows (
        table_name TEXT NOT NULL, row_id TEXT NOT NULL, base TEXT NOT NULL, shown TEXT,
        named INTEGER NOT NULL DEFAULT 0, until TEXT,
        PRIMARY KEY (table_name, row_id)
    ) STRICT""",
    "CREATE INDEX semel_rows_until ON semel_rows (until) WHERE until IS NOT NULL",
)
_FROM_1 = (
    "ALTER TABLE semel_rows ADD COLUMN named INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE semel_rows ADD COLUMN until TEXT",
    "CREATE INDEX semel_rows_until ON semel_rows (until) WHERE until IS NOT NULL",
    # What was acknowledged and not told back is sent again, and the server says what became of it.
    "UPDATE semel_outbox SET state = 'sending' WHERE state = 'acknowledged'",
    "ALTER TABLE semel_outbox DROP COLUMN through",
    "UPDATE semel_meta SET value = '2' WHERE name = 'format'",
)
"""Brings a file of the first format up."""
_TEMPORARY = """CREATE TEMP TABLE semel_changes (
    sequence INTEGER PRIMARY KEY, table_name TEXT NOT NULL, row_id TEXT NOT NULL, before TEXT, after TEXT
) STRICT"""
"""Changes by a checkpoint that followers have not received yet; gone with the process."""
_COUNT = """INSERT INTO semel_meta VALUES ('opened_beside', '1')
    ON CONFLICT DO UPDATE SET value = CAST(value + 1 AS TEXT)"""


class Identity(NamedTuple):
    """Whose file it is, of what, and where that is."""

    client: str
    gateway: str
    url: str


class LocalFile:
    """An open file. Any thread may use it, one at a time."""

    def __init__(self, path: Path, vfs: str | None = None) -> None:
        """`vfs` is the file system that SQLite is to use, by its name there."""
        self.path = path.absolute()
        self._lock = threading.RLock()
        self._depth = 0
        self._is_broken = self._is_closed = False
        self._file_lock = FileLock(self.path.resolve())
        try:
            self._connection = self._opened(vfs)
        except (apsw.Error, OSError) as error:
            self._file_lock.release()
            raise LocalFileError(f"{self.path} cannot be opened: {error}.") from error
        except BaseException:
            self._file_lock.release()
            raise

    def close(self) -> None:
        """Let the next client in."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._connection.close()
            self._file_lock.release()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything in the block, or nothing of it; on disk when it ends. A block within a block is a part of it."""
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

    @contextmanager
    def own_transaction(self) -> Iterator[None]:
        """The same, for changes that must not be part of the caller's transaction."""
        with self._lock:
            if self._depth:
                raise TransactionError("A transaction is open: nothing can be pushed or pulled until it has ended.")
            with self.transaction():
                yield

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self._lock:
            if self._is_closed:
                raise LocalFileError(f"{self.path} has been closed.")
            if self._is_broken:
                raise LocalFileError(f"{self.path} could not be written; open it again.")
            try:
                return list(self._connection.execute(statement, tuple(values)))
            except (apsw.IOError, apsw.FullError, apsw.CorruptError, apsw.BusyError) as error:
                raise LocalFileError(f"{self.path} failed: {error}.") from error

    def _commit(self, statement: str) -> None:
        try:
            self.execute(statement)
        except LocalFileError as error:
            # Whether it is on disk, only the disk knows. What is in memory is not to be trusted any more.
            self._is_broken = self._is_broken or isinstance(error.__cause__, apsw.IOError)
            self._undo("ROLLBACK")
            raise

    def _undo(self, statement: str) -> None:
        """Back; after some errors SQLite has done so itself."""
        with suppress(apsw.Error):
            self._connection.execute(statement)

    def meta(self, name: str) -> str | None:
        """One fact about the replica."""
        found = self.execute("SELECT value FROM semel_meta WHERE name = ?", (name,))
        return found[0][0] if found else None

    def set_meta(self, name: str, value: str) -> None:
        """Write a fact down."""
        self.execute(
            "INSERT INTO semel_meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, value)
        )

    def bind(self, gateway: str, url: str, client: str | None, fresh_client: str, *, moved: bool) -> Identity:
        """The identity of a file; a new file is given to the caller, and an old one only to its owner."""
        with self.own_transaction():
            kept = Identity(*(self.meta(name) or "" for name in Identity._fields))
            if not kept.client:
                kept = Identity(client or fresh_client, gateway, url)
            elif moved:
                kept = kept._replace(url=url)
            _check(self.path, "the gateway", kept.gateway, gateway)
            _check(self.path, "the client", kept.client, client or kept.client)
            if kept.url != url:
                raise ConfigurationError(
                    f"{self.path} belongs to the server at {kept.url}. If that server is at {url} now, open the file "
                    "with moved=True; another server needs a file of its own."
                )
            for name, value in kept._asdict().items():
                self.set_meta(name, value)
            return kept

    def _opened(self, vfs: str | None) -> apsw.Connection:
        # The log beside it gets the same mode. A file that is there is not touched: to close it again would take
        # SQLite's locks away from other readers of it in this process.
        with suppress(FileExistsError):
            os.close(os.open(self.path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(str(self.path), vfs=vfs, statementcachesize=100)
        try:
            connection.set_busy_timeout(BUSY_MS)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            self._bring_up(connection)
            _sync_log(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _bring_up(self, connection: apsw.Connection) -> None:
        with connection:
            known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'semel_meta'").fetchone()
            if known is None:
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO semel_meta VALUES ('format', ?)", (FORMAT,))
            found = connection.execute("SELECT value FROM semel_meta WHERE name = 'format'").fetchone()
            if found is not None and found[0] == "1":
                for statement in _FROM_1:
                    connection.execute(statement)
                found = (FORMAT,)
            connection.execute(_TEMPORARY)
        version = "?" if found is None else found[0]
        if version != FORMAT:
            raise ConfigurationError(
                f"{self.path} has format {version}, and this version of Semel knows format {FORMAT}."
            )


def _sync_log(connection: apsw.Connection) -> None:
    """A crash may have left transactions in the log that were never synced. What is sent must be on disk before."""
    connection.set_busy_timeout(0)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return
    except apsw.BusyError:
        pass  # another connection reads an older state of the file, and may do so for hours
    finally:
        connection.set_busy_timeout(BUSY_MS)
    # The log stays. A commit syncs all of it, what stood there before too; a count is something to commit.
    connection.execute(_COUNT)


def _check(path: Path, what: str, kept: str, asked: str) -> None:
    if kept != asked:
        raise ConfigurationError(
            f"{path} belongs to {what} {kept!r}, not to {asked!r}: give this one a file of its own."
        )
