"""The databases of stores as damage needs them: opened without the store, while no server runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg

from semel.server.store_check import StoreCheck
from semel.store.postgres.address import parse
from semel.store.postgres.connection import connect
from semel.store.table_check import StoreFault

FILE = "semel.db"


class SqliteDatabase:
    """The file of a data folder."""

    def __init__(self, folder: Path) -> None:
        self.connection = apsw.Connection(str(folder / FILE))

    def run(self, sql: str, *values: Any) -> None:
        """Execute a statement."""
        self.connection.execute(sql, values)

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return [tuple(row) for row in self.connection.execute(sql, values)]


class PostgresDatabase:
    """The schema of a store."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    def run(self, sql: str, *values: Any) -> None:
        """Execute a statement."""
        self.connection.execute(_translated(sql), values or None)

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return list(self.connection.execute(_translated(sql), values or None))


def _translated(sql: str) -> bytes:
    sql = re.sub(r"x'([0-9a-f]*)'", r"'\\x\1'::bytea", sql)
    return sql.replace("?", "%s").encode()


def copied(source: Path, target: Path) -> Path:
    """A copy of a data folder."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("logs"))
    return target


@contextmanager
def sqlite_database(folder: Path) -> Iterator[SqliteDatabase]:
    """The database of a folder; its log is written into the file at the end."""
    database = SqliteDatabase(folder)
    try:
        yield database
    finally:
        database.connection.close()


@contextmanager
def postgres_database(url: str) -> Iterator[PostgresDatabase]:
    """The database of a URL."""
    wire = connect(parse(url))
    try:
        yield PostgresDatabase(wire.connection)
    finally:
        wire.close()


def faults_of(url: str) -> list[StoreFault]:
    """All faults of a store."""
    return list(StoreCheck(url).faults())


def lines_of(faults: list[StoreFault]) -> str:
    """The faults as they are compared and shown."""
    return "\n".join(f"{one.surface}/{one.table} [{one.where}]: {one.what}" for one in faults)
