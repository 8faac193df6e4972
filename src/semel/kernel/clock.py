"""Clocks: decision time, lease time, instants as text (RFC 3339), and the injected sources of time and randomness.

Decision time never falls. A wall clock that jumps ahead of the monotonic clock by more than one minute (a wrong date, a
resumed virtual machine) must not expire rows that clients still rely on. Expiry therefore continues at the monotonic
pace, and accepts the jump after the wall clock has kept it for ten minutes; a jump that is reversed earlier has no
effect. When the wall clock falls back, decision time stands still until the wall clock has caught up.

A step of the wall clock must neither end nor prolong a lease. Leases therefore use a third time, which starts at the
wall clock and advances at the monotonic pace. Nodes that share a store have no monotonic clock in common; for them
lease time is the store's clock.

Pure code reads no clock and no randomness itself: the caller passes in a `World`, so that a run replays from a seed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Protocol

JUMP_MS = 60_000
HOLD_MS = 600_000


class Now(NamedTuple):
    """The time of one decision, in milliseconds since 1970."""

    ms: int
    expiry_ms: int
    """The time to compare with stored expiries: at most `ms`, and less while a clock jump is not accepted yet."""
    steady_ms: int
    """The time to compare with the ends of leases."""
    wall_ms: int
    """The current wall clock, which may be lower than before: only for comparisons with the clocks of other
    machines.
    """

    def not_before(self, ms: int) -> Now:
        """This time, or `ms` if a row under the same lock was written later: time never falls along a log."""
        return self if self.ms >= ms else self._replace(ms=ms)


class ClockPace(NamedTuple):
    """The state of the decision clock between two readings."""

    ms: int
    expiry_ms: int
    wall_ms: int
    monotonic_ms: int
    steady_ms: int
    jumped_at: int | None
    """Monotonic time at which a jump was seen that is not accepted yet; None without one."""


def start(wall_ms: int, monotonic_ms: int) -> ClockPace:
    """The state after the first reading, which is accepted as it is."""
    return ClockPace(wall_ms, wall_ms, wall_ms, monotonic_ms, wall_ms, None)


def advance(pace: ClockPace, wall_ms: int, monotonic_ms: int) -> ClockPace:
    """The state after one more reading of both clocks."""
    elapsed = max(0, monotonic_ms - pace.monotonic_ms)
    expected = pace.expiry_ms + elapsed
    jumped_at = monotonic_ms if wall_ms - pace.wall_ms - elapsed > JUMP_MS else pace.jumped_at
    if wall_ms - expected <= JUMP_MS:
        jumped_at = None  # there was no jump, or it has been reversed
    elif jumped_at is not None and monotonic_ms - jumped_at >= HOLD_MS:
        jumped_at = None  # the wall clock has kept the jump long enough
    expiry_ms = max(pace.expiry_ms, wall_ms) if jumped_at is None else expected
    return ClockPace(max(pace.ms, wall_ms), expiry_ms, wall_ms, monotonic_ms, pace.steady_ms + elapsed, jumped_at)


def now_of(pace: ClockPace, *, is_shared: bool) -> Now:
    """The time of one decision; `is_shared` says whether several nodes write to the store."""
    return Now(pace.ms, pace.expiry_ms, pace.ms if is_shared else pace.steady_ms, pace.wall_ms)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def utc_text(ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-31T08:05:09.007Z`."""
    seconds, rest = divmod(ms, 1_000)
    return f"{_whole_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=16)
def _whole_seconds(seconds: int) -> str:
    """Cached, because instants that are written together mostly share their second."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def utc_ms(text: str) -> int:
    """Milliseconds since 1970 of an instant with its offset from UTC; a ValueError for anything else."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant without its offset from UTC")
    return (instant - _EPOCH) // _MS


class World(Protocol):
    """Clocks and randomness: of the operating system, or of a simulation."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the clock of the machine."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never fall, from an arbitrary start."""

    def random_bytes(self, count: int) -> bytes:
        """Unguessable bytes."""
