"""Exhaustive cases, dealt out by day: a run tries a seventh of them, another one each day, and a week tries them all.

The day is chosen once, when the run begins, so that all its processes agree also at midnight. The run says which one it
is, and so does the output of each test that fails. `make test DAY=3` tries the same cases again, and `make nightly
NAME=exhaustive` tries every case of every test file that uses this module.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
DAYS = 7
VARIABLE = "TEST_DAY"
ALL = "all"


def choose_day(now: float) -> None:
    """Choose the share of this run, unless the environment names one; the processes of the run inherit it."""
    chosen = os.environ.get(VARIABLE) or str(int(now // 86_400) % DAYS)
    if chosen != ALL and chosen not in map(str, range(DAYS)):
        raise ValueError(f"{VARIABLE} is {chosen!r}, and must be 0 to {DAYS - 1} or {ALL!r}")
    os.environ[VARIABLE] = chosen


def told() -> str:
    """Which cases a run tries."""
    chosen = os.environ[VARIABLE]
    if chosen == ALL:
        return "exhaustive cases: every one"
    return f"exhaustive cases: day {chosen} of {DAYS} (DAY={chosen} tries them again, DAY={ALL} tries every one)"


def tell() -> None:
    """Say it in the output of a test, which pytest shows with a failure."""
    print(told())  # noqa: T201


def is_due(number: int) -> bool:
    """Whether this run tries the case of that number."""
    chosen = os.environ[VARIABLE]
    return chosen == ALL or number % DAYS == int(chosen)


def due(cases: Sequence[T]) -> Sequence[T]:
    """The cases that this run tries, in their order; there must be enough of them for every day."""
    assert len(cases) >= DAYS, f"{len(cases)} cases are too few to be dealt out"
    tell()
    chosen = os.environ[VARIABLE]
    return cases if chosen == ALL else cases[int(chosen) :: DAYS]
