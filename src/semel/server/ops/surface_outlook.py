"""What an operator wants to know about a surface at a glance: counts, the oldest pending thing, and what is stuck.

A surface reads it from one snapshot, within limits, so that a large store costs no more than a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST = 10_000
"""Rows that are counted one by one."""


class Trouble(NamedTuple):
    """Something that does not move by itself."""

    found: str
    advice: str


class SurfaceOutlook(NamedTuple):
    """The state of a surface in words."""

    counts: str
    troubles: Sequence[Trouble] = ()


def near(used: int, limit: int, things: str, setting: str) -> list[Trouble]:
    """A trouble if nine tenths of a limit are used; a limit of 0 is none."""
    if not limit or used * 10 < limit * 9:
        return []
    advice = f"Remove some, or raise {setting}: at the limit new ones are refused."
    return [Trouble(f"{used:,} of at most {limit:,} {things} are used", advice)]


def amount(number: int, thing: str, things: str = "") -> str:
    """A number and its noun; a number at the limit is told as such."""
    shown = f"{number:,} or more" if number >= MOST else f"{number:,}"
    return f"{shown} {thing if number == 1 else things or thing + 's'}"


def span(ms: int) -> str:
    """A time span in words."""
    seconds = max(0, ms) // 1_000
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
