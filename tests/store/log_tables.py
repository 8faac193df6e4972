"""Log tables of the tests, and the plain model that they must agree with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import AnyTable, Row
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import U64, Below, Key, Table


class StubRow(NamedTuple):
    """A row that is forgotten with its generation."""

    scope: bytes
    name: bytes
    used_at: int
    label: bytes


class EntryRow(NamedTuple):
    """A row with every kind of column in its key, and an index beside it."""

    owner: bytes
    number: int
    serial: U64
    expires_at: int
    seen_at: int
    note: bytes | None


NEVER = 2**62

STUB = Table("stub", StubRow, key=2, generational=True, log=True)
ENTRY = Table(
    "entry",
    EntryRow,
    key=3,
    indexes={"expires": ("expires_at",)},
    partial={"expires": Below("expires_at", NEVER)},
    log=True,
)
LOG_TABLES: tuple[AnyTable, ...] = (STUB, ENTRY)
LOG_MIGRATIONS = (Migration(1, "log tables", tuple(CreateTable(table.shape) for table in LOG_TABLES)),)


def stub(number: int, **columns: object) -> StubRow:
    """A stub with ordinary values."""
    return StubRow(b"s%d" % (number % 3), b"%d" % number, 0, b"")._replace(**columns)  # type: ignore[arg-type]


def entry(number: int, **columns: object) -> EntryRow:
    """An entry with ordinary values."""
    return EntryRow(b"o%d" % (number % 3), -number, 2**64 - 1 - number, NEVER, 0, None)._replace(**columns)  # type: ignore[arg-type]


def open_logs(folder: Path, *, index_keys: int = 1_000_000, hash_key: Callable[[Key], int] = hash) -> SqliteFileStore:
    """A store with these tables."""
    return SqliteFileStore(folder, LOG_TABLES, LOG_MIGRATIONS, lambda: 1, index_keys=index_keys, hash_key=hash_key)


@contextmanager
def statements(store: SqliteFileStore) -> Iterator[list[str]]:
    """The statements that the writer runs inside the block."""
    ran: list[str] = []

    def note(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        ran.append(sql)
        return True

    store._writer.exec_trace = note
    try:
        yield ran
    finally:
        store._writer.exec_trace = None


class LogModel:
    """What a log table must hold, in the plainest way: a dictionary for each generation."""

    def __init__(self, table: AnyTable) -> None:
        self.table = table
        self.younger: dict[Key, Row] = {}
        self.older: dict[Key, Row] = {}

    def copy(self) -> LogModel:
        """The same rows, which do not change any more."""
        copied = LogModel(self.table)
        copied.younger, copied.older = dict(self.younger), dict(self.older)
        return copied

    def get(self, key: Key) -> Row | None:
        """One row."""
        return self.younger.get(key, self.older.get(key))

    def find(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """The rows of these keys."""
        return {key: row for key in keys if (row := self.get(key)) is not None}

    def put(self, row: Row) -> None:
        """Insert or update."""
        self.younger[self.table.key_of(row)] = row

    def delete(self, key: Key) -> None:
        """Delete."""
        self.younger.pop(key, None)
        self.older.pop(key, None)

    def rotate(self) -> None:
        """Drop the older generation."""
        self.older, self.younger = self.younger, {}
