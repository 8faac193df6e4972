"""Backups: all rows of one snapshot in a file, and back into an empty store.

The snapshot may be that of a store in use: it has every write that was acknowledged before it was taken. Rows are
written back in one transaction with the changes that a restore makes besides, so that a crash leaves the store empty or
whole. Every page is checked before its rows are written.

Pages are bounded in rows and in bytes, so that memory does not depend on the size of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from semel.store.backup_file import BackupHeader, BackupPage, BackupReader, BackupSummary, BackupWriter, ByteSink
from semel.store.protocol import AnyTable, Changes, Lock, Row, Snapshot, Store, StoreError, Tx, turn_lock
from semel.store.table import Key, Table, TablePart, parts_of

PAGE_ROWS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
KEY_ROWS = 10_000

R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")
Tell = Callable[[int], None]
"""A callback for progress: called repeatedly with the number of rows done since the last call."""


class TargetNotEmptyError(StoreError):
    """The target has rows already; nothing was written."""

    def __init__(self, table: str) -> None:
        super().__init__(f"The target is not empty, there are rows in {table}: use a new folder, schema or database.")


class VerifiedBackup(NamedTuple):
    """A backup that was read to its end, and the rows of some small tables of it."""

    summary: BackupSummary
    rows: Mapping[AnyTable, Mapping[Key, Row]]

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row of those tables."""
        return self.rows[table].get(key)


def write_backup(
    snapshot: Snapshot, tables: Sequence[AnyTable], header: BackupHeader, sink: ByteSink, tell: Tell
) -> BackupSummary:
    """Write all rows of a snapshot; `tell` is called with the number of rows of each page."""
    writer = BackupWriter(sink, header, tables)
    for part in parts_of(tables):
        for rows in _pages_of(snapshot, part):
            writer.page(part, rows)
            tell(len(rows))
    return writer.finish()


def verify_backup(reader: BackupReader, tell: Tell, keep: Collection[AnyTable] = ()) -> VerifiedBackup:
    """Read a backup to its end, and keep the rows of these tables; `tell` is called with the bytes read."""
    kept: dict[AnyTable, dict[Key, Row]] = {table: {} for table in keep}
    told = 0
    for part, rows in reader.pages():
        if part.table in kept:
            kept[part.table].update((part.table.key_of(row), row) for row in rows)
        tell(reader.size - told)
        told = reader.size
    tell(reader.size - told)
    return VerifiedBackup(reader.summary, kept)


def restore_backup(
    reader: BackupReader,
    target: Store,
    tables: Sequence[AnyTable],
    tell: Tell,
    locks: Sequence[Lock],
    finish: Callable[[Tx], T],
) -> T:
    """Write all rows into the empty target, then what `finish` adds under these locks, in one transaction.

    An error of the file or of `finish` leaves the target empty. A node that began meanwhile over the same database
    writes before the look at the target, or after the commit.
    """
    tx = target.begin(sorted({*locks, *(turn_lock(table) for table in tables if table.generational)}))
    try:
        _ = tx.now_ms  # takes the locks
        _refuse_rows(target, tables)
        for part, pages in groupby(reader.pages(), attrgetter("part")):
            _write_part(tx, part, _rows_of(pages), tell)
        result = finish(tx)
        tx.commit()
    finally:
        tx.rollback()
    return result


def _rows_of(pages: Iterator[BackupPage]) -> Iterator[Sequence[Row]]:
    return (page.rows for page in pages)


def count_rows(snapshot: Snapshot, tables: Sequence[AnyTable]) -> Mapping[TablePart, int]:
    """The number of rows of each part; payloads are not read."""
    return {part: sum(map(len, _key_pages(snapshot, part))) for part in parts_of(tables)}


def _refuse_rows(target: Store, tables: Sequence[AnyTable]) -> None:
    """Raise if any of these tables has a row."""
    with target.read() as snapshot:
        for table, age in parts_of(tables):
            if snapshot.page_keys(table, age, None, 1):
                raise TargetNotEmptyError(table.name)


def _write_part(tx: Tx, part: TablePart, pages: Iterable[Sequence[Row]], tell: Tell) -> None:
    """Write all rows of one part into an empty target; the older generation of a table comes before the younger one."""
    is_empty = True
    for rows in pages:
        tx.flush(Changes({part.table: rows}, {}, {}, is_copy=True))
        tell(len(rows))
        is_empty = False
    if part.age and not is_empty:
        tx.rotate(part.table)  # the rows written so far become the older generation


def _pages_of(snapshot: Snapshot, part: TablePart) -> Iterator[Sequence[Row]]:
    """The rows of one part, in pages that are bounded in rows and bytes."""
    behind: Key | None = None
    while rows := snapshot.page(part.table, part.age, behind, PAGE_ROWS, PAGE_BYTES):
        yield rows
        behind = part.table.key_of(rows[-1])


def _key_pages(snapshot: Snapshot, part: TablePart) -> Iterator[Sequence[Key]]:
    behind: Key | None = None
    while keys := snapshot.page_keys(part.table, part.age, behind, KEY_ROWS):
        yield keys
        behind = keys[-1]
