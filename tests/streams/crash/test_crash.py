"""A short crash run in every test run; `make crash` does a hundred kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.postgres.shared import fresh_url
from tests.streams.crash.run import CrashRun

KILLS = 14  # each named point once, and as many kills from outside


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_is_lost_doubled_or_answered_otherwise(tmp_path: Path, store: str) -> None:
    verdict = CrashRun(tmp_path, KILLS, seed=7, store=fresh_url() if store == "postgres" else "").run()
    assert verdict.is_clean, str(verdict)
    assert verdict.retried > 0, "no append was ever interrupted: the run has shown nothing"
