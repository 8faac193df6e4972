"""Cases that are dealt out by day: seven days try every case once, and a run can be told its day."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.share import ALL, DAYS, VARIABLE, choose_day, due, is_due

ROOT = Path(__file__).parents[2]


def of_every_day(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    shares = []
    for day in range(DAYS):
        monkeypatch.setenv(VARIABLE, str(day))
        shares.append(list(due(range(100))))
        assert shares[-1] == [number for number in range(100) if is_due(number)]
    return shares


def test_the_days_of_a_week_try_every_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = of_every_day(monkeypatch)
    assert sorted(number for share in shares for number in share) == list(range(100))
    assert all(len(share) in (100 // DAYS, 100 // DAYS + 1) for share in shares)


def test_all_cases_can_be_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, ALL)
    assert due(range(100)) == range(100)
    assert all(is_due(number) for number in range(100))


def test_another_day_is_chosen_each_day_and_a_named_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for day in range(8):
        monkeypatch.delenv(VARIABLE)
        choose_day((20_000 + day) * 86_400.0 + 1)
        chosen.append(os.environ[VARIABLE])
    assert sorted(chosen[:DAYS]) == [str(day) for day in range(DAYS)]
    assert chosen[DAYS] == chosen[0]
    choose_day(0)
    assert os.environ[VARIABLE] == chosen[0]


@pytest.mark.parametrize("wrong", ["7", "-1", "monday"])
def test_a_day_that_is_none_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, wrong)
    with pytest.raises(ValueError, match="must be 0 to 6 or 'all'"):
        choose_day(0)


def test_too_few_cases_are_not_dealt_out() -> None:
    with pytest.raises(AssertionError, match="too few"):
        due(range(DAYS - 1))


def test_a_failure_names_its_day_and_the_header_does_too(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from tests.harness.share import due\n\ndef test_it() -> None:\n    assert due(range(70)) is None\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    env = os.environ | {VARIABLE: "3"}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    told = "exhaustive cases: day 3 of 7 (DAY=3 tries them again, DAY=all tries every one)"
    assert done.stdout.count(told) == 2, done.stdout
