"""Inspection of a data folder without a trace: it makes no folder, takes no lock and writes no file.

The database is opened for reading only. SQLite makes a log beside a file that it reads, and leaves it there; so where
there is no log the file is read as one that does not change, which is true: a server that runs has its log open. After
a crash there is a log, it is read too, and SQLite may rebuild its index of it, which is no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw

from semel.store.protocol import AnyTable, Glimpse, StoreError
from semel.store.sqlite.statements import DIALECT
from semel.store.sqlite.store import FILE_NAME


def glimpse(folder: Path, tables: Sequence[AnyTable], vfs: str | None) -> Glimpse:
    """The version of the data, and a table with rows if one of these has any."""
    path = folder / FILE_NAME
    try:
        path.stat()
        with closing(_open(path, vfs)) as connection:
            return _look(connection, tables)
    except FileNotFoundError:
        return Glimpse(0, None)
    except OSError as error:
        raise StoreError(f"The database {path} cannot be read: {error.strerror}.") from error
    except apsw.Error as error:
        raise StoreError(f"The database {path} cannot be read. SQLite: {type(error).__name__}: {error}") from error


def _open(path: Path, vfs: str | None) -> apsw.Connection:
    has_log = path.with_name(f"{FILE_NAME}-wal").exists()
    uri = f"{path.resolve().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)


def _look(connection: apsw.Connection, tables: Sequence[AnyTable]) -> Glimpse:
    made = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "semel_schema" not in made:
        return Glimpse(0, None)
    version = connection.execute("SELECT version FROM semel_schema").fetchone()
    return Glimpse(0 if version is None else version[0], next(_occupied(connection, tables, made), None))


def _occupied(connection: apsw.Connection, tables: Sequence[AnyTable], made: set[str]) -> Iterator[str]:
    for table in tables:
        for name in DIALECT.names_of(table):
            if name in made and connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None:
                yield table.name
