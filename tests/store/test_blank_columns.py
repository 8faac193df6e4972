"""Blank columns of a wide table are literals of its INSERT: every row is stored as it was given."""

from __future__ import annotations

import random
from typing import NamedTuple

import apsw

from semel.store.migrations import CreateTable
from semel.store.sqlite.blank_columns import LEAST_BLANK, WIDE_COLUMNS, blank_columns
from semel.store.sqlite.statements import DIALECT, SqliteStatements
from semel.store.table import Table
from semel.surfaces.jobs.tables import JOB, JOB_RECORD, JobRow

ORDINARY = len(JobRow._fields) - 2
"""The last column but for the checksum, which is bound always."""


def stored(connection: apsw.Connection) -> list[JobRow]:
    """Every row, by its key."""
    return [JobRow._make(values) for values in connection.execute(f"{SqliteStatements(JOB, 'job').select} ORDER BY id")]


def filled(number: int, places: set[int]) -> JobRow:
    """A row with values at these places, and nothing elsewhere but in its key."""
    values = [b"" if column.kind.name == "BYTES" else 0 for column in JOB.columns]
    for place in places:
        values[place] = b"v%d" % number if isinstance(values[place], bytes) else number + 1
    return JobRow._make([number.to_bytes(16, "big"), *values[1:]])


def test_every_row_is_stored_as_given_while_fewer_and_fewer_columns_are_blank() -> None:
    chance = random.Random(1)
    connection = apsw.Connection("")
    for sql in DIALECT.migrate(CreateTable(JOB.shape), frozenset()):
        connection.execute(sql)
    made = SqliteStatements(JOB, "job")
    rows: list[JobRow] = []
    texts: set[str] = set()
    for turn in range(60):
        usual = {1, 3, ORDINARY}
        more = chance.choices(range(1, ORDINARY), k=turn // 20) if chance.random() < 0.3 else []
        batch = [filled(len(rows) + one, usual | set(more if one % 3 else ())) for one in range(chance.randrange(1, 9))]
        for sql, values in made.insert(batch):
            texts.add(sql)
            connection.execute(sql, values)
        rows += batch
    assert stored(connection) == rows
    assert any(sql.count("x''") + sql.count(" 0") > LEAST_BLANK for sql in texts)


def test_a_row_without_blank_columns_ends_the_literals_for_good() -> None:
    made = SqliteStatements(JOB, "job")
    [(text, values)] = made.insert([filled(1, {ORDINARY})])
    assert len(values) == 3 < text.count(",")
    for number in (2, 3):
        [(text, values)] = made.insert([filled(number, set(range(1, ORDINARY + 1)) if number == 2 else {1})])
        assert "x''" not in text
        assert len(values) == len(JobRow._fields)


def test_rows_of_many_bytes_are_sent_in_small_statements_also_without_their_blank_columns() -> None:
    made = SqliteStatements(JOB, "job")
    large = [filled(number, {ORDINARY})._replace(params=b"x" * 100_000) for number in range(8)]
    assert [len(values) for _, values in made.insert(large)] == [2 * 4] * 4


class NarrowRow(NamedTuple):
    """A row of few columns."""

    id: bytes
    value: int


def test_a_narrow_table_has_no_blank_columns() -> None:
    assert blank_columns(Table("narrow", NarrowRow, key=1)) is None
    assert blank_columns(JOB_RECORD) is None
    assert len(JOB.columns) >= WIDE_COLUMNS
