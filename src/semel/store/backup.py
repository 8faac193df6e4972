"""Backups: all rows of one snapshot in a file, and back into an empty store.

The snapshot may be that of a store in use: it has every write that was acknowledged before it was taken. Rows are
written back in one transaction with the changes that a restore makes besides, so that a crash leaves the store empty or
whole. Every page is checked before its rows are written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from semel.store.backup_file import BackupHeader, BackupPage, BackupReader, BackupSummary, BackupWriter, ByteSink
from semel.store.copy import Tell, pages_of, parts_of, refuse_rows, write_part
from semel.store.protocol import AnyTable, Lock, Row, Snapshot, Store, Tx
from semel.store.table import Key, Table

R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")


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
        for rows in pages_of(snapshot, part):
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
    without: Collection[AnyTable] = (),
) -> T:
    """Write all rows into the empty target, but for those of the tables `without`, then what `finish` adds under these
    locks, in one transaction.

    An error of the file or of `finish` leaves the target empty.
    """
    refuse_rows(target, tables)
    tx = target.begin(locks)
    try:
        for part, pages in groupby(reader.pages(), attrgetter("part")):
            rows = _rows_of(pages)
            write_part(tx, part, ([] for _ in rows) if part.table in without else rows, tell)
        result = finish(tx)
        tx.commit()
    finally:
        tx.rollback()
    return result


def _rows_of(pages: Iterator[BackupPage]) -> Iterator[Sequence[Row]]:
    return (page.rows for page in pages)
