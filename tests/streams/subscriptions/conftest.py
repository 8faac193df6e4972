"""A server for the tests of this folder, with short attempts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.server import RunningServer
from tests.streams.subscriptions.receiver import Control, Receiver


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_STREAMS_WEBHOOK_MS": "500"}
    with RunningServer(tmp_path_factory.mktemp("subscriptions") / "data", env=env) as running:
        yield running


@pytest.fixture
def control(server: RunningServer) -> Iterator[Control]:
    with Control(server.url) as calls:
        yield calls


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running
