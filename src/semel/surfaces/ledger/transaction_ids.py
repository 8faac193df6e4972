"""Ids of transactions: random bytes for new ones, and a memory of those that were answered.

The replay cache holds the ids of answers that this process has given, limited by number and age: a replay of one of
them is answered in the form of the first answer. A forgotten answer is read from the store; the cache never decides
whether a write is executed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from semel.surfaces.ledger.commands import CHANCE_BYTES

_DRAWN_AT_ONCE = 256


class ReplayCache:
    """The ids of answered transactions, in order of last use."""

    def __init__(self, most: int, keep_ms: int, monotonic_ms: Callable[[], int]) -> None:
        self._most = most
        self._keep_ms = keep_ms
        self._now = monotonic_ms
        self._told: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._told)

    def tell(self, tx_id: bytes) -> bool:
        """Remember an answer, and return whether it was given before."""
        now = self._now()
        told_at = self._told.pop(tx_id, None)
        self._told[tx_id] = now
        if len(self._told) > self._most:
            self._told.popitem(last=False)
        return told_at is not None and now - told_at < self._keep_ms


class ChancePool:
    """Random bytes of transaction ids, drawn for many ids at once: each system call releases the interpreter lock."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._left: list[bytes] = []

    def draw(self) -> bytes:
        """The random bytes of one id."""
        if not self._left:
            drawn = self._random_bytes(_DRAWN_AT_ONCE * CHANCE_BYTES)
            self._left = [drawn[start : start + CHANCE_BYTES] for start in range(0, len(drawn), CHANCE_BYTES)]
        return self._left.pop()
