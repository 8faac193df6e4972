"""Which stores a test of a promise runs on, and the ledger's over which wires.

A promise is tested on SQLite, and over HTTP: that the other stores give the same answers says `test_equal`. A test that
restarts, kills or races, or depends on what a store itself does, is marked `each_store`: it runs on PostgreSQL with two
nodes too, whose clients take the nodes in turn, and over both wires. One that is about a wire is marked `each_wire`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import pytest

STORES = ("sqlite", "postgres")
WIRES = ("http", "grpc")


def add_markers(config: pytest.Config) -> None:
    """Make the marks known."""
    config.addinivalue_line("markers", "each_store: restarts, kills or races, so that it runs on every lasting store")
    config.addinivalue_line("markers", "each_wire: is about the wire, so that it runs over HTTP and over gRPC")


def choose(metafunc: pytest.Metafunc, stores: Collection[str], wires: Collection[str] = ()) -> None:
    """Parametrize those of these fixtures that a test asks for; `stores` take the name of one, `wires` of the other.

    Fixtures of stores that a test has besides one another are given the same one.
    """
    is_marked = metafunc.definition.get_closest_marker
    each_store, each_wire = is_marked("each_store"), is_marked("each_store") or is_marked("each_wire")
    asked = {
        name: kind
        for kind, names in (("store", stores), ("wire", wires))
        for name in names
        if name in metafunc.fixturenames
    }
    if not asked:
        return
    some_stores = STORES if each_store else STORES[:1]
    some_wires = WIRES if each_wire else WIRES[:1]
    kinds = sorted(set(asked.values()))
    cases = [
        dict(zip(kinds, case, strict=True))
        for case in product(*[some_stores if kind == "store" else some_wires for kind in kinds])
    ]
    metafunc.parametrize(
        list(asked),
        [[case[kind] for kind in asked.values()] for case in cases],
        indirect=True,
        ids=["-".join(case.values()) for case in cases],
    )
