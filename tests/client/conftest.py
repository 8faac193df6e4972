"""Servers for all tests of the SDK: an open one; one with a token, signed results and a short queue; one for JWTs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.names import DELTAS_SECRET, HMAC_KEY, TOKEN
from tests.harness.server import RunningServer

QUICK = {
    "SEMEL_JOBS_RETRY_BACKOFF_BASE_MS": "10",
    "SEMEL_JOBS_RETRY_BACKOFF_CAP_MS": "20",
    "SEMEL_JOBS_MAX_INFLIGHT": "0",
}
STRICT = {
    "SEMEL_TOKEN_ACTIVE": TOKEN,
    "SEMEL_JOBS_RESULT_INTEGRITY_MODE": "hmac",
    "SEMEL_JOBS_RESULT_HMAC_KEY": HMAC_KEY,
    "SEMEL_JOBS_MAX_QUEUE_DEPTH": "2",
}


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Retries come at once here."""
    with RunningServer(tmp_path_factory.mktemp("client") / "data", env=QUICK) as running:
        yield running


@pytest.fixture(scope="package")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Two jobs fit into its queue."""
    with RunningServer(tmp_path_factory.mktemp("strict") / "data", env=QUICK | STRICT) as running:
        yield running


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Wants tokens of those who sync."""
    env = {"SEMEL_DELTAS_JWT_SECRET": DELTAS_SECRET}
    with RunningServer(tmp_path_factory.mktemp("guarded") / "data", env=env) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the developer's own shell must not reach the client under test."""
    for name in ("SEMEL_URL", "SEMEL_TOKEN", "SEMEL_JOBS_RESULT_HMAC_KEY"):
        monkeypatch.delenv(name, raising=False)
