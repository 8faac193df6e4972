"""Rows in one SQLite file, through one connection that writes and checkpoints, in one thread.

Format: a write-ahead log beside the file. A commit appends its pages to the log and syncs it before it returns
(`synchronous=FULL`), so an acknowledged transaction survives power loss; a crash before that sync leaves a torn tail
that SQLite discards at the next start, and no client was told of it. Readers are read-only and see the last commit in
the log; they never checkpoint. Checkpoints run in the writer's thread, after callers have been answered: a crash during
a checkpoint is repaired from the log.

After a failed commit or sync the process cannot trust its view of the file, because the operating system may have
dropped the pages that it could not write. The store then answers "unknown" and accepts no more writes; a restart reads
what is on disk. A lock file keeps a second server out of the data folder.

Other programs may commit to the file while the server runs (`file_watch`). If they change what this process keeps in
memory, or take the place of the file or of its lock (`data_folder`), the store accepts no more writes: nothing was
stored, and a restart reads the file anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import apsw

from semel.store.migrations import Migration
from semel.store.protocol import (
    AnyTable,
    Changes,
    Hear,
    LoadedRows,
    Lock,
    Range,
    Row,
    StoreBrokenError,
    StoreChangedError,
    StoreError,
    StoreHealth,
    StoreMovedError,
    StoreUnfitError,
)
from semel.store.sole_node import SoleNode
from semel.store.sql_dialect import MOVED
from semel.store.sqlite.checkpoint import Checkpoints, sync_log
from semel.store.sqlite.data_folder import FolderDisk, LockFile, OpenFile, bytes_used, create_database, make_folder
from semel.store.sqlite.file_watch import FileWatch
from semel.store.sqlite.index_floors import IndexFloors
from semel.store.sqlite.log_changes import LogChanges
from semel.store.sqlite.log_directory import INDEX_BYTES, LogDirectory, index_keys_of
from semel.store.sqlite.log_statements import LogStatements, statements_of
from semel.store.sqlite.log_table import HashKey
from semel.store.sqlite.query import fetch, sentence
from semel.store.sqlite.recent_rows import RecentChanges, RecentRows
from semel.store.sqlite.row_cache import CachedRows, RowCache
from semel.store.sqlite.schema import bring_up_to_date, check_library, current_generations, is_moved
from semel.store.sqlite.snapshot import ReaderPool, SqliteSnapshot, scan
from semel.store.sqlite.statements import GENERATIONS, Filled, SqliteStatements
from semel.store.sqlite.write_lock import WriteLock
from semel.store.table import Key
from semel.store.usage import StoreUsage

FILE_NAME = "semel.db"
LOCK_NAME = "semel.lock"
READERS = 4
PAYLOAD_BYTES = 1024 * 1024
"""A longer payload is written in pieces of this size."""

_WRITER_PRAGMAS = (
    "PRAGMA page_size = 4096",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA cache_size = -4096",
    "PRAGMA temp_store = MEMORY",  # the undo pages of a statement: at most the pages that it changes
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA foreign_keys = OFF",
)


class SqliteFileStore(SoleNode):
    """The embedded store. It has one lane."""

    lanes = 1
    readers = READERS

    def __init__(
        self,
        folder: Path,
        tables: Sequence[AnyTable],
        migrations: Sequence[Migration],
        wall_ms: Callable[[], int],
        vfs: str | None = None,
        *,
        index_keys: int = index_keys_of(INDEX_BYTES),
        hash_key: HashKey = hash,
        may_be_moved: bool = False,
    ) -> None:
        check_library(apsw.sqlite_lib_version())
        make_folder(folder)
        self._lock_file = LockFile(folder / LOCK_NAME)
        self._path = str(folder / FILE_NAME)
        self._vfs = vfs
        self._wall_ms = wall_ms
        self._index_keys = index_keys
        self._hash_key = hash_key
        self._disk = FolderDisk(folder)
        self._may_be_moved = may_be_moved
        try:
            self._open(tables, migrations)
        except (apsw.Error, OSError) as error:
            self._lock_file.release()
            why = f"The database {self._path} cannot be opened. {sentence(error)} {self._disk.flaw()}"
            raise StoreError(why.rstrip()) from error
        except BaseException:
            self._lock_file.release()
            raise

    def _open(self, tables: Sequence[AnyTable], migrations: Sequence[Migration]) -> None:
        path = Path(self._path)
        create_database(path)
        self._lock, self._file = OpenFile(path.with_name(LOCK_NAME)), OpenFile(path)
        self._writer = self._connect()
        self.health()
        self._broken = False
        self._is_closed = False
        self._hear: Hear = lambda _: None
        self._write_lock = WriteLock(self._writer)
        sync_log(self._writer, self._path, self._write_lock)
        self._checkpoints = Checkpoints(self._writer, self._path, self._vfs)
        self._writer.set_wal_hook(self._on_commit)
        with self._write_lock.patience():
            # Under the lock of the folder: a move that was made meanwhile is seen.
            if is_moved(self._writer) and not self._may_be_moved:
                raise StoreMovedError(str(path.parent))
            bring_up_to_date(self._writer, migrations, self._path)
        self._statements = statements_of(tables)
        with self._write_lock.patience(), self._writer:  # what memory knows is what one instant of the file has
            self._learn(tables)
        self._readers = ReaderPool(self._statements, self._wall_ms, self._logs)
        for _ in range(READERS):
            self._readers.add(apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs))

    def _connect(self) -> apsw.Connection:
        """The connection that writes. On a full disk it may take the room of the reserve."""
        connection = apsw.Connection(self._path, vfs=self._vfs, statementcachesize=512)
        try:
            for pragma in _WRITER_PRAGMAS:
                connection.execute(pragma)
        except (apsw.FullError, apsw.IOError):
            connection.close()
            if not (self._disk.flaw() and self._disk.give_up_reserve()):
                raise
            return self._connect()
        return connection

    def health(self) -> StoreHealth:
        """Look whether the disk is full, which commits go by from now on; nothing else is to be told."""
        self.full = self._disk.flaw()
        if not self.full:
            self._disk.keep_reserve()
        return StoreHealth()

    def _learn(self, tables: Sequence[AnyTable]) -> None:
        """Read what this process keeps in memory."""
        self._watch = FileWatch(self._writer)
        logs = [made for table in tables for made in self._statements[table] if isinstance(made, LogStatements)]
        self._logs = LogDirectory(self._writer, logs, self._hash_key, self._index_keys)
        self._row_cache = RowCache()
        self._recent = RecentRows(tables)
        self._floors = IndexFloors(tables)
        self._current: Mapping[str, int] = current_generations(self._writer)
        self._older_is_empty = self._empty_generations()

    def _empty_generations(self) -> dict[AnyTable, bool]:
        """For each table, whether its older generation has no row."""
        return {
            table: not older or self._writer.execute(older[0].some).fetchone() is None
            for table in self._statements
            for older in [self._older(table, self._current)]
        }

    def begin(self, locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> _SqliteTx:
        """Begin a transaction. There is one writer, so it holds every named lock."""
        if self._broken:
            raise StoreError("The store has stopped; restart the server.")
        try:
            if not durable:
                # Not OFF: when the log restarts, its header must be on disk before its frames.
                self._writer.execute("PRAGMA synchronous = NORMAL")
            self._begin(wait=wait)
        except (apsw.Error, StoreError) as error:
            self._writer.execute("PRAGMA synchronous = FULL")
            raise error if isinstance(error, StoreError) else StoreError(sentence(error)) from error
        return _SqliteTx(self, self._wall_ms(), durable)

    def _begin(self, *, wait: bool) -> None:
        """Begin a transaction, and look first whether the files are still those that are open, then whether another
        program has committed since the last one.
        """
        if not self._lock.is_in_place():
            self._stop(
                f"{LOCK_NAME} in {Path(self._path).parent} was removed or replaced while this server ran, so it stops "
                "before it writes: see that no other server uses the folder, and start one again."
            )
        if not self._file.is_in_place():
            self._stop(
                f"{self._path} was removed or replaced while this server ran, so it stops before it writes: put it "
                f"back, or delete {FILE_NAME}-wal and {FILE_NAME}-shm if another file is to be the database, and start "
                "it again."
            )
        self._write_lock.begin(wait=wait)
        try:
            if self._watch.is_changed():
                self._look_again()
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _look_again(self) -> None:
        """After a commit of another program: forget the rows in memory, if all else that memory knows is still so."""
        is_other = self._watch.has_other_schema() or self._logs.has_other_places()
        if is_other or current_generations(self._writer) != self._current:
            # What memory knows is no longer what is stored: a retry would be taken for a new write. Only a start, which
            # reads all of it, can go on.
            self._stop(
                f"Another program has changed {self._path} while this server ran, so it stops before it writes: start "
                "it again, and stop it before you run VACUUM or change rows."
            )
        for known in (self._row_cache, self._recent, self._floors):
            known.clear()
        self._older_is_empty = self._empty_generations()
        self._watch.accept()
        self._hear(())

    def _stop(self, why: str) -> NoReturn:
        self._broken = True
        raise StoreChangedError(why)

    def follow(self, hear: Hear) -> None:
        """Report commits of other programs, after which rows in memory are not believed."""
        self._hear = hear

    def read(self) -> SqliteSnapshot:
        """A snapshot of the last committed state, on a reader connection."""
        return SqliteSnapshot(self._readers)

    def usage(self) -> StoreUsage:
        """The bytes of the file, of its log and of the free disk, and the rows of log tables."""
        return StoreUsage(*bytes_used(Path(self._path)), self._logs.rows, self._logs.size)

    def tidy(self) -> None:
        """Forget keys that snapshots needed, and checkpoint if the log has grown. No commit waits for either. A full
        disk has no room for a checkpoint.
        """
        self._logs.tidy()
        if self._broken or self.full:
            return
        try:
            if self._checkpoints.is_due:
                self._checkpoints.make()
        except StoreBrokenError:
            self._broken = True
            raise

    def checkpoint_beside(self) -> Callable[[], None] | None:
        """The greater part of a checkpoint, if one is due, for another thread."""
        checkpoints = self._checkpoints
        if self._broken or self.full or not (checkpoints.is_due and checkpoints.is_long):
            return None
        return self._make_checkpoint_beside

    def is_tidy_long(self) -> bool:
        """Whether the next `tidy` copies many pages of the log."""
        return not (self._broken or self.full) and self._checkpoints.is_overdue

    def _make_checkpoint_beside(self) -> None:
        try:
            self._checkpoints.make_beside()
        except StoreBrokenError:
            self._broken = True
            raise

    def mark_moved(self, is_moved: bool) -> None:
        """Store that the data was moved, or take that mark away."""
        change = "INSERT OR REPLACE INTO semel_generation VALUES (?, 1)"
        if not is_moved:
            change = "DELETE FROM semel_generation WHERE name = ?"
        try:
            with self._write_lock.patience(), self._writer:
                self._writer.execute(change, (MOVED.encode(),))
        except apsw.Error as error:
            raise StoreError(sentence(error)) from error
        self._current = current_generations(self._writer)

    def close(self) -> None:
        """Close every connection; the last one checkpoints the log into the file."""
        if self._is_closed:
            return
        self._is_closed = True
        self._readers.close()
        self._checkpoints.close()
        self._writer.close()
        self._disk.keep_reserve()  # on a full disk, of what the index of the log has taken
        self._lock_file.release()

    def _on_commit(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._checkpoints.committed(pages)
        return apsw.SQLITE_OK

    def _younger(self, table: AnyTable, numbers: Mapping[str, int]) -> SqliteStatements:
        return self._statements[table][numbers.get(table.name, 0)]

    def _older(self, table: AnyTable, numbers: Mapping[str, int]) -> list[SqliteStatements]:
        current = numbers.get(table.name, 0)
        return [made for number, made in enumerate(self._statements[table]) if number != current]


class _SqliteTx:
    def __init__(self, store: SqliteFileStore, now_ms: int, durable: bool) -> None:
        self._store = store
        self._writer = store._writer
        self._durable = durable
        self._open = True
        self._numbers: Mapping[str, int] = store._current
        """The generation of each table that takes new rows: as in the store, until this transaction rotates a table."""
        self._cached = CachedRows(store._row_cache)
        self._recent = RecentChanges(store._recent)
        self._has_written = False
        self._rotated: set[AnyTable] = set()
        self._generations: dict[AnyTable, list[LogStatements]] = {}
        self._logs = LogChanges(self._writer, store._logs)
        self.now_ms = now_ms

    def load(self, keys: Mapping[AnyTable, Iterable[Key]], ranges: Sequence[Range]) -> LoadedRows:
        rows = {table: self._rows_of(table, wanted) for table, wanted in keys.items()}
        return LoadedRows(rows, [self._scan(wanted) for wanted in ranges])

    def _scan(self, wanted: Range) -> list[Row]:
        if not wanted.table.floors:
            return scan(self._writer, self._younger(wanted.table), wanted)
        floors = self._store._floors
        if floors.is_below(wanted):
            return []
        rows = scan(self._writer, self._younger(wanted.table), wanted)
        if not self._has_written:
            floors.read(wanted, rows)
        return rows

    def _rows_of(self, table: AnyTable, wanted: Iterable[Key]) -> dict[Key, Row]:
        if table.log:
            return self._find_in_log(table, wanted)
        if table.recent is not None:
            found, unknown = self._recent.find(table, wanted)
            return {**found, **self._find(table, unknown)} if unknown else found
        if not table.cached:
            return self._find(table, wanted)
        found, unknown = self._cached.find(table, wanted)
        if unknown:
            rows = self._find(table, unknown)
            self._cached.read(table, unknown, rows)
            found.update(rows)
        return found

    def _find(self, table: AnyTable, wanted: Iterable[Key]) -> dict[Key, Row]:
        younger = self._younger(table)
        found: dict[Key, Row] = {}
        probes = [younger]
        if table.generational and (table in self._rotated or not self._store._older_is_empty[table]):
            probes = [*self._store._older(table, self._numbers), younger]
        keys = list(wanted)
        for made in probes:
            for statement in made.find(keys):
                for values in fetch(self._writer, *statement):
                    row = made.unsigned.row_in(values)
                    found[row[: table.key]] = row
        return found

    def _find_in_log(self, table: AnyTable, wanted: Iterable[Key]) -> dict[Key, Row]:
        try:
            return self._logs.find(self._log_generations(table), wanted)
        except apsw.Error as error:
            raise StoreError(sentence(error)) from error

    def flush(self, changes: Changes) -> None:
        if self._store.full:
            self._store.health()  # there may be room again
            if self._store.full:
                raise StoreUnfitError(self._store.full)
        self._has_written = True
        self._store._floors.flush(changes)
        self._recent.flush(changes)
        try:
            stored = changes.summed()
            self._flush_trees(stored)
            self._logs.flush(stored, self._log_generations)
            self._cached.flush(changes)
        except (apsw.Error, OverflowError, TypeError) as error:
            raise StoreError(sentence(error)) from error

    def _flush_trees(self, changes: Changes) -> None:
        """Write the changes of all tables but the log tables."""
        for table, gone in changes.deletes.items():
            for made in () if table.log else self._store._statements[table]:
                self._run(made.delete(gone))
        # In a generational table the row may be in the older generation; the younger is read last: its rows win.
        for table, rows in changes.updates.items():
            self._run(() if table.log else self._younger(table).update(rows))
        for table, rows in changes.steady.items():
            self._run(() if table.log else self._younger(table).update_steadily(rows))
        for table, groups in changes.narrow.items():
            for columns, rows in groups:
                self._writer.executemany(*self._younger(table).update_columns(columns, rows))
        for table, rows in changes.inserts.items():
            made = self._younger(table)
            for sql, values in () if table.log else made.insert(rows):
                self._insert(made, sql, values)
        for touch in changes.touches:
            self._run(() if touch.table.log else [made.touch(touch) for made in self._store._statements[touch.table]])

    def _run(self, statements: Iterable[Filled]) -> None:
        for sql, values in statements:
            self._writer.execute(sql, values)

    def _log_generations(self, table: AnyTable) -> list[LogStatements]:
        """The statements of a log table, those of the younger generation first."""
        known = self._generations.get(table)
        if known is None:
            made = [self._younger(table), *self._store._older(table, self._numbers)]
            known = self._generations[table] = [one for one in made if isinstance(one, LogStatements)]
        return known

    def _insert(self, made: SqliteStatements, sql: str, values: tuple[Any, ...]) -> None:
        """Insert rows. A large payload, in the last column or before the checksum, is written in pieces: a bound value
        would be copied twice.
        """
        payload = values[made.payload_place]
        is_large = made.table.bulky and isinstance(payload, bytes) and len(payload) > PAYLOAD_BYTES
        if not is_large:
            self._writer.execute(sql, values)
            return
        behind = values[len(values) + made.payload_place + 1 :]
        self._writer.execute(sql, (*values[: made.payload_place], apsw.zeroblob(len(payload)), *behind))
        column = made.table.columns[made.payload_place].name
        with self._writer.blob_open("main", made.name, column, self._writer.last_insert_rowid(), True) as blob:
            for start in range(0, len(payload), PAYLOAD_BYTES):
                blob.write(payload[start : start + PAYLOAD_BYTES])

    def rotate(self, table: AnyTable) -> None:
        oldest = self._store._older(table, self._numbers)[0]
        number = (self._numbers.get(table.name, 0) + 1) % GENERATIONS
        try:
            if isinstance(oldest, LogStatements):
                self._logs.clear(oldest)
            else:
                self._writer.execute(oldest.clear)
            self._writer.execute("INSERT OR REPLACE INTO semel_generation VALUES (?, ?)", (table.name.encode(), number))
        except apsw.Error as error:
            raise StoreError(sentence(error)) from error
        self._numbers = {**self._numbers, table.name: number}
        self._generations.pop(table, None)
        self._rotated.add(table)

    def commit(self) -> tuple[()]:
        self._logs.publish()
        try:
            self._writer.execute("COMMIT")
        except apsw.Error as error:
            self._open = False
            self._store._broken = True
            raise StoreBrokenError(sentence(error)) from error
        self._open = False
        try:
            self._logs.apply()
            self._cached.apply()
            self._recent.apply()
        except BaseException as error:
            self._store._broken = True
            raise StoreBrokenError("The key index could not be changed after a commit.") from error
        self._store._current = self._numbers
        for table in self._rotated:
            self._store._older_is_empty[table] = False
        self._restore_durability()
        return ()

    def check(self) -> None:
        """The rows are those of now: `begin` has looked for commits of other programs."""

    def rollback(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except apsw.Error as error:
            # After a failed rollback the connection cannot be trusted: the process must restart.
            self._store._broken = True
            raise StoreBrokenError(sentence(error)) from error
        self._restore_durability()

    def _younger(self, table: AnyTable) -> SqliteStatements:
        return self._store._younger(table, self._numbers)

    def _restore_durability(self) -> None:
        if not self._durable:
            self._writer.execute("PRAGMA synchronous = FULL")
