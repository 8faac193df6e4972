"""What a block does, as values: the same script is played by blocking and by asynchronous drivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Effect:
    """Add a row to the table of charges."""


@dataclass(frozen=True)
class Result:
    """Set the result of the attempt."""

    value: Any


@dataclass(frozen=True)
class Commit:
    """Commit inside of the block."""


@dataclass(frozen=True)
class Rollback:
    """Roll back inside of the block."""


@dataclass(frozen=True)
class Call:
    """Call a function: to wait for another thread, or to raise."""

    function: Callable[[], object]


@dataclass(frozen=True)
class Nested:
    """A block inside of the block, with a key of its own, in the same transaction; what it raises may be caught."""

    key: str
    actions: tuple[Action, ...]
    catches: type[Exception] | None = None


Action = Effect | Result | Commit | Rollback | Call | Nested
CHARGE: tuple[Action, ...] = (Effect(), Result({"charge": 7}))


class BrokenError(Exception):
    """What a block raises."""


def fail() -> None:
    """Raise."""
    raise BrokenError
