"""Rate limits: a token bucket that fills with time, and one bucket for each caller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST_BUCKETS = 10_000
"""The limit on callers with a bucket of their own. A bucket that was unused for one second is full again, so removing
the least recently used one changes nothing, unless more callers than this send within one second.
"""


class TokenBucket:
    """A token bucket: `rate` tokens are added each second, and a burst may take as many at once; 0 means no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take a token. Returns 0 if one was taken, otherwise the seconds until one is free."""
        wait = self.wait(now)
        if not wait:
            self._left -= 1.0
        return wait

    def wait(self, now: float) -> float:
        """The seconds until a token is free; 0 if one is free now."""
        rate = self._rate
        if not rate:
            return 0.0
        left = self._left + (now - self._at) * rate
        self._at = now
        self._left = left if left < rate else float(rate)
        return 0.0 if left >= 1.0 else (1.0 - left) / rate

    def spend(self, tokens: int) -> None:
        """Take this many tokens, also more than there are: the debt is paid before the next one is free.

        So one request may be larger than the bucket, and the rate holds in the long run.
        """
        self._left -= tokens

    def set_rate(self, rate: int) -> None:
        """Change the rate; a bucket that had no limit becomes full, and a debt stays."""
        self._left = float(rate) if not self._rate else min(self._left, float(rate))
        self._rate = rate


class RateLimits:
    """One token bucket for each key, all with the same rate."""

    def __init__(self, rate: int, monotonic_ms: Callable[[], int], most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._now = monotonic_ms
        self._most = most
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: Hashable) -> float:
        """Take a token for this key. Returns 0 if one was taken, otherwise the seconds to wait."""
        if not self._rate:
            return 0.0
        bucket = self._buckets.pop(who, None) or TokenBucket(self._rate)
        self._buckets[who] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return bucket.take(self._now() / 1_000)
