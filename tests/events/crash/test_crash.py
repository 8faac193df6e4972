"""Case 20: `kill -9` under load. Every acknowledged id is there once, none is reused, and every retry is told the same.

A short run in every test run; `python -m tests.events.crash` kills as often as you like.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.events.model.cast import writing_cast
from tests.events.model.simulation import Plan, Simulation

KILLS, CRASHES = 2, 3


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_acknowledged_is_lost_doubled_or_told_otherwise(tmp_path: Path, store: str) -> None:
    plan = Plan(store, seconds=2.5, kills=KILLS, crashes=CRASHES)
    verdict = Simulation(tmp_path, plan, seed=11, cast=writing_cast).run()
    assert not verdict.faults, "\n".join([str(verdict), *verdict.faults])
    assert verdict.deaths == KILLS + CRASHES
    assert verdict.retries > 0, "no submit was ever interrupted: the run has shown nothing"
