"""Rate limit: token buckets, one for each caller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST_BUCKETS = 10_000
"""Callers whose pace is known at once. A bucket that was not used for a second is full again, so forgetting the one
that was used longest ago forgives nothing, unless more callers than this come within a second."""


class Bucket:
    """A token bucket: a rate in tokens a second, and the same number as the largest burst; 0 is no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take a token: seconds to wait until one is free; 0 when one was taken."""
        if not self._rate:
            return 0.0
        self._left = min(float(self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate


class Rates:
    """One token bucket for each key, all with the same rate."""

    def __init__(self, rate: int, monotonic_ms: Callable[[], int], most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._now = monotonic_ms
        self._most = most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: Hashable) -> float:
        """Seconds that this one has to wait; 0 when it may go on."""
        if not self._rate:
            return 0.0
        bucket = self._buckets.pop(who, None) or Bucket(self._rate)
        self._buckets[who] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return bucket.take(self._now() / 1_000)
