"""`semel check` names every kind of damage, and finds nothing in a store that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backup.clone import clone
from tests.check.damages import DAMAGES, Damage
from tests.check.stores import copied, faults_of, lines_of, postgres_database, sqlite_database
from tests.harness.postgres.shared import fresh_url


@pytest.fixture(scope="module")
def in_postgres(filled: Path) -> str:
    """The same rows in PostgreSQL."""
    url = fresh_url()
    clone(f"sqlite:{filled}", url)
    return url


def test_a_filled_store_is_clean(filled: Path, in_postgres: str) -> None:
    assert faults_of(f"sqlite:{filled}") == []
    assert faults_of(in_postgres) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.name)
def test_damage_is_named_on_sqlite(damage: Damage, filled: Path, tmp_path: Path) -> None:
    folder = copied(filled, tmp_path / "damaged")
    with sqlite_database(folder) as database:
        damage.plant(database)
    said = lines_of(faults_of(f"sqlite:{folder}"))
    assert damage.words in said, said


def test_damage_is_named_on_postgres(in_postgres: str) -> None:
    missed = []
    with postgres_database(in_postgres) as database:
        for damage in DAMAGES:
            tables = damage.tables.split()
            for table in tables:
                database.run(f"CREATE TABLE kept_{table} AS TABLE {table}")
            damage.plant(database)
            said = lines_of(faults_of(in_postgres))
            if damage.words not in said:
                missed.append(f"{damage.name}: {said}")
            for table in tables:
                database.run(f"TRUNCATE {table}")
                database.run(f"INSERT INTO {table} TABLE kept_{table}")
                database.run(f"DROP TABLE kept_{table}")
    assert missed == []
    assert faults_of(in_postgres) == []
