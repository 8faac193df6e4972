"""What runs where: `deltas` is a client of a server that all tests share, on every store in turn.

The stores are SQLite, and PostgreSQL behind two nodes, whose clients take the nodes in turn; on memory run the tests of
the rules and of the model. Tests keep to gateways of their own. What no store can matter for asks for `anywhere`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.deltas.wire import LASTING, Deltas, fresh, serving
from tests.harness.together import at_once

DeltasOf = Callable[[str], Deltas]


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


@pytest.fixture(scope="package", params=LASTING)
def shared_deltas(request: pytest.FixtureRequest, deltas_of: DeltasOf) -> Deltas:
    """The shared server of each store."""
    return deltas_of(request.param)


@pytest.fixture
def deltas(shared_deltas: Deltas) -> Deltas:
    """Every store."""
    return shared_deltas


@pytest.fixture
def anywhere(deltas_of: DeltasOf) -> Deltas:
    """SQLite alone."""
    return deltas_of("sqlite")


@pytest.fixture
def gateway() -> str:
    """A gateway of the test's own."""
    return fresh("gw")
