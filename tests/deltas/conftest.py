"""What runs where: `deltas` is a client of a server that all tests share; tests keep to gateways of their own.

It is on SQLite, and for tests that are marked `each_store` on PostgreSQL behind two nodes too, whose clients take the
nodes in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.deltas.wire import Deltas, fresh, serving
from tests.harness.together import at_once
from tests.stores import each

DeltasOf = Callable[[str], Deltas]


def pytest_configure(config: pytest.Config) -> None:
    each.add_markers(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    each.choose(metafunc, ["deltas"])


@pytest.fixture(scope="package")
def deltas_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltasOf]:
    """A client of the shared server on a store, which is started when it is first asked for."""
    started: dict[str, tuple[Deltas, AbstractContextManager[Deltas]]] = {}
    folder = tmp_path_factory.mktemp("deltas")

    def start(store: str) -> Deltas:
        if store not in started:
            begun = serving(folder / store, store)
            started[store] = (begun.__enter__(), begun)
        return started[store][0]

    yield start
    at_once([partial(begun.__exit__, None, None, None) for _, begun in started.values()])


@pytest.fixture(scope="package")
def deltas(request: pytest.FixtureRequest, deltas_of: DeltasOf) -> Deltas:
    """The shared server of the store that the test runs on."""
    return deltas_of(request.param)


@pytest.fixture
def anywhere(deltas_of: DeltasOf) -> Deltas:
    """SQLite alone."""
    return deltas_of("sqlite")


@pytest.fixture
def gateway() -> str:
    """A gateway of the test's own."""
    return fresh("gw")
