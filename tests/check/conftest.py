"""The filled store of these tests: filled once by a server in each test process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.check import rare_rows
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


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with rows in every table, and values in every column that real use fills."""
    place = tmp_path_factory.mktemp("full")
    folder = place / "data"
    with RunningServer(folder, env=ENV) as server:
        fill(server)
        rare_rows.fill_before_epoch(server)
        time.sleep(SETTLE_SECONDS)
    rare_rows.raise_epoch(folder)
    with RunningServer(folder, env={**rare_rows.ENV, "SEMEL_DELTAS_CHECK_IDS": "false"}) as server:
        rare_rows.fill_legacy(server)
    with RunningServer(folder, env=rare_rows.ENV) as server:
        rare_rows.fill_rest(server)
        time.sleep(SETTLE_SECONDS)
    rare_rows.create_tokens(folder)
    rare_rows.leave_marks(folder)
    return folder
