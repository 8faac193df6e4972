"""A short run of forks under kills in every test run; `make crash SURFACE=forks` does a hundred kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.crash.run import CrashPlan, check_lives
from tests.streams.forks.run import ForksUnderKills

KILLS = {"sqlite": 6, "postgres": 4}


@pytest.mark.parametrize("store", KILLS)
def test_no_content_is_lost_and_no_row_is_left_over(tmp_path: Path, store: str) -> None:
    check_lives(ForksUnderKills, CrashPlan(tmp_path, KILLS[store], store, seed=5))
