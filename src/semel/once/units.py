"""Durations and sizes as people write them: `90`, `"60s"`, `"7d"` or a `timedelta`; `65536`, `"64KiB"`, `"2MB"`."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Real

from semel.once.errors import InvalidKey

Duration = float | Decimal | Fraction | str | timedelta
"""Seconds, a text with a unit, or a `timedelta`."""

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_MOST_SECONDS = 100 * 365 * 86_400.0


def _is_number(value: object) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def seconds(value: Duration) -> float:
    """A duration in seconds. Raises `InvalidKey` for a text without a unit, and outside 0 to 100 years."""
    if isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise InvalidKey(f"{value!r} is not a duration: write a number and one of ms, s, m, h, d, w, as in '7d'.")
        found = float(match[1]) * _DURATION_UNITS[match[2]]
    elif _is_number(value):
        try:
            found = float(value)
        except (OverflowError, ValueError):
            found = -1.0  # more than a float holds, or a signalling NaN
    else:
        raise InvalidKey(f"{value!r} is not a duration: pass seconds, a text as '7d', or a timedelta.")
    if not 0 <= found <= _MOST_SECONDS:
        raise InvalidKey(f"{value!r} is not a valid duration: it must be between 0 and 100 years.")
    return found


@lru_cache(maxsize=64, typed=True)
def milliseconds(value: Duration) -> int:
    """A duration in whole milliseconds."""
    return round(seconds(value) * 1_000)


def lasting(option: str, value: Duration) -> int:
    """An option in whole milliseconds. Raises `InvalidKey` for one that ends at once: each retry would run again."""
    found = milliseconds(value)
    if found < 1:
        raise InvalidKey(f"{option} must be at least 1 ms, not {value!r}.")
    return found


Size = int | str

_SIZE_UNITS = {"B": 1, "kB": 1_000, "KB": 1_000, "KiB": 1_024, "MB": 1_000_000, "MiB": 1_048_576, "GiB": 1_073_741_824}
_SIZE = re.compile(r"(\d+)\s*(B|kB|KB|KiB|MB|MiB|GiB)")


def byte_count(value: Size) -> int:
    """A size in bytes. Raises `InvalidKey` for a text without a unit, or a negative number."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise InvalidKey(f"{value!r} is not a size: write a number and a unit, as in '1MiB'.")
        return int(match[1]) * _SIZE_UNITS[match[2]]
    try:
        found = int(value) if _is_number(value) else None
    except (OverflowError, ValueError):  # infinity, NaN
        found = None
    if found is None or found != value:
        raise InvalidKey(f"{value!r} is not a size: pass a number of bytes, or a text as '1MiB'.")
    if found < 0:
        raise InvalidKey(f"{value!r} is not a size: it is negative.")
    return found
