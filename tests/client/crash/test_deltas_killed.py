"""A replica whose process is killed again and again: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from pathlib import Path

from tests.client.crash.run import ReplicaUnderKills
from tests.harness.crash.run import CrashPlan, check_lives


def test_nothing_is_lost_and_nothing_happens_twice(tmp_path: Path) -> None:
    check_lives(ReplicaUnderKills, CrashPlan(tmp_path, kills=5, seed=7))
