"""Exhaustive cases: the suite tries a part, the same every day; `make nightly NAME=exhaustive` tries them all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
STRIDE = 7
IS_WHOLE = os.environ.get("TEST_DAY") == "all"


def is_tried(number: int, stride: int = STRIDE) -> bool:
    """Whether this run tries the case of that number."""
    return IS_WHOLE or number % stride == 0


def part(cases: Sequence[T], stride: int = STRIDE) -> Sequence[T]:
    """The cases that this run tries, in their order."""
    return cases if IS_WHOLE else cases[::stride]
