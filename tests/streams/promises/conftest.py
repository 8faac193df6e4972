"""Every test of the surface runs on every store: in memory, on SQLite, and on PostgreSQL behind two nodes.

Those whose requests end before any store is asked run on one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streams import wire


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lasting: needs data that outlives the process, which memory does not")
    config.addinivalue_line("markers", "early: is over before a store is asked, so that one store will do")


@pytest.fixture(scope="module", autouse=True, params=["memory", "sqlite", "postgres"])
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `serving` puts under its servers."""
    kind: str = request.param
    wire.store_kind = kind
    yield kind
    wire.store_kind = "sqlite"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nothing outlives a process that keeps its data in memory; and what no store is asked for differs on none."""
    left_out = {
        item
        for item in items
        if (item.get_closest_marker("lasting") and "[memory" in item.name)
        or (item.get_closest_marker("early") and "[sqlite" not in item.name)
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
