"""`kill -9` of servers while groups and children end: every join, and every waiting parent, runs exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.crash.run import CrashPlan, check_lives
from tests.jobs.crash.joins import JoinsUnderKills

KILLS = {"sqlite": 8, "postgres": 4}
"""On SQLite the later half of the points."""


@pytest.mark.parametrize("store", KILLS)
@pytest.mark.timeout(300)
def test_every_join_and_every_parent_that_waits_runs_once(tmp_path: Path, store: str) -> None:
    check_lives(JoinsUnderKills, CrashPlan(tmp_path, KILLS[store], store, seed=3))
