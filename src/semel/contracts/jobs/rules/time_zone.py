"""Local time of a named time zone, as minutes since 1970, and the instants that it maps to.

A local time that is skipped, because clocks are put forward, stands for the first instant after the gap. One that comes
twice, because clocks are put back, stands for its first occurrence. So the instants of local times never go back: a
later local time stands for the same instant or a later one.

The zones are those of the IANA database, from the system or from the `tzdata` package. What a zone says is a function
of its name as long as the process lives; a new edition of the database counts from the next start.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MAX_CHARACTERS = 64
MINUTE_MS = 60_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - on the clocks of a zone
_MINUTE = timedelta(minutes=1)


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo | None:
    """The zone of this name; None when there is none."""
    if not 0 < len(name) <= MAX_CHARACTERS:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def local_minute(zone: ZoneInfo, ms: int) -> int:
    """The local time at an instant."""
    shown = _at(zone, ms)
    return (shown.replace(tzinfo=None) - _EPOCH) // _MINUTE


def last_local_minute(zone: ZoneInfo, ms: int) -> int:
    """The last local time whose instant is not later: a repeated local time is later than the clocks show."""
    shown = _at(zone, ms)
    ahead = _offset(shown.replace(fold=0)) - _offset(shown)
    return (shown.replace(tzinfo=None) + max(ahead, timedelta()) - _EPOCH) // _MINUTE


def instant_of(zone: ZoneInfo, minute: int) -> int:
    """The instant of a local time."""
    shown = (_EPOCH + minute * _MINUTE).replace(tzinfo=zone)
    before, after = _offset(shown), _offset(shown.replace(fold=1))
    if after > before:  # in a gap: the clocks go from its beginning to its end at once
        return _end_of_gap(zone, shown, before, after)
    return _ms(shown.replace(tzinfo=None) - before)


def _end_of_gap(zone: ZoneInfo, shown: datetime, before: timedelta, after: timedelta) -> int:
    """The first instant at which clocks show the later offset; it lies between the two readings of the local time."""
    plain = shown.replace(tzinfo=None)
    low, high = _ms(plain - after) // MINUTE_MS, _ms(plain - before) // MINUTE_MS
    while low < high:
        middle = (low + high) // 2
        if _offset(_at(zone, middle * MINUTE_MS)) >= after:
            high = middle
        else:
            low = middle + 1
    return low * MINUTE_MS


def _at(zone: ZoneInfo, ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1_000, UTC).astimezone(zone)


def _offset(shown: datetime) -> timedelta:
    offset = shown.utcoffset()
    assert offset is not None
    return offset


def _ms(since: datetime) -> int:
    return (since - _EPOCH) // timedelta(milliseconds=1)
