"""One case of the law: a limit, the worst shape of a request within it, and how to send it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.law.rig import MIB, WatchedServer

Request = Callable[[], int]
"""Sends a request, and returns how many bytes it had, or its answer if that is larger."""
Make = Callable[[WatchedServer], Request]
"""Brings the server into the state that the request needs."""

PATIENCE_SECONDS = 120.0
JSON = {"Content-Type": "application/json"}


class Case(NamedTuple):
    """What is measured."""

    surface: str
    limit: str
    shape: str
    make: Make
    is_quick: bool = False
    """Whether it is one of the few that every run of the tests measures."""

    @property
    def name(self) -> str:
        """What it is called in a run."""
        return f"{self.surface}: {self.limit}, {self.shape}"


def filled(beginning: bytes, unit: bytes, end: bytes, size: int = 16 * MIB) -> bytes:
    """A text of at most this size: a beginning, as many units as fit, and an end."""
    return beginning + unit * ((size - len(beginning) - len(end)) // len(unit)) + end


def nested(depth: int) -> bytes:
    """Arrays inside of arrays."""
    return b"[" * depth + b"]" * depth
