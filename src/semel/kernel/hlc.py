"""Hybrid logical clock (HLC): time that never falls or repeats, whatever the clock of the machine does.

A reading is 64 bits, milliseconds since 1970 above a counter of 16 bits, so plain numbers compare as time does. All
functions are pure: the physical time is an argument, and what was read last is the whole state.
"""

from __future__ import annotations

import re

COUNTER_BITS = 16
MAX_COUNTER = (1 << COUNTER_BITS) - 1
MAX_HLC = (1 << 64) - 1
MAX_DRIFT_MS = 5_000
"""How far a reading may be ahead of the physical clock."""


_DIGITS = re.compile(r"0|[1-9][0-9]{0,19}")


class DriftError(ValueError):
    """A reading of another clock that is too far ahead of ours."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__(f"the clock is {ahead_ms} ms ahead")
        self.ahead_ms = ahead_ms


def read_hlc(text: str) -> int | None:
    """A reading in decimal digits, without leading zeros; None for anything else."""
    if not _DIGITS.fullmatch(text):
        return None
    value = int(text)
    return value if value <= MAX_HLC else None


def join(wall_ms: int, counter: int) -> int:
    """The reading of a wall time and a counter."""
    return wall_ms << COUNTER_BITS | counter


def wall_of(hlc: int) -> int:
    """Milliseconds since 1970."""
    return hlc >> COUNTER_BITS


def counter_of(hlc: int) -> int:
    """The place among readings of one millisecond."""
    return hlc & MAX_COUNTER


def tick(state: int, physical_ms: int) -> int:
    """The next reading of an own clock; one above a full counter is the first of the next millisecond."""
    return max(state + 1, join(physical_ms, 0))


def drift_ms(remote: int, physical_ms: int) -> int:
    """By how much a reading is too far ahead of the physical clock; 0 when it may be believed."""
    ahead = wall_of(remote) - physical_ms
    return ahead if ahead > MAX_DRIFT_MS else 0


def receive(state: int, remote: int, physical_ms: int) -> int:
    """The next reading after hearing another clock: above it, and above every earlier one of ours."""
    ahead = drift_ms(remote, physical_ms)
    if ahead:
        raise DriftError(ahead)
    return max(state + 1, remote + 1, join(physical_ms, 0))
