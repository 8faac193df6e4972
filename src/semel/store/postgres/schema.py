"""The schema of a database: version, generations and marks beside the declared tables, and its migration.

Migrations run in one transaction under a lock, so that any number of nodes may start at once: one migrates, the others
wait and find the work done. A node with nothing to migrate writes nothing and needs no right to create tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from semel.store.migrations import Migration, last_version, pending
from semel.store.postgres import commit_fate
from semel.store.postgres.locks import LockKind, space
from semel.store.postgres.statements import DIALECT
from semel.store.sql_dialect import MOVED, generational_tables

_BASE = (
    "CREATE TABLE semel_schema (version int8 NOT NULL)",
    "INSERT INTO semel_schema VALUES (0)",
    "CREATE TABLE semel_generation (name bytea PRIMARY KEY, number int8 NOT NULL)",
    commit_fate.TABLE,
)


def version_of(connection: psycopg.Connection, schema: str) -> int | None:
    """The schema version of the data; None if there is no data."""
    # Query the catalogue and not to_regclass, whose cache is not refreshed by waiting for a lock.
    asked = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s"
    if connection.execute(asked, (schema, "semel_schema")).fetchone() is None:
        return None
    version = connection.execute("SELECT version FROM semel_schema").fetchone()
    return 0 if version is None else int(version[0])


def is_moved(connection: psycopg.Connection) -> bool:
    """Whether the data was moved to another store."""
    asked = "SELECT 1 FROM semel_generation WHERE name = %s"
    return connection.execute(asked, (MOVED.encode(),)).fetchone() is not None


def bring_up_to_date(connection: psycopg.Connection, schema: str, migrations: Sequence[Migration]) -> None:
    """Apply the missing migrations."""
    version = version_of(connection, schema)
    if version is not None and not pending(migrations, version, f"The schema {schema}"):
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
        missing = pending(migrations, version or 0, f"The schema {schema}")
        generational = generational_tables(migrations)
        for migration in missing:
            for step in migration.steps:
                for statement in DIALECT.migrate(step, generational):
                    connection.execute(statement)
        connection.execute("UPDATE semel_schema SET version = %s", (last_version(migrations),))


def _begin(connection: psycopg.Connection, schema: str) -> None:
    exists = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    if exists is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    for statement in _BASE:
        connection.execute(statement)
