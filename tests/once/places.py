"""Where the receipts of functions are in tests: memory, a file of SQLite, a real PostgreSQL."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import psycopg

from semel import once
from semel.once import Once
from semel.once.table import TABLE
from tests.once.conftest import fresh_schema

PLACES = ("memory", "sqlite", "postgresql")
_numbers = itertools.count(1)


class Place(NamedTuple):
    """A place that no other test has."""

    url: str
    table: str = TABLE

    def open(self) -> Once:
        """A store there; several of them share what is in it."""
        return Once(self.url, table=self.table)


def fresh_place(kind: str, folder: Path) -> Place:
    """An empty place of one of the kinds."""
    if kind == "postgresql":
        url = fresh_schema()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(once.ddl("postgresql").encode())
        return Place(url)
    if kind == "memory":
        return Place(f"file:once_{next(_numbers)}?mode=memory&cache=shared")
    return Place(str(folder / "receipts.db"))
