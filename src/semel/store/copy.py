"""Copies all rows of one store into another, with keys, answers, positions, and the generation of each row.

The target is written in one transaction. A crash at any point leaves the target empty, and a target that is not empty
is refused before the first write. The source is only read. Afterwards both stores are read again, each in a snapshot of
its own, and compared: only committed rows count.

Pages are bounded in rows and in bytes, so that memory does not depend on the size of the data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.store.protocol import AnyTable, Changes, Row, Snapshot, Store, StoreError, Tx
from semel.store.table import Key, encoded

PAGE_ROWS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
KEY_ROWS = 10_000

Tell = Callable[[int], None]
"""A callback for progress: called repeatedly with the number of rows done since the last call."""


class TargetNotEmptyError(StoreError):
    """The target has rows already; nothing was written."""

    def __init__(self, table: str) -> None:
        super().__init__(f"The target is not empty, there are rows in {table}: use a new folder, schema or database.")


class TablePart(NamedTuple):
    """One generation of a table: 0 is the younger, or all of an ordinary table; 1 is the older."""

    table: AnyTable
    age: int

    @property
    def name(self) -> str:
        """The name of this part in reports."""
        if not self.table.generational:
            return self.table.name
        return f"{self.table.name} ({'older' if self.age else 'younger'})"


class RowsDigest(NamedTuple):
    """The number of rows, and a digest of them in key order (of a log table: in any order)."""

    rows: int
    sha256: str


class CopyLine(NamedTuple):
    """One part in source and target."""

    part: TablePart
    source: RowsDigest
    target: RowsDigest

    @property
    def agrees(self) -> bool:
        """Whether source and target hold the same rows."""
        return self.source == self.target


class CopyReport(NamedTuple):
    """The result of a copy, part by part."""

    lines: Sequence[CopyLine]

    @property
    def differing(self) -> list[str]:
        """The parts that differ between source and target; none after a successful copy."""
        return [line.part.name for line in self.lines if not line.agrees]


def parts_of(tables: Sequence[AnyTable]) -> list[TablePart]:
    """All generations of these tables, in the order in which they are written: the older generation first."""
    return [TablePart(table, age) for table in tables for age in ((1, 0) if table.generational else (0,))]


def count(store: Store, tables: Sequence[AnyTable]) -> Mapping[TablePart, int]:
    """The number of rows of each part; payloads are not read."""
    with store.read() as snapshot:
        return count_of(snapshot, tables)


def count_of(snapshot: Snapshot, tables: Sequence[AnyTable]) -> Mapping[TablePart, int]:
    """As `count`, in a snapshot that is open already."""
    return {part: sum(map(len, _key_pages(snapshot, part))) for part in parts_of(tables)}


def copy(source: Store, target: Store, tables: Sequence[AnyTable], tell: Tell) -> None:
    """Write all rows of the source into the empty target, in one transaction."""
    refuse_rows(target, tables)
    tx = target.begin(())
    try:
        with source.read() as snapshot:
            for part in parts_of(tables):
                write_part(tx, part, pages_of(snapshot, part), tell)
        tx.commit()
    finally:
        tx.rollback()


def refuse_rows(target: Store, tables: Sequence[AnyTable]) -> None:
    """Raise if any of these tables has a row."""
    with target.read() as snapshot:
        for table, age in parts_of(tables):
            if snapshot.page_keys(table, age, None, 1):
                raise TargetNotEmptyError(table.name)


def compare(source: Store, target: Store, tables: Sequence[AnyTable], tell: Tell) -> CopyReport:
    """Read every row of both stores again and compare them."""
    # One store after the other: a database ends a snapshot that is idle while the other store is read.
    sums = [_sums(store, tables, tell) for store in (source, target)]
    return CopyReport([CopyLine(*line) for line in zip(parts_of(tables), *sums, strict=True)])


def write_part(tx: Tx, part: TablePart, pages: Iterable[Sequence[Row]], tell: Tell) -> None:
    """Write all rows of one part into an empty target; the older generation of a table comes before the younger one."""
    is_empty = True
    for rows in pages:
        tx.flush(Changes({part.table: rows}, {}, {}, is_copy=True))
        tell(len(rows))
        is_empty = False
    if part.age and not is_empty:
        tx.rotate(part.table)  # the rows written so far become the older generation


def _sums(store: Store, tables: Sequence[AnyTable], tell: Tell) -> list[RowsDigest]:
    with store.read() as snapshot:
        return [(_sum_of_log if part.table.log else _sum)(pages_of(snapshot, part), tell) for part in parts_of(tables)]


def _sum(pages: Iterator[Sequence[Row]], tell: Tell) -> RowsDigest:
    digest, number = hashlib.sha256(), 0
    for rows in pages:
        for row in rows:
            digest.update(b"".join(map(encoded, row)))
        number += len(rows)
        tell(len(rows))
    return RowsDigest(number, digest.hexdigest())


def _sum_of_log(pages: Iterator[Sequence[Row]], tell: Tell) -> RowsDigest:
    """As `_sum`, but the order of the rows, in which stores of a log table differ, does not count."""
    total = number = 0
    for rows in pages:
        for row in rows:
            total += int.from_bytes(hashlib.sha256(b"".join(map(encoded, row))).digest(), "big")
        number += len(rows)
        tell(len(rows))
    return RowsDigest(number, f"{total % 2**256:064x}")


def pages_of(snapshot: Snapshot, part: TablePart) -> Iterator[Sequence[Row]]:
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
