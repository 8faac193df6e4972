"""Redaction of keys: the prefix of a client's key that may be shown."""

from __future__ import annotations

SHOWN = 8


def key_prefix(key: str) -> str:
    """The first eight characters; of a key that has no more than these, the first half."""
    return key[:SHOWN] if len(key) > SHOWN else key[: len(key) // 2]
