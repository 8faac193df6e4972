"""Hybrid logical clocks: the published readings, one whole life of a clock, and the laws that hold in every other."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.hlc import (
    MAX_COUNTER,
    MAX_DRIFT_MS,
    MAX_HLC,
    DriftError,
    counter_of,
    drift_ms,
    join,
    receive,
    tick,
    wall_of,
)

READINGS = [
    (0, 1, 1),
    (1_000_000, 0, 65_536_000_000),
    (1_770_000_000_000, 0, 115_998_720_000_000_000),
    (1_770_000_000_000, 65_535, 115_998_720_000_065_535),
    (1_770_000_000_001, 0, 115_998_720_000_065_536),
    (2**48 - 1, 65_535, 18_446_744_073_709_551_615),
]


@pytest.mark.parametrize(("wall", "counter", "reading"), READINGS)
def test_a_reading_is_milliseconds_above_a_counter(wall: int, counter: int, reading: int) -> None:
    assert join(wall, counter) == reading
    assert (wall_of(reading), counter_of(reading)) == (wall, counter)
    assert 0 <= reading <= MAX_HLC


class Step(NamedTuple):
    """One thing that happens to a clock: the physical time, what is heard from another one, and what is then read."""

    physical: int
    heard: str
    read: str


LIFE = [
    Step(1000, "", "1000.0"),
    Step(1000, "", "1000.1"),
    Step(990, "", "1000.2"),
    Step(1005, "", "1005.0"),
    Step(1005, "1010.7", "1010.8"),
    Step(1005, "1010.3", "1010.9"),
    Step(1005, "500.9", "1010.10"),
    Step(1005, "6005.0", "6005.1"),
    Step(1005, "6006.0", "drift"),
    Step(1005, "", "6005.2"),
    Step(1005, "6005.65535", "6006.0"),
    Step(7000, "", "7000.0"),
]


def _reading(text: str) -> int:
    wall, counter = map(int, text.split("."))
    return join(wall, counter)


def test_a_whole_life_of_a_clock() -> None:
    state = 0
    for number, step in enumerate(LIFE):
        if step.read == "drift":  # what is not believed leaves no trace: the next reading follows the one before
            with pytest.raises(DriftError) as refused:
                receive(state, _reading(step.heard), step.physical)
            assert refused.value.ahead_ms == wall_of(_reading(step.heard)) - step.physical
            continue
        state = receive(state, _reading(step.heard), step.physical) if step.heard else tick(state, step.physical)
        assert f"{wall_of(state)}.{counter_of(state)}" == step.read, f"step {number}: {step}"


@pytest.mark.parametrize(
    ("ahead", "told"),
    [(-(10**9), 0), (-1, 0), (0, 0), (MAX_DRIFT_MS - 1, 0), (MAX_DRIFT_MS, 0), (5_001, 5_001), (10**9, 10**9)],
)
def test_five_seconds_ahead_may_be_believed_and_no_millisecond_more(ahead: int, told: int) -> None:
    physical = 1_770_000_000_000
    for counter in (0, MAX_COUNTER):
        assert drift_ms(join(physical + ahead, counter), physical) == told


def test_the_past_is_always_believed() -> None:
    assert drift_ms(0, 1_770_000_000_000) == 0
    assert receive(0, 0, 1_770_000_000_000) == join(1_770_000_000_000, 0)


def test_drift_is_measured_against_the_physical_clock_and_not_against_the_state() -> None:
    state = join(50_000, 3)
    with pytest.raises(DriftError, match="6000 ms ahead"):
        receive(state, join(46_000, 0), 40_000)


def test_a_full_counter_runs_into_the_next_millisecond() -> None:
    assert tick(join(1000, MAX_COUNTER), 1000) == join(1001, 0)
    assert receive(0, join(1000, MAX_COUNTER), 1000) == join(1001, 0)
    assert receive(join(1000, MAX_COUNTER), 0, 1000) == join(1001, 0)


WALLS = st.integers(0, 20_000)
COUNTERS = st.sampled_from((0, 1, 2, MAX_COUNTER - 1, MAX_COUNTER)) | st.integers(0, MAX_COUNTER)
SOME_READINGS = st.builds(join, WALLS, COUNTERS)


@given(SOME_READINGS, WALLS)
def test_a_tick_is_the_rule_in_two_halves(state: int, physical: int) -> None:
    if physical > wall_of(state):
        expected = (physical, 0)
    elif counter_of(state) == MAX_COUNTER:
        expected = (wall_of(state) + 1, 0)
    else:
        expected = (wall_of(state), counter_of(state) + 1)
    after = tick(state, physical)
    assert (wall_of(after), counter_of(after)) == expected


@given(SOME_READINGS, SOME_READINGS, WALLS)
def test_what_is_heard_is_joined_by_the_winning_wall(state: int, remote: int, physical: int) -> None:
    if wall_of(remote) - physical > MAX_DRIFT_MS:
        with pytest.raises(DriftError):
            receive(state, remote, physical)
        return
    wall = max(physical, wall_of(state), wall_of(remote))
    counters = [counter_of(one) for one in (state, remote) if wall_of(one) == wall]
    counter = 1 + max(counters) if counters else 0
    expected = (wall + 1, 0) if counter > MAX_COUNTER else (wall, counter)
    after = receive(state, remote, physical)
    assert (wall_of(after), counter_of(after)) == expected
    assert after > remote
    assert after > state


@given(st.lists(st.tuples(WALLS, st.none() | SOME_READINGS), max_size=30))
def test_readings_rise_whatever_the_clock_does(life: list[tuple[int, int | None]]) -> None:
    state = 0
    for physical, remote in life:
        before = state
        try:
            state = tick(state, physical) if remote is None else receive(state, remote, physical)
        except DriftError:
            continue
        assert state > before
        assert state >= join(physical, 0)


@given(st.tuples(WALLS, COUNTERS), st.tuples(WALLS, COUNTERS))
def test_readings_compare_as_time_does(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (join(*one) < join(*other)) == (one < other)
