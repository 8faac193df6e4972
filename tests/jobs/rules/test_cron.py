"""Cron lines: what is read, what is refused, and every instant against a walk that looks at each minute or day."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.surfaces.jobs.rules.cron import CronError, between, latest, next_after, parse

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def shown(instant: int | None) -> str | None:
    if instant is None:
        return None
    return datetime.fromtimestamp(instant / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


NEXT = [
    ("* * * * *", "2026-01-01 00:00:00", "2026-01-01 00:01:00"),
    ("* * * * *", "2026-01-01 00:00:59.999", "2026-01-01 00:01:00"),
    ("* * * * *", "2026-12-31 23:59:00", "2027-01-01 00:00:00"),
    ("*/15 * * * *", "2026-01-01 00:15:00", "2026-01-01 00:30:00"),
    ("*/15 * * * *", "2026-01-01 00:45:00", "2026-01-01 01:00:00"),
    ("10-40/15 6 * * *", "2026-01-01 06:10:00", "2026-01-01 06:25:00"),
    ("0 9-17 * * mon-fri", "2026-01-02 17:00:00", "2026-01-05 09:00:00"),
    ("0 0 1 * *", "2026-01-01 00:00:00", "2026-02-01 00:00:00"),
    ("0 0 31 * *", "2026-01-31 00:00:00", "2026-03-31 00:00:00"),
    ("0 0 29 2 *", "2026-01-01 00:00:00", "2028-02-29 00:00:00"),
    ("0 0 29 2 *", "2028-02-29 00:00:00", "2032-02-29 00:00:00"),
    ("0 0 29 2 *", "2096-02-29 00:00:00", "2104-02-29 00:00:00"),
    ("0 0 30 2 *", "2026-01-01 00:00:00", None),
    ("0 0 31 2,4,6,9,11 *", "2026-01-01 00:00:00", None),
    ("0 0 * * 0", "2026-11-15 00:00:00", "2026-11-22 00:00:00"),
    ("0 0 * * 7", "2026-11-15 00:00:00", "2026-11-22 00:00:00"),
    ("0 0 * * SUN", "2026-11-15 00:00:00", "2026-11-22 00:00:00"),
    ("0 0 * * fri-sun", "2026-11-15 00:00:00", "2026-11-20 00:00:00"),
    ("0 0 * Jan,JUL *", "2026-01-31 00:00:00", "2026-07-01 00:00:00"),
    # Both days restricted: either is enough. One of them begins with a star: both must fit.
    ("0 0 13 * fri", "2026-11-13 00:00:00", "2026-11-20 00:00:00"),
    ("0 0 13 * fri", "2026-12-11 00:00:00", "2026-12-13 00:00:00"),
    ("0 0 */2 * mon", "2026-11-15 00:00:00", "2026-11-23 00:00:00"),
    ("0 0 13 * *", "2026-11-13 00:00:00", "2026-12-13 00:00:00"),
    ("  5\t4 * * *  ", "2026-01-01 00:00:00", "2026-01-01 04:05:00"),
    ("0 0 * * *", "9999-12-30 00:00:00", "9999-12-31 00:00:00"),
    ("0 0 * * *", "9999-12-31 00:00:00", None),
]


@pytest.mark.parametrize(("line", "after", "expected"), NEXT)
def test_the_next_instant(line: str, after: str, expected: str | None) -> None:
    assert shown(next_after(parse(line), ms(after))) == expected


NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}


@pytest.mark.parametrize(("name", "line"), NAMED.items())
def test_d8_a_name_stands_for_its_line(name: str, line: str) -> None:
    assert parse(name) == parse(line)
    assert parse(f" {name.upper()} ") == parse(line)


@pytest.mark.parametrize("name", ["@", "@reboot", "@yearly ", "@daily 5", "daily"])
def test_d8_another_name_is_refused(name: str) -> None:
    with pytest.raises(CronError):
        parse(name)


BERLIN, LORD_HOWE, APIA = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"
ZONED = [
    # In winter an hour behind UTC, in summer two.
    ("0 9 * * *", BERLIN, "2026-01-10 00:00:00", "2026-01-10 08:00:00"),
    ("0 9 * * *", BERLIN, "2026-07-10 00:00:00", "2026-07-10 07:00:00"),
    ("@daily", BERLIN, "2026-07-10 00:00:00", "2026-07-10 22:00:00"),
    # On the 29th of March 2026 clocks go from 2:00 to 3:00 at 1:00 UTC: what is skipped runs then, and once.
    ("30 2 * * *", BERLIN, "2026-03-28 12:00:00", "2026-03-29 01:00:00"),
    ("*/5 2 * * *", BERLIN, "2026-03-29 00:59:00", "2026-03-29 01:00:00"),
    ("*/5 2 * * *", BERLIN, "2026-03-29 01:00:00", "2026-03-30 00:00:00"),
    ("30 2 * * *", BERLIN, "2026-03-29 01:00:00", "2026-03-30 00:30:00"),
    # On the 25th of October 2026 they go from 3:00 back to 2:00 at 1:00 UTC: what comes twice runs once, at first.
    ("30 2 * * *", BERLIN, "2026-10-24 12:00:00", "2026-10-25 00:30:00"),
    ("30 2 * * *", BERLIN, "2026-10-25 00:30:00", "2026-10-26 01:30:00"),
    ("*/30 * * * *", BERLIN, "2026-10-25 00:30:00", "2026-10-25 02:00:00"),
    ("*/30 * * * *", BERLIN, "2026-10-25 01:10:00", "2026-10-25 02:00:00"),
    # Half an hour there, and a whole day that one island has skipped.
    ("15 2 * * *", LORD_HOWE, "2026-10-03 12:00:00", "2026-10-03 15:30:00"),
    ("0 12 30 12 *", APIA, "2011-12-29 12:00:00", "2011-12-30 10:00:00"),
]


@pytest.mark.parametrize(("line", "zone", "after", "expected"), ZONED)
def test_d8_the_next_instant_by_the_clocks_of_a_zone(line: str, zone: str, after: str, expected: str) -> None:
    assert shown(next_after(parse(line, zone), ms(after))) == expected


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../etc/passwd", "x" * 65, "europe berlin"])
def test_d8_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(CronError, match="no time zone"):
        parse("@daily", zone)


@given(
    line=st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 0 * * 0", "15 1,2,3 25-31 3,10 *", "@hourly"]),
    zone=st.sampled_from([BERLIN, LORD_HOWE, "America/New_York", "Asia/Kolkata"]),
    start=st.integers(ms("2026-01-01 00:00:00"), ms("2028-01-01 00:00:00")),
)
def test_d8_in_a_zone_instants_rise_and_the_latest_is_the_last_of_those_that_came_next(
    line: str, zone: str, start: int
) -> None:
    cron = parse(line, zone)
    found = between(cron, start, start + 60 * 86_400_000, 200)
    assert found == sorted(set(found))
    for before, after in pairwise(found):
        assert latest(cron, start, after - 1) == before
        assert latest(cron, start, after) == after


LATEST = [
    ("0 * * * *", "2026-01-01 00:00:00", "2026-01-01 00:59:59", None),
    ("0 * * * *", "2026-01-01 00:00:00", "2026-01-01 01:00:00", "2026-01-01 01:00:00"),
    ("0 * * * *", "2026-01-01 00:00:00", "2026-03-05 07:59:00", "2026-03-05 07:00:00"),
    ("30 6 29 2 *", "2026-01-01 00:00:00", "2034-01-01 00:00:00", "2032-02-29 06:30:00"),
    ("30 6 29 2 *", "2032-02-29 06:30:00", "2034-01-01 00:00:00", None),
    ("0 0 31 * *", "2026-01-01 00:00:00", "2026-07-01 00:00:00", "2026-05-31 00:00:00"),
    ("0 0 30 2 *", "1970-01-01 00:00:00", "2026-01-01 00:00:00", None),
    ("0 0 1 1 *", "2026-01-01 00:00:00", "2026-01-01 00:00:00", None),
    ("0 0 1 1 *", "2027-01-01 00:00:00", "2026-01-01 00:00:00", None),
]


@pytest.mark.parametrize(("line", "after", "until", "expected"), LATEST)
def test_the_latest_instant(line: str, after: str, until: str, expected: str | None) -> None:
    assert shown(latest(parse(line), ms(after), ms(until))) == expected


def test_instants_between_two_are_the_oldest_first_and_bounded() -> None:
    hourly, after = parse("0 * * * *"), ms("2026-01-01 00:00:00")
    assert [shown(one) for one in between(hourly, after, ms("2026-01-01 02:00:00"), 10)] == [
        "2026-01-01 01:00:00",
        "2026-01-01 02:00:00",
    ]
    assert [shown(one) for one in between(hourly, after, ms("2030-01-01 00:00:00"), 1)] == ["2026-01-01 01:00:00"]
    assert between(hourly, after, ms("2030-01-01 00:00:00"), 0) == []
    assert between(hourly, after, after, 10) == []


REFUSED = [
    ("", "five fields"),
    ("* * * *", "five fields"),
    ("* * * * * *", "five fields"),
    ("@yearly", "the names are"),
    ("*\n* * * *", "five fields"),
    ("60 * * * *", "minute of a cron line is from 0 to 59"),
    ("* 24 * * *", "hour of a cron line is from 0 to 23"),
    ("* * 0 * *", "day of a cron line is from 1 to 31"),
    ("* * 32 * *", "day of a cron line is from 1 to 31"),
    ("* * * 0 *", "month of a cron line is from 1 to 12"),
    ("* * * 13 *", "month of a cron line is from 1 to 12"),
    ("* * * * 8", "weekday of a cron line is from 0 to 7"),
    ("* * * mon *", "month of a cron line is from 1 to 12"),
    ("jan * * * *", "minute of a cron line is from 0 to 59"),
    ("5-1 * * * *", "ends before it begins"),
    ("* * * * sat-mon", "ends before it begins"),
    ("3/5 * * * *", "neither a range nor a value"),
    ("*-5 * * * *", "neither a range nor a value"),
    ("*/0 * * * *", "step"),
    ("*/60 * * * *", "step"),
    ("0-59/99 * * * *", "step"),
    ("*/ * * * *", "cannot be"),
    ("1, * * * *", "cannot be"),
    (",1 * * * *", "cannot be"),
    ("1-2-3 * * * *", "cannot be"),
    ("-1 * * * *", "cannot be"),
    ("+1 * * * *", "cannot be"),
    ("1.0 * * * *", "cannot be"),
    ("001 * * * *", "cannot be"),
    ("٣ * * * *", "cannot be"),  # a digit in another script
    ("? * * * *", "cannot be"),
    ("* * L * *", "cannot be"),
    ("* * 1W * *", "cannot be"),
    ("* * * * mon#1", "cannot be"),
    ("* * * * monday", "cannot be"),
    ("1" * 999 + " * * * *", "at most"),
    ("1" * 990 + " * * * *", "cannot be '11111111111111111111...'"),
]


@pytest.mark.parametrize(("line", "why"), REFUSED)
def test_what_is_not_in_the_grammar_is_refused_in_a_sentence(line: str, why: str) -> None:
    with pytest.raises(CronError) as refusal:
        parse(line)
    assert why in str(refusal.value)
    assert str(refusal.value).endswith(".")
    assert len(str(refusal.value)) < 120


# -- Against a walk that knows nothing of the shortcuts ----------------------------------------------------------------


class Field(NamedTuple):
    text: str
    values: frozenset[int]


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> Field:
    """A field as a person would write it, and the values that were meant."""
    texts, values = [], set[int]()
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(least, most))
        last = draw(st.integers(first, most))
        step = draw(st.integers(1, most))
        text, meant = draw(
            st.sampled_from(
                [
                    ("*", range(least, most + 1)),
                    (f"*/{step}", range(least, most + 1, step)),
                    (str(first), [first]),
                    (f"{first}-{last}", range(first, last + 1)),
                    (f"{first}-{last}/{step}", range(first, last + 1, step)),
                ]
            )
        )
        texts.append(text)
        values.update(meant)
    return Field(",".join(texts), frozenset(values))


MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS = (fields(*bounds) for bounds in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)))
INSTANTS = st.integers(ms("1999-01-01"), ms("2101-01-01"))


def fits_day(when: datetime, days: Field, months: Field, weekdays: Field) -> bool:
    if when.month not in months.values:
        return False
    by_day, by_weekday = when.day in days.values, (when.weekday() + 1) % 7 in weekdays.values
    if days.text.startswith("*") or weekdays.text.startswith("*"):
        return by_day and by_weekday
    return by_day or by_weekday


@given(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS, INSTANTS, st.integers(1, 3_000))
def test_minutes_against_a_walk(
    minutes: Field, hours: Field, days: Field, months: Field, weekdays: Field, start: int, length: int
) -> None:
    cron = parse(" ".join(field.text for field in (minutes, hours, days, months, weekdays)))
    found = []
    when = datetime.fromtimestamp(start / 1000, UTC).replace(second=0, microsecond=0)
    for _ in range(length):
        when += MINUTE
        fits = when.minute in minutes.values and when.hour in hours.values
        if fits and fits_day(when, days, months, weekdays):
            found.append(round(when.timestamp() * 1000))
    until = round(when.timestamp() * 1000) + start % 60_000
    assert between(cron, start, until, length) == found
    assert latest(cron, start, until) == (found[-1] if found else None)
    first = next_after(cron, start)
    assert first == found[0] if found else first is None or first > until


@given(DAYS, MONTHS, WEEKDAYS, st.integers(0, 23), st.integers(0, 59), INSTANTS)
def test_days_against_a_walk(days: Field, months: Field, weekdays: Field, hour: int, minute: int, start: int) -> None:
    cron = parse(f"{minute} {hour} {days.text} {months.text} {weekdays.text}")
    begin = datetime.fromtimestamp(start / 1000, UTC)
    when = begin.replace(hour=hour, minute=minute, second=0, microsecond=0)
    when += DAY * (when <= begin)
    found = None
    for _ in range(8 * 366):
        if fits_day(when, days, months, weekdays):
            found = when
            break
        when += DAY
    assert shown(next_after(cron, start)) == shown(None if found is None else round(found.timestamp() * 1000))
    if found is not None:
        instant = round(found.timestamp() * 1000)
        assert latest(cron, start, instant) == instant
        assert latest(cron, start, instant - 1) is None


def test_rare_lines_cost_no_walk_over_minutes() -> None:
    """A walk would look at four million minutes a call: two thousand such calls would outlast the time of any test."""
    chance = random.Random(1)
    rare = parse("0 0 30 2 *")
    for _ in range(2_000):
        assert next_after(rare, chance.randrange(ms("2000-01-01"), ms("2100-01-01"))) is None
