"""What runs where: `events` is a server with usual settings that all tests share, on every store in turn.

The stores are memory, SQLite, and PostgreSQL behind two nodes, whose clients take the nodes in turn. A module with
settings of its own asks for `store_kind` to run on every store, or names one store if the store cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.events import wire
from tests.events.wire import Events, serving

STORES = ["memory", "sqlite", "postgres"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lasting: needs data that outlives the process, which memory does not")


@pytest.fixture(scope="module", params=STORES)
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `serving` puts under its servers, unless a test names a store itself."""
    kind: str = request.param
    wire.store_kind = kind
    yield kind
    wire.store_kind = "sqlite"


@pytest.fixture(scope="package", params=STORES)
def shared_events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    """One server, or two nodes, for all tests that need no setting."""
    with serving(tmp_path_factory.mktemp("events") / "data", store=request.param) as served:
        yield served


@pytest.fixture
def events(shared_events: Events) -> Iterator[Events]:
    """The shared server; every WebSocket of the test is closed after it."""
    yield shared_events
    shared_events.close_peers()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nothing outlives a process that keeps its data in memory: there is no such test to run."""
    impossible = [item for item in items if item.get_closest_marker("lasting") and "[memory" in item.name]
    items[:] = [item for item in items if item not in impossible]
    config.hook.pytest_deselected(items=impossible)
