"""Cron expressions: five fields in UTC or in a named time zone, and the instants at which all fields match.

| field | values | names |
|---|---|---|
| minute | 0-59 | |
| hour | 0-23 | |
| day | 1-31 | |
| month | 1-12 | jan-dec |
| weekday | 0-7, of which 0 and 7 are Sunday | sun-sat |

A field is a comma-separated list of parts; a part is `*`, `*/step`, a value, `first-last` or `first-last/step`. The
usual rule of days holds: if neither the day nor the weekday begins with `*`, a day that matches either of them counts;
otherwise it must match both. A field that cannot be parsed is rejected.

`@hourly`, `@daily`, `@weekly` and `@monthly` stand for `0 * * * *`, `0 0 * * *`, `0 0 * * 0` and `0 0 1 * *`.

In a zone with daylight saving time, a skipped local time stands for the first instant after the gap, and a local time
that occurs twice stands for its first occurrence. So the instants of local times never go back. The zones are those of
the IANA database, from the system or from the `tzdata` package; a new edition counts from the next start.

Everything here is a function of its arguments, so a crash leaves nothing behind. Months and days that cannot match are
skipped as a whole, so no call iterates over the minutes between two instants.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MAX_ZONE_CHARACTERS = 64
MINUTE_MS = 60_000
_EPOCH_TIME = datetime(1970, 1, 1)  # noqa: DTZ001 - on the clocks of a zone
_MINUTE = timedelta(minutes=1)


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo | None:
    """The zone of this name; None if there is none."""
    if not 0 < len(name) <= MAX_ZONE_CHARACTERS:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def local_minute(zone: ZoneInfo, ms: int) -> int:
    """The local time at an instant."""
    shown = _at(zone, ms)
    return (shown.replace(tzinfo=None) - _EPOCH_TIME) // _MINUTE


def last_local_minute(zone: ZoneInfo, ms: int) -> int:
    """The last local time whose instant is not later; while clocks repeat an hour, it is later than the clocks show."""
    shown = _at(zone, ms)
    ahead = _offset(shown.replace(fold=0)) - _offset(shown)
    return (shown.replace(tzinfo=None) + max(ahead, timedelta()) - _EPOCH_TIME) // _MINUTE


def instant_of(zone: ZoneInfo, minute: int) -> int:
    """The instant of a local time."""
    shown = (_EPOCH_TIME + minute * _MINUTE).replace(tzinfo=zone)
    before, after = _offset(shown), _offset(shown.replace(fold=1))
    if after > before:  # in a gap: clocks jump from its beginning to its end
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
    return (since - _EPOCH_TIME) // timedelta(milliseconds=1)


MAX_CHARACTERS = 1_000
DAY_MINUTES = 1_440
HORIZON_DAYS = 8 * 366
"""Limit of the search in days: two 29ths of February are at most eight years apart."""

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_FIRST_HALF = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6}
_MONTHS = _FIRST_HALF | {"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_NAMES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
_PART = re.compile(r"(\*|[0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?(?:/([0-9]{1,2}))?")


class CronError(ValueError):
    """The cron expression is invalid; the message says why."""


class Cron(NamedTuple):
    """A parsed cron expression: the values of each field, in ascending order."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 is Sunday, 6 is Saturday."""
    either: bool
    """Whether a day that matches either `days` or `weekdays` is enough."""
    zone: ZoneInfo | None = None
    """The time zone; None for UTC."""


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _WEEKDAYS),
)


def parse(text: str, zone: str = "") -> Cron:
    """Parse a cron expression of five fields, or a name such as @daily; without a zone it is in UTC."""
    if len(text) > MAX_CHARACTERS:
        raise CronError(f"A cron line has at most {MAX_CHARACTERS} characters.")
    text = text.strip(" \t")
    if text.startswith("@"):
        text = _named(text)
    fields = [field for field in re.split("[ \t]+", text) if field]
    if len(fields) != len(_FIELDS):
        raise CronError(
            f"A cron line has five fields (minute, hour, day, month, weekday), and this one has {len(fields)}."
        )
    minutes, hours, days, months, weekdays = map(_values, _FIELDS, fields)
    either = not (fields[2].startswith("*") or fields[4].startswith("*"))
    return Cron(minutes, hours, days, months, tuple(sorted({day % 7 for day in weekdays})), either, _zone(zone))


def _named(text: str) -> str:
    line = _NAMES.get(text.lower())
    if line is None:
        raise CronError(f"A cron line cannot be {_shown(text)}; the names are {', '.join(_NAMES)}.")
    return line


def _zone(name: str) -> ZoneInfo | None:
    if not name or name == "UTC":
        return None
    zone = zone_of(name)
    if zone is None:
        raise CronError(f"There is no time zone {_shown(name)}; give a name such as Europe/Berlin.")
    return zone


def next_after(cron: Cron, ms: int) -> int | None:
    """The first instant after this one; None if eight years pass without any."""
    if cron.zone is None:
        minute = _next_minute(cron, ms // MINUTE_MS)
        return None if minute is None else minute * MINUTE_MS
    minute = local_minute(cron.zone, ms)
    while (minute := _next_minute(cron, minute)) is not None:
        # Of a local time that occurs twice the first occurrence counts, and it may be over.
        instant = instant_of(cron.zone, minute)
        if instant > ms:
            return instant
    return None


def latest(cron: Cron, after_ms: int, until_ms: int) -> int | None:
    """The last instant after `after_ms` and not after `until_ms`; None if there is none, or none in eight years."""
    if cron.zone is None:
        minute = _minute_before(cron, after_ms // MINUTE_MS, until_ms // MINUTE_MS)
        return None if minute is None or minute * MINUTE_MS <= after_ms else minute * MINUTE_MS
    first, last = local_minute(cron.zone, after_ms), last_local_minute(cron.zone, until_ms)
    minute = _minute_before(cron, first, last)
    while minute is not None:
        # A local time in a gap maps to a later instant than its order suggests.
        instant = instant_of(cron.zone, minute)
        if instant <= until_ms:
            return instant if instant > after_ms else None
        minute = _minute_before(cron, first, minute - 1)
    return None


def _next_minute(cron: Cron, after: int) -> int | None:
    """The first matching minute after this one; None if there is none in eight years."""
    first, minute = divmod(after + 1, DAY_MINUTES)
    for day in _days(cron, first, first + HORIZON_DAYS):
        found = _first_of_day(cron, minute if day == first else 0)
        if found is not None:
            return day * DAY_MINUTES + found
    return None


def _minute_before(cron: Cron, after: int, until: int) -> int | None:
    """The last matching minute that is not later; None if there is none since the day of the other, or in eight
    years.
    """
    last, minute = divmod(until, DAY_MINUTES)
    for day in _days_back(cron, last, max(after // DAY_MINUTES, last - HORIZON_DAYS)):
        found = _last_of_day(cron, minute if day == last else DAY_MINUTES)
        if found is not None:
            return day * DAY_MINUTES + found
    return None


def between(cron: Cron, after_ms: int, until_ms: int, limit: int) -> list[int]:
    """The instants after `after_ms` and not after `until_ms`, oldest first, at most `limit`."""
    found: list[int] = []
    instant = next_after(cron, after_ms)
    while instant is not None and instant <= until_ms and len(found) < limit:
        found.append(instant)
        instant = next_after(cron, instant)
    return found


def _values(field: _Field, text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.lower().split(","):
        found.update(_part(field, part))
    return tuple(sorted(found))


def _part(field: _Field, part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise CronError(f"The {field.name} of a cron line cannot be {_shown(part)}.")
    start, end, step_text = match.groups()
    if start == "*":
        first, last = field.least, min(field.most, 6) if field.names is _WEEKDAYS else field.most
        is_wide = end is None
    else:
        first = _value(field, start)
        last = first if end is None else _value(field, end)
        if end == "sun" and first > 0:
            last = 7  # a range of weekdays may end on Sunday
        is_wide = end is not None or step_text is None
    if not is_wide:
        raise CronError(f"The {field.name} {_shown(part)} of a cron line is neither a range nor a value.")
    if last < first:
        raise CronError(f"The {field.name} {_shown(part)} of a cron line ends before it begins.")
    return range(first, last + 1, _step(field, step_text))


def _value(field: _Field, text: str) -> int:
    value = field.names.get(text, -1) if text.isalpha() else int(text)
    if not field.least <= value <= field.most:
        raise CronError(
            f"The {field.name} of a cron line is from {field.least} to {field.most}, and not {_shown(text)}."
        )
    return value


def _step(field: _Field, text: str | None) -> int:
    if text is None:
        return 1
    step = int(text)
    if not 1 <= step <= field.most:
        raise CronError(f"The step of the {field.name} of a cron line is from 1 to {field.most}, and not {text}.")
    return step


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "...")


def _days(cron: Cron, first: int, last: int) -> Iterator[int]:
    """The matching days, counted from 1970, forwards."""
    number, last = max(first, _FIRST_DAY), min(last, _LAST_DAY)
    while number <= last:
        day = date.fromordinal(number + _EPOCH)
        if day.month not in cron.months:
            number += _days_in_month(day) - day.day + 1
            continue
        if _fits(cron, day):
            yield number
        number += 1


def _days_back(cron: Cron, last: int, first: int) -> Iterator[int]:
    """The matching days, counted from 1970, backwards."""
    number, first = min(last, _LAST_DAY), max(first, _FIRST_DAY)
    while number >= first:
        day = date.fromordinal(number + _EPOCH)
        if day.month not in cron.months:
            number -= day.day
            continue
        if _fits(cron, day):
            yield number
        number -= 1


def _days_in_month(day: date) -> int:
    if day.month == 12:
        return 31
    return date(day.year, day.month + 1, 1).toordinal() - date(day.year, day.month, 1).toordinal()


def _fits(cron: Cron, day: date) -> bool:
    fits_day, fits_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    return fits_day or fits_weekday if cron.either else fits_day and fits_weekday


def _first_of_day(cron: Cron, minute: int) -> int | None:
    """The first matching minute of a day, from this one."""
    hour, minute = divmod(minute, 60)
    place = bisect_left(cron.hours, hour)
    if place < len(cron.hours) and cron.hours[place] == hour:
        within = bisect_left(cron.minutes, minute)
        if within < len(cron.minutes):
            return hour * 60 + cron.minutes[within]
        place += 1
    return cron.hours[place] * 60 + cron.minutes[0] if place < len(cron.hours) else None


def _last_of_day(cron: Cron, minute: int) -> int | None:
    """The last matching minute of a day, up to this one."""
    hour, minute = divmod(minute, 60)
    place = bisect_right(cron.hours, hour) - 1
    if place >= 0 and cron.hours[place] == hour:
        within = bisect_right(cron.minutes, minute) - 1
        if within >= 0:
            return hour * 60 + cron.minutes[within]
        place -= 1
    return cron.hours[place] * 60 + cron.minutes[-1] if place >= 0 else None
