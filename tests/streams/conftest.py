"""Every test of the surface runs on every store: in memory, on SQLite, and on PostgreSQL behind two nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streams import wire


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lasting: needs data that outlives the process, which memory does not")


@pytest.fixture(scope="module", autouse=True, params=["memory", "sqlite", "postgres"])
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `serving` puts under its servers."""
    kind: str = request.param
    wire.store_kind = kind
    yield kind
    wire.store_kind = "sqlite"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nothing outlives a process that keeps its data in memory: there is no such test to run."""
    impossible = [item for item in items if item.get_closest_marker("lasting") and "[memory" in item.name]
    items[:] = [item for item in items if item not in impossible]
    config.hook.pytest_deselected(items=impossible)
