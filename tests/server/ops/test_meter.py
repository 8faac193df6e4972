"""Counts of the last minute, with a clock that is moved by hand."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from semel.server.ops.meter import Meter, Minute


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 5_000_123

    def __call__(self) -> int:
        return self.ms


def test_ten_now_and_none_a_minute_later() -> None:
    clock = Clock()
    meter = Meter(clock)
    for _ in range(10):
        meter.add("hits")
    assert (meter.last_minute("hits"), meter.last_minute("others")) == (10, 0)
    clock.ms += 59_000
    assert meter.last_minute("hits") == 10
    clock.ms += 2_000
    assert meter.last_minute("hits") == 0
    assert meter.totals == {"hits": 10}


def test_it_slides_by_the_second() -> None:
    clock = Clock()
    meter = Meter(clock)
    for _ in range(120):
        meter.add("steady", 2)
        clock.ms += 1_000
    assert meter.last_minute("steady") == 2 * 59  # the second that has just begun has none yet
    for left in range(58, -1, -1):
        clock.ms += 1_000
        assert meter.last_minute("steady") == 2 * left
    assert meter.totals["steady"] == 240


def test_a_name_that_was_silent_for_long_starts_from_nothing() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.add("rare", 7)
    clock.ms += 60_000 * 60 * 24
    meter.add("rare")
    assert meter.last_minute("rare") == 1


@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(1, 5)), max_size=60))
def test_it_agrees_with_a_list_of_everything(steps: list[tuple[int, int]]) -> None:
    minute, now_ms = Minute(), 0
    happened: deque[tuple[int, int]] = deque()
    for pause_ms, count in steps:
        now_ms += pause_ms
        minute.add(now_ms, count)
        happened.append((now_ms // 1_000, count))
        assert minute.total(now_ms) == sum(n for second, n in happened if second > now_ms // 1_000 - 60)


def test_times_that_fall_back() -> None:
    minute = Minute()
    minute.add(100_000)
    minute.add(70_000)
    assert minute.total(100_000) == 2, "a little late is counted"
    assert minute.total(130_000) == 1, "and ends when it must"
    minute.add(20_000, 5)
    assert minute.total(20_000) == 5, "a clock that was set back begins anew"
