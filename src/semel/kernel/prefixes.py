"""How much of a client's key may be shown: enough to find it again, never the whole."""

from __future__ import annotations

SHOWN = 8


def key_prefix(key: str) -> str:
    """The first eight characters; of a key that has no more than these, the first half."""
    return key[:SHOWN] if len(key) > SHOWN else key[: len(key) // 2]
