"""A range in the order of an index is read through that index, in every table of the schema.

SQLite has no statistics here: left to itself, it may prefer an index that has the order and not the columns that are
fixed, and then reads all rows of a queue or a vault to find one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semel.store.protocol import AnyTable, Range
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Above, ColumnKind, Key
from semel.surfaces.schema import MIGRATIONS, TABLES

INDEXES = [(table, index) for table in TABLES for index in table.indexes]


def ranges(table: AnyTable, index: str) -> list[Range]:
    """Ranges with each number of fixed columns; those of a partial index are inside of it."""
    part, order = table.partial.get(index), table.ordering(index)
    values: list[Any] = [b"a" if table.columns[table.position(name)].kind is ColumnKind.BYTES else 0 for name in order]
    found = []
    for depth in range(len(table.indexes[index]) + 1):
        prefix, stop = tuple(values[:depth]), tuple(values[depth : depth + 1])
        start: Key = ()
        if part is not None and depth < len(order) and order[depth] == part.column:
            start, stop = ((part.bound + 1,), (part.bound + 9,)) if isinstance(part, Above) else ((), (part.bound,))
        for some in ((), stop):
            wanted = Range(table, index, prefix, 3, start=start, stop=some)
            if part is None or wanted.part is not None:
                found += [wanted, wanted._replace(reverse=True)]
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("plans")
    opened = SqliteFileStore(folder, TABLES, MIGRATIONS, lambda: 0)
    yield opened
    opened.close()


@pytest.mark.parametrize(("table", "index"), INDEXES, ids=[f"{table.name}-{index}" for table, index in INDEXES])
def test_a_range_is_read_through_its_index(store: SqliteFileStore, table: AnyTable, index: str) -> None:
    wanted = ranges(table, index)
    assert wanted
    for one in wanted:
        for made in store._statements[table]:
            for keys_only in (False, True):
                sql, values = made.scan(one, keys_only=keys_only)
                plan = [row[3] for row in store._writer.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
                assert f"INDEX {made.name}_{index}" in plan[0], (one, plan)
