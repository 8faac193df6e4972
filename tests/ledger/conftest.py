"""What runs where: `ledger` is a client of a server that all tests share, on every store and over both wires in turn.

The stores are memory, SQLite, and PostgreSQL behind two nodes, whose clients take the nodes in turn. Tests keep to
organizations of their own. What no store can matter for asks for `anywhere`: both wires, in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.harness.together import at_once
from tests.ledger.rig import Ledger, Site, SiteOf, serving
from tests.ledger.words import STORES, WIRES, Place

UNSWEPT_MS = 3_600_000
"""Longer than any run: no block of the server's own comes between those of a test."""


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


@pytest.fixture(scope="package", params=STORES)
def site(request: pytest.FixtureRequest, site_of: SiteOf) -> Site:
    """The shared site of each store."""
    return site_of(request.param)


@pytest.fixture(params=WIRES)
def ledger(request: pytest.FixtureRequest, site: Site) -> Ledger:
    """Every store, both wires."""
    return site.ledger(request.param)


@pytest.fixture(params=WIRES)
def anywhere(request: pytest.FixtureRequest, site_of: SiteOf) -> Ledger:
    """Both wires, in memory."""
    return site_of("memory").ledger(request.param)


@pytest.fixture
def place(ledger: Ledger) -> Place:
    """A vault in an organization of the test's own."""
    return ledger.new_place()


@pytest.fixture
def somewhere(anywhere: Ledger) -> Place:
    """The same, in memory."""
    return anywhere.new_place()
