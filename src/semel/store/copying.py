"""Copy of a store: every row exactly, with keys, answers, positions, and the generation of each row.

The target is written in one transaction. A crash at any point leaves it as empty as it was, and a target that is not
empty is refused before the first write. The source is only read. Afterwards both are read again, each in a snapshot of
its own, and compared: what is in memory or under way counts for nothing.

Pages are bounded in rows and in bytes, so that a data set of any size passes through.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.store.protocol import AnyTable, Changes, Row, Snapshot, Store, StoreError, Tx
from semel.store.table import Key

PAGE_ROWS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
KEY_ROWS = 10_000

Tell = Callable[[int], None]
"""Told again and again how many more rows are done."""


class TargetNotEmptyError(StoreError):
    """The target has rows already; nothing was written."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"The target is not empty, there are rows in {table}: copy into a new folder, schema or database."
        )


class Part(NamedTuple):
    """One generation of a table: 0 is the younger, or all of an ordinary table; 1 is the older."""

    table: AnyTable
    age: int

    @property
    def name(self) -> str:
        """For people."""
        if not self.table.generational:
            return self.table.name
        return f"{self.table.name} ({'older' if self.age else 'younger'})"


class Sum(NamedTuple):
    """The number of rows, and a digest of them in key order."""

    rows: int
    sha256: str


class Line(NamedTuple):
    """One part in source and target."""

    part: Part
    source: Sum
    target: Sum

    @property
    def agrees(self) -> bool:
        """Whether both sides hold the same rows."""
        return self.source == self.target


class Report(NamedTuple):
    """The result of a copy, part by part."""

    lines: Sequence[Line]

    @property
    def differing(self) -> list[str]:
        """The parts that are not the same on both sides; none after a good copy."""
        return [line.part.name for line in self.lines if not line.agrees]


def parts_of(tables: Sequence[AnyTable]) -> list[Part]:
    """All generations of these tables, in the order in which they are written: the older one first."""
    return [Part(table, age) for table in tables for age in ((1, 0) if table.generational else (0,))]


def count(store: Store, tables: Sequence[AnyTable]) -> Mapping[Part, int]:
    """How many rows there are; their payloads are not read."""
    with store.read() as snapshot:
        return {part: sum(map(len, _key_pages(snapshot, part))) for part in parts_of(tables)}


def copy(source: Store, target: Store, tables: Sequence[AnyTable], tell: Tell) -> None:
    """Write all rows of the source into the empty target, all or none of them."""
    refuse_rows(target, tables)
    tx = target.begin(())
    try:
        with source.read() as snapshot:
            for part in parts_of(tables):
                _write(tx, part, _pages(snapshot, part), tell)
        tx.commit()
    finally:
        tx.rollback()


def refuse_rows(target: Store, tables: Sequence[AnyTable]) -> None:
    """Raise if any of these tables has a row."""
    with target.read() as snapshot:
        for table, age in parts_of(tables):
            if snapshot.page_keys(table, age, None, 1):
                raise TargetNotEmptyError(table.name)


def compare(source: Store, target: Store, tables: Sequence[AnyTable], tell: Tell) -> Report:
    """Read every row of both sides again."""
    # One after the other: a database ends a snapshot that is idle while the other side is read.
    sums = [_sums(store, tables, tell) for store in (source, target)]
    return Report([Line(*line) for line in zip(parts_of(tables), *sums, strict=True)])


def _write(tx: Tx, part: Part, pages: Iterator[Sequence[Row]], tell: Tell) -> None:
    is_empty = True
    for rows in pages:
        tx.flush(Changes({part.table: rows}, {}, {}))
        tell(len(rows))
        is_empty = False
    if part.age and not is_empty:
        tx.rotate(part.table)  # what has been written becomes the older generation


def _sums(store: Store, tables: Sequence[AnyTable], tell: Tell) -> list[Sum]:
    with store.read() as snapshot:
        return [_sum(_pages(snapshot, part), tell) for part in parts_of(tables)]


def _sum(pages: Iterator[Sequence[Row]], tell: Tell) -> Sum:
    digest, number = hashlib.sha256(), 0
    for rows in pages:
        for row in rows:
            digest.update(b"".join(map(_encoded, row)))
        number += len(rows)
        tell(len(rows))
    return Sum(number, digest.hexdigest())


def _encoded(value: int | bytes | None) -> bytes:
    """A value so that no two rows, or sequences of rows, have the same bytes."""
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i" + value.to_bytes(9, "big", signed=True)  # wide enough for both kinds of numbers
    return b"b" + len(value).to_bytes(8, "big") + value


def _pages(snapshot: Snapshot, part: Part) -> Iterator[Sequence[Row]]:
    behind: Key | None = None
    while rows := snapshot.page(part.table, part.age, behind, PAGE_ROWS, PAGE_BYTES):
        yield rows
        behind = part.table.key_of(rows[-1])


def _key_pages(snapshot: Snapshot, part: Part) -> Iterator[Sequence[Key]]:
    behind: Key | None = None
    while keys := snapshot.page_keys(part.table, part.age, behind, KEY_ROWS):
        yield keys
        behind = keys[-1]
