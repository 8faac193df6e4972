"""A flipped bit in any column of any table is named by `semel check`, or the column is on the list of soft facts.

The tables are those of the registry, so a new table or column is tried without a line here. `make test` flips a
seventh of the bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from semel.server.store_check import StoreCheck
from semel.store.protocol import AnyTable
from semel.surfaces.registry import SURFACES
from semel.surfaces.schema import TABLES
from tests.backup.clone import clone
from tests.check.damages import Database
from tests.check.flips import Flip, flips_of
from tests.check.stores import copied, faults_of, lines_of, postgres_database, sqlite_database
from tests.harness.postgres.shared import fresh_url
from tests.harness.share import is_due


class SoftFact(NamedTuple):
    """A column whose damage is not named, in some rows or in all."""

    table: str
    column: str
    reason: str


SOFT = (
    SoftFact("stream", "deadline", "only with a time to live: each use of the stream moves it by a soft change"),
    SoftFact("job", "due_at", "only while leased: heartbeats move the end of the lease by soft changes"),
    SoftFact("job", "beat_at", "only while leased: heartbeats set it by soft changes"),
    SoftFact("job", "progress", "only while leased: heartbeats set it by soft changes"),
    SoftFact("job_record", "seen_at", "retries of a submission set it by soft changes; it is only shown"),
    SoftFact("delta_replica", "seen", "pulls move it by soft changes; a lost one delivers entries again"),
    SoftFact("delta_replica", "used_at", "calls move it by soft changes, in steps of an hour"),
)
_SOFT = {(one.table, one.column) for one in SOFT}
_OWNERS = {table.name: row.name for row in SURFACES for table in row.tables}


def is_named(url: str, flip: Flip, table: AnyTable, database: Database) -> bool:
    """Whether a check of the surface finds a fault while the bit is flipped."""
    flip.plant(database)
    try:
        check = StoreCheck(url, [_OWNERS.get(table.name, "store")])
        return next(iter(check.row_faults()), None) is not None
    finally:
        flip.mend(database)


def missed_of(url: str, table: AnyTable, database: Database, rows: int) -> set[tuple[str, str]]:
    """The columns of a table in which a flip was not named."""
    flips = list(flips_of(database, table, rows))
    assert {flip.column for flip in flips} == {column.name for column in table.columns}, "a table has no rows"
    tried = [flip for number, flip in enumerate(flips) if is_due(number)]
    return {(table.name, flip.column) for flip in tried if not is_named(url, flip, table, database)}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_flipped_bit_is_named_on_sqlite(table: AnyTable, full: Path, tmp_path: Path) -> None:
    folder = copied(full, tmp_path / "data")
    url = f"sqlite:{folder}"
    with sqlite_database(folder) as database:
        missed = missed_of(url, table, database, rows=4)
        assert missed <= _SOFT, missed
    assert lines_of(faults_of(url)) == ""


def test_a_flipped_bit_is_named_on_postgres(full: Path) -> None:
    url = fresh_url()
    clone(f"sqlite:{full}", url)
    missed: set[tuple[str, str]] = set()
    with postgres_database(url) as database:
        for table in TABLES:
            missed |= missed_of(url, table, database, rows=1)
    assert missed <= _SOFT, missed
    assert lines_of(faults_of(url)) == ""


def test_every_soft_fact_is_one(full: Path, tmp_path: Path) -> None:
    folder = copied(full, tmp_path / "data")
    found: set[tuple[str, str]] = set()
    with sqlite_database(folder) as database:
        for table in TABLES:
            for flip in flips_of(database, table, rows=40):
                place = (table.name, flip.column)
                if place in _SOFT - found and not is_named(f"sqlite:{folder}", flip, table, database):
                    found.add(place)
    assert found == _SOFT
