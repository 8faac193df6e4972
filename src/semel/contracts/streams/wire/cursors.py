"""Cursors of live reads: keep a cache from answering one live read with an old answer of another."""

from __future__ import annotations

INTERVAL_MS = 20_000
_EPOCH_MS = 1_728_432_000_000
_MAX_JUMP_MS = 3_600_000


def next_cursor(now_ms: int, sent: int | None, chance: int) -> int:
    """The present interval, or a later one than was sent; `chance` is any non-negative number."""
    current = (now_ms - _EPOCH_MS) // INTERVAL_MS
    if sent is None or sent < current:
        return current
    jump_ms = 1_000 + chance % _MAX_JUMP_MS
    return sent + max(1, jump_ms // INTERVAL_MS)
