"""A short crash run in every test run; `make crash` does a hundred kills."""

from __future__ import annotations

from pathlib import Path

from tests.crash.harness import CrashRun

KILLS = 14  # each named point once, and as many kills from outside


def test_nothing_is_lost_doubled_or_answered_otherwise(tmp_path: Path) -> None:
    verdict = CrashRun(tmp_path, KILLS, seed=7).run()
    assert verdict.is_clean, str(verdict)
    assert verdict.retried > 0, "no append was ever interrupted: the run has shown nothing"
