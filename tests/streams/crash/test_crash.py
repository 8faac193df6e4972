"""A short crash run in every test run; `make crash` does a hundred kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.crash.run import CrashPlan, check_lives
from tests.streams.crash.run import StreamsUnderKills

KILLS = {"sqlite": 8, "postgres": 4}
"""Half of the points on SQLite; the others are those of joins, whose run begins with another one."""


@pytest.mark.parametrize("store", KILLS)
def test_nothing_is_lost_doubled_or_answered_otherwise(tmp_path: Path, store: str) -> None:
    check_lives(StreamsUnderKills, CrashPlan(tmp_path, KILLS[store], store, seed=6))
