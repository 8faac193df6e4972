"""The replay cache: answers that this process has given, so that a retry gets the same full answer.

Limited in number and age. It affects only the form of an answer: what is not cached is read from the store, and
whether a write takes effect never depends on the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class HotAnswers:
    """The ids of answered transactions, the least recently used first."""

    def __init__(self, most: int, keep_ms: int, monotonic_ms: Callable[[], int]) -> None:
        self._most = most
        self._keep_ms = keep_ms
        self._now = monotonic_ms
        self._told: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._told)

    def tell(self, tx_id: bytes) -> bool:
        """Remember that an answer is being given, and say whether it was given before."""
        now = self._now()
        told_at = self._told.pop(tx_id, None)
        self._told[tx_id] = now
        if len(self._told) > self._most:
            self._told.popitem(last=False)
        return told_at is not None and now - told_at < self._keep_ms
