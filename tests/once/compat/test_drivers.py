"""Each door with each driver, on each loop, on SQLite, PostgreSQL and SERIALIZABLE."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.guardian import ROOT
from tests.harness.postgres.shared import shared_cluster
from tests.once.compat.places import found_at, postgres_place, sqlite_place
from tests.once.compat.run import play_row
from tests.once.compat.table import ON_POSTGRES, ON_SQLITE, Make, parts_of

PARTED = """
SELECT count(*) FILTER (WHERE charges.xmin::text <> semel_once.xmin::text), count(*)
FROM charges JOIN semel_once USING (key) WHERE true
"""
"""Effects whose receipt was written by another transaction, and all effects."""


@pytest.fixture(scope="module")
def plain() -> str:
    """A database of PostgreSQL."""
    return postgres_place(shared_cluster().url)


@pytest.fixture(scope="module")
def serializable() -> str:
    """One whose transactions are serializable."""
    return postgres_place(shared_cluster().url, "serializable")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of SQLite."""
    return sqlite_place(tmp_path_factory.mktemp("compat"))


def play(make: Make, place: str, name: str) -> None:
    row = make(place)
    try:
        play_row(row, name)
    finally:
        row.close()


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_on_postgresql(plain: str, name: str) -> None:
    play(ON_POSTGRES[name], plain, name)
    if parts_of(name)[0] == "transaction":
        assert found_at(plain, f"{PARTED} AND key LIKE '{name}-%'") == [(0, 4)]


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_on_serializable(serializable: str, name: str) -> None:
    play(ON_POSTGRES[name], serializable, name)


@pytest.mark.parametrize("name", ON_SQLITE)
def test_on_sqlite(file: str, name: str) -> None:
    play(ON_SQLITE[name], file, name)


def test_on_gevent(plain: str, file: str) -> None:
    program = [sys.executable, "-m", "tests.once.compat.in_gevent", plain, file]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
