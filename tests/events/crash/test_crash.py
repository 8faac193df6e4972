"""Case 20: `kill -9` under load. Every acknowledged id is there once, none is reused, and every retry is told the same.

A short run in every test run; `make crash SURFACE=events` kills as often as you like.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.events.crash.run import EventsUnderKills
from tests.harness.crash.run import CrashPlan, check_lives


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_acknowledged_is_lost_doubled_or_told_otherwise(tmp_path: Path, store: str) -> None:
    check_lives(EventsUnderKills, CrashPlan(tmp_path, 4, store, seed=11))
