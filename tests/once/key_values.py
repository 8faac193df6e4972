"""Values that are keys and scopes, and values that are none."""

from __future__ import annotations

import decimal
import enum
import functools
import uuid
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any


class Customer:
    """What a handler has at hand, as `request.user`."""

    id = 7

    def name(self) -> str:
        """A method that somebody forgets to call."""
        return "7"


class Paid(str, enum.Enum):  # noqa: UP042 - its str() is its name
    """A text with a name."""

    YES = "yes"


class Number(enum.IntEnum):
    """A number with a name."""

    ONE = 1


class Kind(enum.Enum):
    """Neither."""

    ONE = 1


async def _late() -> str:
    return "7"


def _lines() -> Iterator[str]:
    yield "7"


KEYS: dict[str, tuple[Any, str]] = {
    "a text": ("charge-7", "charge-7"),
    "a number": (7, "7"),
    "a negative number": (-7, "-7"),
    "a UUID": (uuid.UUID(int=7), str(uuid.UUID(int=7))),
    "a text of an enum": (Paid.YES, "yes"),
    "a number of an enum": (Number.ONE, "1"),
}
"""Values, and the text of each."""
NO_KEYS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an object": Customer,
    "a class": lambda: Customer,
    "a lambda": lambda: lambda: "7",
    "a method": lambda: Customer().name,
    "a partial": lambda: functools.partial(str, 7),
    "a coroutine": _late,
    "a generator": _lines,
    "true": lambda: True,
    "a float": lambda: 1.5,
    "a Decimal": lambda: decimal.Decimal(7),
    "bytes": lambda: b"7",
    "a tuple": lambda: (7, 8),
    "a list": lambda: [7],
    "a dict": lambda: {"id": 7},
    "a date": lambda: date(2026, 11, 19),
    "a member of an enum": lambda: Kind.ONE,
    "nothing": lambda: "",
    "too long": lambda: "7" * 257,
    "a line": lambda: "7\n",
    "half a character": lambda: "\ud800",
}
"""Makers of values."""
