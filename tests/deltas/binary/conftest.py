"""The servers of these tests: one on SQLite, and two nodes over PostgreSQL; tests keep to gateways of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deltas.wire import Deltas, serving


@pytest.fixture(scope="package")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """A server on SQLite."""
    with serving(tmp_path_factory.mktemp("binary") / "one") as deltas:
        yield deltas


@pytest.fixture(scope="package")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """Two nodes over PostgreSQL."""
    with serving(tmp_path_factory.mktemp("binary") / "two", "postgres") as deltas:
        yield deltas


@pytest.fixture
def deltas(request: pytest.FixtureRequest) -> Deltas:
    """The one that the test runs on."""
    found: Deltas = request.getfixturevalue("one" if request.param == "sqlite" else "two")
    return found
