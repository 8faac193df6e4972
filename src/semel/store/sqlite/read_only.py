"""Reads a data folder without its lock: one snapshot beside a running server, or an inspection that changes nothing.

SQLite lets other processes read a file while one writes. `read_snapshot` shows one instant for as long as it is open;
the writer continues, and keeps the pages that the reader may still need in its write-ahead log. The log therefore grows
while a snapshot is open, and is checkpointed afterwards. In a folder without a server SQLite creates an empty log,
which the next server uses.

`inspect` creates no folder, takes no lock and writes no file. SQLite creates a log beside a file that it reads, and
leaves it there. Without a log the file is therefore opened as immutable, which is safe because a running server has its
log open. After a crash there is a log; it is read too, and SQLite may rebuild its index file, which holds no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from semel.store.protocol import AnyTable, StoreError, StoreInspection
from semel.store.sqlite.log_statements import statements_of
from semel.store.sqlite.moved_keys import moved_flaws
from semel.store.sqlite.query import sentence
from semel.store.sqlite.schema import check_library, is_moved
from semel.store.sqlite.snapshot import ReaderPool, SqliteSnapshot
from semel.store.sqlite.statements import DIALECT
from semel.store.sqlite.store import FILE_NAME

BUSY_MS = 5_000
"""Longest wait for a server that is starting or stopping, in milliseconds."""


@contextmanager
def read_snapshot(
    folder: Path, tables: Sequence[AnyTable], wall_ms: Callable[[], int], vfs: str | None
) -> Iterator[SqliteSnapshot]:
    """One snapshot, open until the block ends."""
    check_library(apsw.sqlite_lib_version())
    with closing(ReaderPool(statements_of(tables), wall_ms)) as readers:
        readers.add(_open_snapshot(folder / FILE_NAME, vfs))
        with SqliteSnapshot(readers) as snapshot:
            yield snapshot


def _open_snapshot(path: Path, vfs: str | None) -> apsw.Connection:
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("SELECT 1 FROM semel_schema").fetchone()
    except apsw.CantOpenError as error:
        raise StoreError(
            f"The database {path} cannot be opened for reading. SQLite creates a log beside it, even to read: "
            "let this user write to the folder, or copy it."
        ) from error
    except (apsw.Error, OSError) as error:
        raise StoreError(f"The database {path} cannot be read. {sentence(error)}") from error
    return connection


MOST_FLAWS = 100
"""The most flaws of the file that SQLite is asked for."""


def file_flaws(folder: Path, tables: Sequence[AnyTable], vfs: str | None) -> Iterator[str]:
    """What is wrong with the file, its tables and indexes, and the indexes of keys, beside a running server."""
    try:
        with closing(_open_snapshot(folder / FILE_NAME, vfs)) as connection:
            for (said,) in connection.execute(f"PRAGMA integrity_check({MOST_FLAWS})"):
                yield from () if said == "ok" else (str(said),)
            connection.execute("BEGIN")
            yield from _index_flaws(connection, tables)
    except apsw.Error as error:
        yield sentence(error)


def _index_flaws(connection: apsw.Connection, tables: Sequence[AnyTable]) -> Iterator[str]:
    try:
        yield from moved_flaws(connection, tables)
    except StoreError as error:
        yield str(error)


def inspect(folder: Path, tables: Sequence[AnyTable], vfs: str | None) -> StoreInspection:
    """The schema version of the data, and one of these tables that has rows, if any."""
    path = folder / FILE_NAME
    try:
        path.stat()
        with closing(_open_inspection(path, vfs)) as connection:
            return _inspect(connection, tables)
    except FileNotFoundError:
        return StoreInspection(0, None)
    except OSError as error:
        raise StoreError(f"The database {path} cannot be read: {error.strerror}.") from error
    except apsw.Error as error:
        raise StoreError(f"The database {path} cannot be read. SQLite: {type(error).__name__}: {error}") from error


def _open_inspection(path: Path, vfs: str | None) -> apsw.Connection:
    has_log = path.with_name(f"{FILE_NAME}-wal").exists()
    uri = f"{path.resolve().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)


def _inspect(connection: apsw.Connection, tables: Sequence[AnyTable]) -> StoreInspection:
    made = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "semel_schema" not in made:
        return StoreInspection(0, None)
    version = connection.execute("SELECT version FROM semel_schema").fetchone()
    occupied = next(_occupied(connection, tables, made), None)
    return StoreInspection(0 if version is None else version[0], occupied, is_moved(connection))


def _occupied(connection: apsw.Connection, tables: Sequence[AnyTable], made: set[str]) -> Iterator[str]:
    for table in tables:
        for name in DIALECT.names_of(table):
            if name in made and connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None:
                yield table.name
