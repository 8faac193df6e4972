"""Hybrid logical clock (HLC): time that never falls or repeats, whatever the clock of the machine does.

A reading has 64 bits: milliseconds since 1970 above a 16-bit counter, so that readings compare as plain numbers. All
functions are pure: the physical time is an argument, and the last reading is the whole state.
"""

from __future__ import annotations

import re

COUNTER_BITS = 16
MAX_COUNTER = (1 << COUNTER_BITS) - 1
MAX_HLC = (1 << 64) - 1
MAX_DRIFT_MS = 5_000
"""The limit, in milliseconds, by which a reading may be ahead of the physical clock."""


_DIGITS = re.compile(r"0|[1-9][0-9]{0,19}")


class DriftError(ValueError):
    """The reading of another clock is too far ahead of the physical clock."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__(f"the clock is {ahead_ms} ms ahead")
        self.ahead_ms = ahead_ms


def read_hlc(text: str) -> int | None:
    """Parse a reading in decimal digits without leading zeros; None for any other text."""
    if not _DIGITS.fullmatch(text):
        return None
    value = int(text)
    return value if value <= MAX_HLC else None


def join(wall_ms: int, counter: int) -> int:
    """The reading made of a wall time and a counter."""
    return wall_ms << COUNTER_BITS | counter


def wall_of(hlc: int) -> int:
    """The wall time of a reading, in milliseconds since 1970."""
    return hlc >> COUNTER_BITS


def counter_of(hlc: int) -> int:
    """The counter of a reading, which orders readings of one millisecond."""
    return hlc & MAX_COUNTER


def tick(state: int, physical_ms: int) -> int:
    """The next reading of this clock. After a full counter it is the first reading of the next millisecond."""
    return max(state + 1, join(physical_ms, 0))


def drift_ms(remote: int, physical_ms: int) -> int:
    """Milliseconds by which a reading is ahead of the physical clock; 0 if that is at most `MAX_DRIFT_MS`."""
    ahead = wall_of(remote) - physical_ms
    return ahead if ahead > MAX_DRIFT_MS else 0


def receive(state: int, remote: int, physical_ms: int) -> int:
    """The next reading after one of another clock was received: greater than that and than every earlier one of this
    clock.
    """
    ahead = drift_ms(remote, physical_ms)
    if ahead:
        raise DriftError(ahead)
    return max(state + 1, remote + 1, join(physical_ms, 0))
