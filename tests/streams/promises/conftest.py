"""Promises of streams are tested on SQLite; those marked `each_store` on PostgreSQL behind two nodes too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores import each
from tests.streams import wire


def pytest_configure(config: pytest.Config) -> None:
    each.add_markers(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    each.choose(metafunc, ["store_kind"])


@pytest.fixture(scope="module", autouse=True)
def store_kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `serving` puts under its servers."""
    kind: str = request.param
    wire.store_kind = kind
    yield kind
    wire.store_kind = "sqlite"


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[wire.Streams]:
    """A server with usual settings; a module with others has a fixture of its own."""
    with wire.serving(tmp_path_factory.mktemp("streams") / "data") as served:
        yield served
