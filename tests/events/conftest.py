"""What runs where: `events` is a server with usual settings that all tests share.

It is on SQLite, and for tests that are marked `each_store` on PostgreSQL behind two nodes too, whose clients take the
nodes in turn. A module with settings of its own asks for `store_kind`, or names one store if the store cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.events import wire
from tests.events.wire import Events, serving
from tests.stores import each


def pytest_configure(config: pytest.Config) -> None:
    each.add_markers(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    each.choose(metafunc, ["shared_events", "store_kind"])


@pytest.fixture(scope="module")
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `serving` puts under its servers, unless a test names a store itself."""
    kind: str = request.param
    wire.store_kind = kind
    yield kind
    wire.store_kind = "sqlite"


@pytest.fixture(scope="package")
def shared_events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    """One server, or two nodes, for all tests that need no setting."""
    with serving(tmp_path_factory.mktemp("events") / "data", store=request.param) as served:
        yield served


@pytest.fixture
def events(shared_events: Events) -> Iterator[Events]:
    """The shared server; every WebSocket of the test is closed after it."""
    yield shared_events
    shared_events.close_peers()
