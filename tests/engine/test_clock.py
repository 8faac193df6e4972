"""Time that decisions can trust: it never falls, and a jump does not expire what people still rely on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.engine.clock import DecisionClock
from semel.kernel.clock import HOLD_MS, JUMP_MS, ClockPace, advance, now_of, start
from tests.engine.rig import Recorder
from tests.engine.toy import ToyWorld

DAY = 86_400_000


class Watch:
    """A pace, and the two clocks that move it."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000_000, 5_000
        self.pace: ClockPace = start(self.wall, self.monotonic)
        self.began = self.wall

    def read(self, passed: int = 0, jump: int = 0) -> tuple[int, int]:
        """Both times, as milliseconds since the start, after time has passed and the wall clock has jumped."""
        self.wall += passed + jump
        self.monotonic += passed
        self.pace = advance(self.pace, self.wall, self.monotonic)
        now = now_of(self.pace, is_shared=False)
        return now.ms - self.began, now.expiry_ms - self.began


@pytest.mark.parametrize("jump", [-DAY, -1_000, 59_000, DAY])
def test_leases_notice_no_step_of_the_wall_clock(jump: int) -> None:
    watch = Watch()
    watch.read(1_000, jump)
    watch.read(1_000)
    assert now_of(watch.pace, is_shared=False).steady_ms == watch.began + 2_000
    assert now_of(watch.pace, is_shared=True).steady_ms == now_of(watch.pace, is_shared=True).ms


def test_time_passes() -> None:
    watch = Watch()
    assert watch.read() == (0, 0)
    assert watch.read(10) == (10, 10)
    assert watch.read(5 * DAY) == (10 + 5 * DAY, 10 + 5 * DAY)


def test_a_clock_that_falls_back_holds_time_still_until_it_has_caught_up() -> None:
    watch = Watch()
    watch.read(1_000)
    assert watch.read(10, jump=-600) == (1_000, 1_000)
    assert watch.read(500) == (1_000, 1_000)
    assert watch.read(90) == (1_000, 1_000)
    assert watch.read(5) == (1_005, 1_005)


def test_a_small_step_forward_is_taken() -> None:
    assert Watch().read(100, jump=JUMP_MS) == (100 + JUMP_MS, 100 + JUMP_MS)


def test_a_jump_moves_time_but_not_expiry() -> None:
    watch = Watch()
    assert watch.read(100, jump=JUMP_MS + 1) == (100 + JUMP_MS + 1, 100)
    assert watch.read(50) == (150 + JUMP_MS + 1, 150)


def test_a_jump_is_accepted_when_the_clock_has_kept_to_it() -> None:
    watch = Watch()
    watch.read(jump=DAY)
    assert watch.read(HOLD_MS - 1) == (DAY + HOLD_MS - 1, HOLD_MS - 1)
    assert watch.read(1) == (DAY + HOLD_MS, DAY + HOLD_MS)
    assert watch.read(7) == (DAY + HOLD_MS + 7, DAY + HOLD_MS + 7)


def test_a_second_jump_is_on_trial_for_as_long_again() -> None:
    watch = Watch()
    watch.read(jump=DAY)
    watch.read(HOLD_MS - 1)
    assert watch.read(0, jump=DAY) == (2 * DAY + HOLD_MS - 1, HOLD_MS - 1)
    assert watch.read(HOLD_MS - 1) == (2 * DAY + 2 * HOLD_MS - 2, 2 * HOLD_MS - 2)
    assert watch.read(1) == (2 * DAY + 2 * HOLD_MS - 1, 2 * DAY + 2 * HOLD_MS - 1)


def test_a_jump_that_was_taken_back_is_never_accepted() -> None:
    watch = Watch()
    watch.read(jump=DAY)
    watch.read(60_000, jump=-DAY)
    for minute in range(2, 60):
        ms, expiry = watch.read(60_000)
        assert ms == DAY
        assert expiry == minute * 60_000


def test_a_machine_that_slept_expires_nothing_at_once() -> None:
    watch = Watch()
    assert watch.read(3, jump=3 * DAY) == (3 * DAY + 3, 3)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2 * HOLD_MS),
            st.one_of(st.just(0), st.integers(-5 * DAY, 5 * DAY), st.integers(-JUMP_MS, JUMP_MS)),
        ),
        max_size=30,
    )
)
def test_time_never_falls_and_expiry_never_runs_ahead(readings: list[tuple[int, int]]) -> None:
    watch = Watch()
    before = watch.read()
    for passed, jump in readings:
        after = watch.read(passed, jump)
        assert after[0] >= before[0]
        assert after[1] >= before[1]
        assert after[1] <= after[0]
        before = after


@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 5 * DAY)), max_size=30))
def test_without_jumps_back_time_is_the_wall_clock(readings: list[tuple[int, int]]) -> None:
    watch = Watch()
    for passed, jump in readings:
        watch.read(passed, jump)
        assert now_of(watch.pace, is_shared=False).ms == watch.wall


# The timekeeper


def test_the_timekeeper_reports_a_jump_once() -> None:
    world, observer = ToyWorld(), Recorder()
    keeper = DecisionClock(world, observer)
    world.pass_ms(1_000)
    assert keeper.now(world.wall)[:2] == (world.wall, world.wall)
    assert observer.jumps == []
    before = world.wall
    world.wall += DAY
    assert keeper.now(world.wall)[:2] == (before + DAY, before)
    keeper.now(world.wall)
    world.pass_ms(10)
    assert keeper.now(world.wall)[:2] == (before + DAY + 10, before + 10)
    assert observer.jumps == [DAY]
    world.pass_ms(HOLD_MS)
    assert keeper.now(world.wall)[:2] == (world.wall, world.wall)
    world.wall += DAY
    keeper.now(world.wall)
    assert observer.jumps == [DAY, DAY]


def test_the_timekeeper_goes_by_the_stores_clock() -> None:
    world = ToyWorld()
    keeper = DecisionClock(world, Recorder())
    assert keeper.now(world.wall + 500)[:2] == (world.wall + 500, world.wall + 500)
    assert keeper.now(world.wall)[:2] == (world.wall + 500, world.wall + 500)


@pytest.mark.parametrize("behind", [1, JUMP_MS, DAY])
def test_a_store_whose_clock_is_behind_holds_time_still(behind: int) -> None:
    world = ToyWorld()
    keeper = DecisionClock(world, Recorder())
    keeper.now(world.wall)
    assert keeper.now(world.wall - behind)[:2] == (world.wall, world.wall)


@pytest.mark.parametrize("apart", [-DAY, JUMP_MS + 1, DAY])
def test_a_store_whose_clock_is_not_ours_is_believed_from_the_start(apart: int) -> None:
    world, observer = ToyWorld(), Recorder()
    assert DecisionClock(world, observer).now(world.wall + apart)[:2] == (world.wall + apart, world.wall + apart)
    assert observer.jumps == []
