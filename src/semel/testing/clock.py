"""A clock that a test moves, for `Once(..., clock=)`: tests of leases and retention need not wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.once.units import Duration

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class FrozenClock:
    """A clock that stands still until it is moved, with the signature of `time.time`."""

    def __init__(self, at: datetime = BEGINNING) -> None:
        self._at = at
        self._passed = 0.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self._at.timestamp()

    @property
    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return self._at

    def move(self, by: Duration) -> None:
        """Move it forward: seconds, a text as `"61s"` or `"8d"`, or a `timedelta`."""
        from semel.once.units import seconds  # noqa: PLC0415 - the plugin imports this module in every run of pytest

        passed = seconds(by)
        self._at += timedelta(seconds=passed)
        self._passed += passed

    def monotonic(self) -> float:
        """Seconds that have passed by `move`: a store takes them for time, and a `set` for a clock that jumps."""
        return self._passed

    def set(self, at: datetime) -> None:
        """Set the time. It may be earlier, like a system clock that was set back."""
        self._at = at
