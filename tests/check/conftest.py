"""The filled store of these tests: filled once by a server in each test process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.check.filled import ENV, fill
from tests.harness.server import RunningServer

SETTLE_SECONDS = 2.5
"""The sweeper trims and frees within this time."""


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that a server has filled."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    with RunningServer(folder, env=ENV) as server:
        fill(server)
        time.sleep(SETTLE_SECONDS)
    return folder
