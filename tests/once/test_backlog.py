"""A backlog does not slow an outbox down: each statement visits so many rows at most, however many messages wait.

PostgreSQL counts the rows that a statement has visited, SQLite the steps of its machine: no time is measured. The
statistics of PostgreSQL are those of an empty table, of a table of delivered messages, and those of the backlog.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from semel.once import Outbox
from semel.once.message_table import HURRIED, LOOK_AHEAD, PARKED, MessageStatements, OutboxTime, ddl, leased_of
from semel.once.messages import Delivery, MessageFate, MessageState
from semel.once.table import OnceDialect, ParameterStyle, Statement, rendered
from tests.once.backlog import KINDS, backlog_of, visits_of
from tests.once.conftest import fresh_schema

FEW, MANY, TAKEN = 2_500, 10_000, 4
MONOTONIC_MS = 10_000_000
MOST = {
    "lease": 4 * (TAKEN + LOOK_AHEAD),
    "park": 5 * PARKED,
    "outlook": 4,
    "waiting": HURRIED,
    "hurry": HURRIED,
    "note": 2,
    "done": 6,
    "release": 3,
    "sweep": 1,
}


def statements_of(statements: MessageStatements, size: int) -> dict[str, Statement]:
    """What a dispatcher runs all the time."""
    now = OutboxTime(1_800_000_000_000, MONOTONIC_MS, 1_800_000_000_000)
    row = (size + 2, "k", "POST", "http://x/", "{}", b"", b"", "shop", 1, 0, None, 0, None)
    leased = leased_of(row, "me", 0.0)
    return {
        "outlook": statements.outlook(now),
        "sweep": statements.sweep(1_000, 4, now),
        "note": statements.note(leased, MessageFate(MessageState.QUEUED), Delivery(503), now),
        "done": statements.note(leased, MessageFate(MessageState.DONE), Delivery(200), now),
        "release": statements.release("shop", size + 1, now),
        "waiting": statements.waiting(now),
        "hurry": statements.hurry(range(size, size + HURRIED), now),
        "park": statements.park(now),
        "lease": statements.lease("me", 60_000, TAKEN, now),
    }


@pytest.mark.parametrize("statistics", ["none", "of delivered messages", "of the backlog"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_statement_visits_the_whole_backlog_on_postgresql(kind: str, statistics: str) -> None:
    with psycopg.connect(fresh_schema(), autocommit=True) as database:
        database.execute(ddl("postgresql").encode())
        database.execute("ALTER TABLE semel_outbox SET (autovacuum_enabled = false)")
        old, new = backlog_of(kind, MANY, OnceDialect.POSTGRESQL)
        database.execute(old.encode())
        if statistics == "of delivered messages":
            database.execute("VACUUM ANALYZE semel_outbox")
        database.execute(new.encode())
        if statistics == "of the backlog":
            database.execute("VACUUM ANALYZE semel_outbox")
        cursor = psycopg.ClientCursor(database)
        found = {}
        for name, statement in statements_of(MessageStatements(dialect=OnceDialect.POSTGRESQL), MANY).items():
            sql, parameters = rendered(statement, ParameterStyle.PERCENT, OnceDialect.POSTGRESQL)
            settings, _, last = sql.rpartition("; ")
            with database.transaction(force_rollback=True):
                cursor.execute(f"{settings}; EXPLAIN (ANALYZE, FORMAT JSON) {last}".encode(), parameters)
                while cursor.nextset():
                    pass
                found[name] = visits_of(cursor.fetchall()[0][0][0]["Plan"])
    assert {name: visits for name, visits in found.items() if visits > MOST[name]} == {}


def steps_of(box: Outbox, kind: str, size: int) -> dict[str, int]:
    """What each statement costs SQLite."""
    connection = box.store._connection  # type: ignore[attr-defined]
    for insert in backlog_of(kind, size, OnceDialect.SQLITE, MONOTONIC_MS):
        connection.execute(insert)
    found = {}
    for name, statement in statements_of(MessageStatements(), size).items():
        steps = [0]

        def step(steps: list[int] = steps) -> int:
            steps[0] += 1
            return 0

        sql, parameters = rendered(statement, ParameterStyle.QUESTION, OnceDialect.SQLITE)
        connection.execute("BEGIN")
        connection.set_progress_handler(step, 10)
        connection.execute(sql, parameters).fetchall()
        connection.set_progress_handler(None, 0)
        connection.execute("ROLLBACK")
        found[name] = 10 * steps[0]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_statement_visits_the_whole_backlog_on_sqlite(tmp_path: Path, kind: str) -> None:
    small, large = Outbox(tmp_path / "small.db"), Outbox(tmp_path / "large.db")
    few, many = steps_of(small, kind, FEW), steps_of(large, kind, MANY)
    assert {name: (few[name], many[name]) for name in few if many[name] > 1.1 * few[name] + 100} == {}
    small.close()
    large.close()
