"""Places for data, one kind of store after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conformance import KINDS, PERSISTENT_KINDS, Pair, PersistentPlace, Place, SqlitePlace, made_pair


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh place of each kind."""
    made = KINDS[request.param](tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def exclusive(tmp_path: Path) -> Iterator[PersistentPlace]:
    """A fresh place that only one process may use."""
    made = SqlitePlace(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture(params=list(PERSISTENT_KINDS))
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PersistentPlace]:
    """A fresh place of each kind that persists."""
    made = PERSISTENT_KINDS[request.param](tmp_path / "data")
    yield made
    made.close()


@pytest.fixture(params=["sqlite to sqlite", "sqlite to postgres", "postgres to sqlite", "postgres to postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Fresh places of each two kinds."""
    made = made_pair(tmp_path, request.param)
    yield made
    made.source.close()
    made.target.close()
