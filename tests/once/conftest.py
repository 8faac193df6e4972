"""A house for each driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.harness.postgres.shared import shared_cluster
from tests.once.houses import House, PostgresHouse, SqliteHouse
from tests.once.houses_django import DjangoPostgres, DjangoSqlite
from tests.once.houses_postgres import (
    AlchemyConnection,
    AlchemySession,
    AsyncAlchemyConnection,
    AsyncAlchemySession,
    Asyncpg,
    AsyncPsycopg,
    Psycopg,
)
from tests.once.houses_sqlite import (
    Apsw,
    AsyncSqliteAlchemySession,
    Sqlite3,
    SqliteAlchemyConnection,
    SqliteAlchemySession,
)

POSTGRES: dict[str, type[PostgresHouse]] = {
    "psycopg": Psycopg,
    "psycopg-async": AsyncPsycopg,
    "asyncpg": Asyncpg,
    "sqlalchemy-connection": AlchemyConnection,
    "sqlalchemy-session": AlchemySession,
    "sqlalchemy-async-connection": AsyncAlchemyConnection,
    "sqlalchemy-async-session": AsyncAlchemySession,
    "django": DjangoPostgres,
}
SQLITE: dict[str, type[SqliteHouse]] = {
    "sqlite3": Sqlite3,
    "apsw": Apsw,
    "sqlite-sqlalchemy-connection": SqliteAlchemyConnection,
    "sqlite-sqlalchemy-session": SqliteAlchemySession,
    "sqlite-sqlalchemy-async-session": AsyncSqliteAlchemySession,
    "sqlite-django": DjangoSqlite,
}
_numbers = itertools.count(1)


def fresh_schema() -> str:
    """The URL of a schema that no other test has used."""
    schema = f"once_{next(_numbers)}"
    url = shared_cluster().url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{url}?options=-c%20search_path%3D{schema}"


def _built(name: str, folder: Path) -> House:
    if name in SQLITE:
        house = SQLITE[name](str(folder / "app.db"))
        house.build()
        return house
    place = POSTGRES[name](fresh_schema())
    place.build()
    return place


@pytest.fixture(params=[*POSTGRES, *SQLITE])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """Each driver in turn, on an empty database."""
    return _built(request.param, tmp_path)


@pytest.fixture(params=[*POSTGRES])
def postgres_house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """Each driver of PostgreSQL."""
    return _built(request.param, tmp_path)


Built = Callable[[str], House]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    """A house by the name of its driver."""
    return lambda name: _built(name, tmp_path)
