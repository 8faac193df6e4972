"""The schema of a database: version, generations and marks beside the declared tables, and its migration.

Migrations run in one transaction under a lock, so that any number of nodes may start at once: one migrates, the others
wait and find the work done. A node with nothing to migrate writes nothing and needs no right to create tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from semel.store.migrations import FillColumn, Migration, pending
from semel.store.postgres import commit_fate
from semel.store.postgres.locks import LockKind, space
from semel.store.postgres.statements import DIALECT
from semel.store.sql_dialect import generational_tables, quoted

_BASE = (
    "CREATE TABLE semel_schema (version int8 NOT NULL)",
    "INSERT INTO semel_schema VALUES (0)",
    "CREATE TABLE semel_generation (name bytea PRIMARY KEY, number int8 NOT NULL)",
    commit_fate.TABLE,
)

FILLED_AT_ONCE = 2_000
"""The number of rows whose new column is filled by one statement."""


def version_of(connection: psycopg.Connection, schema: str) -> int | None:
    """The schema version of the data; None if there is no data."""
    # Query the catalogue and not to_regclass, whose cache is not refreshed by waiting for a lock.
    asked = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s"
    if connection.execute(asked, (schema, "semel_schema")).fetchone() is None:
        return None
    version = connection.execute("SELECT version FROM semel_schema").fetchone()
    return 0 if version is None else int(version[0])


def bring_up_to_date(connection: psycopg.Connection, schema: str, migrations: Sequence[Migration]) -> None:
    """Apply the missing migrations."""
    version = version_of(connection, schema)
    if version is not None and not pending(migrations, version):
        return
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        # A migration has no time limit, nor has the wait for the migration of another node.
        connection.execute("SET LOCAL lock_timeout = 0")
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (space(schema, LockKind.MIGRATION),))
        version = version_of(connection, schema)
        if version is None:
            _begin(connection, schema)
        missing = pending(migrations, version or 0)
        generational = generational_tables(migrations)
        for migration in missing:
            for step in migration.steps:
                if isinstance(step, FillColumn):
                    _fill(connection, step)
                    continue
                for statement in DIALECT.migrate(step, generational):
                    connection.execute(statement)
        connection.execute("UPDATE semel_schema SET version = %s", (len(migrations),))


def _fill(connection: psycopg.Connection, step: FillColumn) -> None:
    """Fill a column, some thousand rows at a time, in the order of their keys."""
    names = [column.name for column in step.key]
    keys, place = quoted(names), names.index(step.source)
    select = f'SELECT {keys} FROM "{step.table}" WHERE {DIALECT.condition(step.below)}'
    arrays = ", ".join(f"%s::{DIALECT.types[column.kind]}[]" for column in step.key)
    match = " AND ".join(f't."{name}" = given."{name}"' for name in names)
    update = (
        f'UPDATE "{step.table}" t SET "{step.column}" = given.derived '
        f"FROM unnest({arrays}, %s::bytea[]) AS given({keys}, derived) WHERE {match}"
    )
    last: tuple[Any, ...] = ()
    while True:
        behind = f" AND ({keys}) > ({', '.join(['%s'] * len(last))})" if last else ""
        rows = connection.execute(f"{select}{behind} ORDER BY {keys} LIMIT {FILLED_AT_ONCE}", last).fetchall()
        if not rows:
            return
        derived = [step.derive(row[place]) for row in rows]
        connection.execute(update, [*map(list, zip(*rows, strict=True)), derived])
        last = rows[-1]


def _begin(connection: psycopg.Connection, schema: str) -> None:
    exists = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    if exists is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    for statement in _BASE:
        connection.execute(statement)
