"""Read-only access to a data folder beside a running server: without its lock, and without a row written.

SQLite lets other processes read a file while one writes. What they see is one instant, for as long as they look; the
writer goes on, and keeps in its log what they may still need. So the log grows while another process reads, and is
folded into the file afterwards. A folder without a server gets an empty log from SQLite, which the next server takes
for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from semel.store.protocol import AnyTable, StoreError
from semel.store.sqlite.schema import check_library
from semel.store.sqlite.snapshot import Readers, SqliteSnapshot, sentence
from semel.store.sqlite.statements import DIALECT, Statements
from semel.store.sqlite.store import FILE_NAME

BUSY_MS = 5_000
"""Longest wait for a server that starts or stops at this moment, in milliseconds."""


@contextmanager
def beside(
    folder: Path, tables: Sequence[AnyTable], wall_ms: Callable[[], int], vfs: str | None
) -> Iterator[SqliteSnapshot]:
    """One snapshot, until the block ends."""
    check_library(apsw.sqlite_lib_version())
    statements = {table: [Statements(table, name) for name in DIALECT.names_of(table)] for table in tables}
    with closing(Readers(statements, wall_ms)) as readers:
        readers.add(_open(folder / FILE_NAME, vfs))
        with SqliteSnapshot(readers) as snapshot:
            yield snapshot


def _open(path: Path, vfs: str | None) -> apsw.Connection:
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("SELECT 1 FROM semel_schema").fetchone()
    except apsw.CantOpenError as error:
        raise StoreError(
            f"The database {path} cannot be opened for reading. SQLite puts a log beside it, even to read: "
            "let this user write to the folder, or copy it."
        ) from error
    except (apsw.Error, OSError) as error:
        raise StoreError(f"The database {path} cannot be read. {sentence(error)}") from error
    return connection
