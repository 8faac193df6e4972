"""A server for all tests of the events client, and retries without long pauses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from semel.client import retry
from tests.client.events.both import KINDS
from tests.harness.server import RunningServer


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An open server that takes small messages."""
    env = {"SEMEL_EVENTS_MESSAGE_BYTES": "65536"}
    with RunningServer(tmp_path_factory.mktemp("events-client") / "data", env=env) as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which client."""
    return str(request.param)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(retry, "LONGEST_SECONDS", 0.01)
