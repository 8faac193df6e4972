"""A short run of forks under kills in every test run; `make crash SURFACE=forks` does a hundred kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.postgres.shared import fresh_url
from tests.streams.forks.run import ForksRun

KILLS = 14


@pytest.mark.parametrize("store", ["one server on SQLite", "two nodes on PostgreSQL"])
def test_no_content_is_lost_and_no_row_is_left_over(tmp_path: Path, store: str) -> None:
    verdict = ForksRun(tmp_path, KILLS, seed=5, store=fresh_url() if "PostgreSQL" in store else "").run()
    assert verdict.is_clean, str(verdict)
    assert verdict.retried > 0, "no request was ever interrupted: the run has shown nothing"
