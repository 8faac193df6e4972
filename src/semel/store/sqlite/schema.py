"""The schema of a file: its version and the generations in use, beside the declared tables, and its migration."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from semel.store.migrations import Migration, last_version, pending
from semel.store.protocol import StoreError
from semel.store.sql_dialect import MOVED, generational_tables
from semel.store.sqlite.moved_keys import CREATE_MOVED
from semel.store.sqlite.statements import DIALECT

OLDEST_LIBRARY = (3, 51, 3)
"""Older versions can lose committed pages if the log is reset while another connection checkpoints."""


_BASE = (
    "CREATE TABLE IF NOT EXISTS semel_schema (version INTEGER NOT NULL) STRICT",
    (
        "CREATE TABLE IF NOT EXISTS semel_generation (name BLOB PRIMARY KEY, number INTEGER NOT NULL) "
        "STRICT, WITHOUT ROWID"
    ),
    CREATE_MOVED,
)


def check_library(version: str) -> None:
    """Refuse a SQLite version that has this log-reset bug."""
    numbers = tuple(int(part) for part in version.split("."))
    if numbers < OLDEST_LIBRARY:
        wanted = ".".join(map(str, OLDEST_LIBRARY))
        raise StoreError(f"SQLite {version} can lose committed data; version {wanted} or newer is needed: update apsw.")


def bring_up_to_date(connection: apsw.Connection, migrations: Sequence[Migration], path: str) -> None:
    """Apply the missing migrations, all in one transaction."""
    missing = pending(migrations, version_of(connection), path)
    for statement in _BASE:
        connection.execute(statement)
    if not missing:
        return
    generational = generational_tables(migrations)
    with connection:
        for migration in missing:
            for step in migration.steps:
                for statement in DIALECT.migrate(step, generational):
                    connection.execute(statement)
        connection.execute("DELETE FROM semel_schema")
        connection.execute("INSERT INTO semel_schema VALUES (?)", (last_version(migrations),))


def version_of(connection: apsw.Connection) -> int:
    """The schema version of the data; 0 if there is none."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'semel_schema'").fetchone() is None:
        return 0
    found = connection.execute("SELECT version FROM semel_schema").fetchone()
    return 0 if found is None else int(found[0])


def is_moved(connection: apsw.Connection) -> bool:
    """Whether the data was moved to another store."""
    made = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'semel_generation'").fetchone()
    return made is not None and MOVED in current_generations(connection)


def current_generations(connection: apsw.Connection) -> dict[str, int]:
    """The generation of each table that takes new rows; a table that is absent uses the first."""
    return {name.decode(): number for name, number in connection.execute("SELECT * FROM semel_generation")}
