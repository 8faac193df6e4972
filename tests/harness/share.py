"""Exhaustive cases: `make test` tries the same part of them every time, `make nightly NAME=exhaustive` every one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
STRIDE = 7
EVERY_CASE = "TEST_EVERY_CASE"
"""The variable of the environment under which every case is tried."""


def is_due(number: int, stride: int = STRIDE) -> bool:
    """Whether this run tries the case of that number."""
    return EVERY_CASE in os.environ or number % stride == 0


def due(cases: Sequence[T], stride: int = STRIDE) -> Sequence[T]:
    """The cases that this run tries, in their order."""
    return cases if EVERY_CASE in os.environ else cases[::stride]
