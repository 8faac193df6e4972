"""A server for each module of tests, and the command that talks to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Semel
from tests.harness.server import RunningServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    # Pages and live connections are small, so that every test with some content crosses their borders.
    env = {"SEMEL_STREAMS_PAGE_BYTES": "100", "SEMEL_STREAMS_SSE_MAX_MS": "400"}
    with RunningServer(tmp_path_factory.mktemp("cli") / "data", env=env) as running:
        yield running


@pytest.fixture(scope="module")
def semel(server: RunningServer) -> Semel:
    return Semel(server.url)
