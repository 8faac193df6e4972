"""What runs where: `ledger` is a client of a server that all tests share; tests keep to organizations of their own.

It is on SQLite and takes HTTP. Tests that are marked `each_store` run on PostgreSQL behind two nodes too, whose clients
take the nodes in turn, and over both wires; those that are marked `each_wire` over both wires.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.harness.together import at_once
from tests.ledger.rig import Ledger, Site, SiteOf, serving
from tests.ledger.words import Place
from tests.stores import each

UNSWEPT_MS = 3_600_000
"""Longer than any run: no block of the server's own comes between those of a test."""


def pytest_configure(config: pytest.Config) -> None:
    each.add_markers(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    each.choose(metafunc, ["site", "aged", "swept"], ["ledger", "keeper", "old_of"])


@pytest.fixture(scope="package")
def site_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteOf]:
    """A site for each store, started when it is first asked for."""
    started: dict[str, tuple[Site, AbstractContextManager[Site]]] = {}
    folder = tmp_path_factory.mktemp("ledger")

    def start(store: str) -> Site:
        if store not in started:
            begun = serving(folder / store, store, SWEEP_INTERVAL_MS=UNSWEPT_MS)
            started[store] = (begun.__enter__(), begun)
        return started[store][0]

    yield start
    at_once([partial(begun.__exit__, None, None, None) for _, begun in started.values()])


@pytest.fixture(scope="package")
def site(request: pytest.FixtureRequest, site_of: SiteOf) -> Site:
    """The shared site of a store."""
    return site_of(request.param)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, site: Site) -> Ledger:
    """The store and the wire that the test runs on."""
    return site.ledger(request.param)


@pytest.fixture
def place(ledger: Ledger) -> Place:
    """A vault in an organization of the test's own."""
    return ledger.new_place()
