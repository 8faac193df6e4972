"""Times as text: UTC, RFC 3339, milliseconds, with a Z."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def utc_text(ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-31T08:05:09.007Z`."""
    seconds, rest = divmod(ms, 1_000)
    return f"{_whole_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=16)
def _whole_seconds(seconds: int) -> str:
    """Many instants that are written share their second."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def utc_ms(text: str) -> int:
    """Milliseconds since 1970 of an instant with its offset from UTC; a ValueError for anything else."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant without its offset from UTC")
    return (instant - _EPOCH) // _MS
