"""The schema of a file: its version and the generations in use, beside the declared tables, and its migration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from semel.store.migrations import FillColumn, Migration, pending
from semel.store.protocol import StoreError
from semel.store.sql_dialect import generational_tables
from semel.store.sqlite.key_runs import CREATE_RUNS
from semel.store.sqlite.statements import DIALECT

OLDEST_LIBRARY = (3, 51, 3)
"""Older versions can lose committed pages if the log is reset while another connection checkpoints."""


def check_library(version: str) -> None:
    """Refuse a SQLite version that has this log-reset bug."""
    numbers = tuple(int(part) for part in version.split("."))
    if numbers < OLDEST_LIBRARY:
        wanted = ".".join(map(str, OLDEST_LIBRARY))
        raise StoreError(f"SQLite {version} can lose committed data; version {wanted} or newer is needed: update apsw.")


def bring_up_to_date(connection: apsw.Connection, migrations: Sequence[Migration]) -> None:
    """Apply the missing migrations, all in one transaction."""
    connection.execute("CREATE TABLE IF NOT EXISTS semel_schema (version INTEGER NOT NULL) STRICT")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS semel_generation (name BLOB PRIMARY KEY, number INTEGER NOT NULL) "
        "STRICT, WITHOUT ROWID"
    )
    connection.execute(CREATE_RUNS)
    found = connection.execute("SELECT version FROM semel_schema").fetchone()
    version = 0 if found is None else found[0]
    missing = pending(migrations, version)
    if not missing:
        return
    generational = generational_tables(migrations)
    with connection:
        for migration in missing:
            for step in migration.steps:
                if isinstance(step, FillColumn):
                    _fill(connection, step)
                    continue
                for statement in DIALECT.migrate(step, generational):
                    connection.execute(statement)
        connection.execute("DELETE FROM semel_schema")
        connection.execute("INSERT INTO semel_schema VALUES (?)", (len(migrations),))


def _fill(connection: apsw.Connection, step: FillColumn) -> None:
    def derive(*values: Any) -> Any:
        return step.derive(*values)

    connection.create_scalar_function("semel_derive", derive, 1, deterministic=True)
    made = f'UPDATE "{step.table}" SET "{step.column}" = semel_derive("{step.source}")'
    connection.execute(f"{made} WHERE {DIALECT.condition(step.below)}")
    connection.create_scalar_function("semel_derive", None, 1)


def current_generations(connection: apsw.Connection) -> dict[str, int]:
    """The generation of each table that takes new rows; a table that is absent uses the first."""
    return {name.decode(): number for name, number in connection.execute("SELECT * FROM semel_generation")}
