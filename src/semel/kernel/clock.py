"""Clock readings for decisions: decision time, expiry time and steady time.

Decision time never falls. A wall clock that jumps ahead of the monotonic clock by more than a minute (a wrong date, a
resumed virtual machine) must not expire what people still rely on, so expiry goes on at the monotonic pace and accepts
the jump only when the clock has kept to it for ten minutes; a jump that is taken back is forgotten. A wall clock that
falls back holds time still until it has caught up.

Leases must not notice any of this: a step of the wall clock neither ends nor prolongs one. So there is a third time,
which goes at the monotonic pace from where the clock stood at the start. Nodes that share a store have no monotonic
clock in common; for them it is the store's own.
"""

from __future__ import annotations

from typing import NamedTuple

JUMP_MS = 60_000
HOLD_MS = 600_000


class Now(NamedTuple):
    """The time of one decision, in milliseconds since 1970."""

    ms: int
    expiry_ms: int
    """The time to compare with stored expiries: at most `ms`, behind it while a clock jump is not accepted."""
    steady_ms: int
    """The time of leases."""
    wall_ms: int
    """The current wall clock, which may be less than before: for comparisons with other clocks."""

    def not_before(self, ms: int) -> Now:
        """This time, unless a row under the same lock was written later: time never falls along a log."""
        return self if self.ms >= ms else self._replace(ms=ms)


class Pace(NamedTuple):
    """The state between two readings."""

    ms: int
    expiry_ms: int
    wall_ms: int
    monotonic_ms: int
    steady_ms: int
    jumped_at: int | None
    """Monotonic time at which a jump was seen that is still on trial."""


def start(wall_ms: int, monotonic_ms: int) -> Pace:
    """The first reading is taken as it is."""
    return Pace(wall_ms, wall_ms, wall_ms, monotonic_ms, wall_ms, None)


def advance(pace: Pace, wall_ms: int, monotonic_ms: int) -> Pace:
    """The pace after one more reading of both clocks."""
    elapsed = max(0, monotonic_ms - pace.monotonic_ms)
    expected = pace.expiry_ms + elapsed
    jumped_at = monotonic_ms if wall_ms - pace.wall_ms - elapsed > JUMP_MS else pace.jumped_at
    if wall_ms - expected <= JUMP_MS:
        jumped_at = None  # there was no jump, or it has been taken back
    elif jumped_at is not None and monotonic_ms - jumped_at >= HOLD_MS:
        jumped_at = None  # the clock has kept to it
    expiry_ms = max(pace.expiry_ms, wall_ms) if jumped_at is None else expected
    return Pace(max(pace.ms, wall_ms), expiry_ms, wall_ms, monotonic_ms, pace.steady_ms + elapsed, jumped_at)


def now_of(pace: Pace, *, is_shared: bool) -> Now:
    """The clock reading of a decision, for a store of one process or many."""
    return Now(pace.ms, pace.expiry_ms, pace.ms if is_shared else pace.steady_ms, pace.wall_ms)
