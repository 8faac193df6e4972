"""The rows of the table of functions: for coroutines what `test_functions` shows for functions, and more for both."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import once
from semel.once import Happened, Once
from semel.testing import FrozenClock
from tests.harness.together import at_once
from tests.once.conftest import fresh_schema
from tests.once.places import PLACES, Place, fresh_place

LEASE = "0.3s"


class DeclinedError(Exception):
    """What a bank says."""


class Counter:
    """Effects, and what each call shall do behind its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.then: Callable[[int], object] = lambda number: None

    def effect(self) -> Any:
        """One more, and then what was said."""
        with self._lock:
            self.count += 1
            number = self.count
        found = self.then(number)
        return number if found is None else found


Made = Callable[..., Any]
"""Makes a function that runs once, of options; the function blocks, whatever it is made of."""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each kind of store."""
    return fresh_place(request.param, tmp_path)


@pytest.fixture
def store(place: Place) -> Iterator[Once]:
    """An empty store."""
    found = place.open()
    yield found
    found.close()


@pytest.fixture
def counter() -> Counter:
    """None yet."""
    return Counter()


class Blocking:
    """A coroutine function that runs once, called from a thread."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return asyncio.run(self.function(*args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


def made_of(store: Once, counter: Counter, kind: str) -> Made:
    """Makes functions of one kind."""

    def make(**options: Any) -> Any:
        terms: dict[str, Any] = {"key": lambda *args: "k", "scope": "shop", "wait": "60s"} | options
        if kind == "function":

            @store.once(**terms)
            def charge(amount: int = 5) -> Any:
                return counter.effect()

            return charge

        @store.once(**terms)
        async def charge_async(amount: int = 5) -> Any:
            return await asyncio.to_thread(counter.effect)

        assert inspect.iscoroutinefunction(type(charge_async).__call__)
        return Blocking(charge_async)

    return make


@pytest.fixture(params=["function", "coroutine"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both kinds."""
    return str(request.param)


@pytest.fixture
def make(store: Once, counter: Counter) -> Made:
    """A maker of coroutine functions."""
    return made_of(store, counter, "coroutine")


def test_the_first_call_runs_and_retries_are_told(make: Made, counter: Counter) -> None:
    charge = make()
    assert [charge(), charge(), charge()] == [1, 1, 1]
    assert counter.count == 1


def test_an_empty_result_is_a_result_too(make: Made, counter: Counter) -> None:
    counter.then = lambda number: ()
    charge = make()
    assert [charge(), charge()] == [(), ()]
    assert counter.count == 1


def test_other_arguments_run_nothing(make: Made, counter: Counter) -> None:
    charge = make()
    charge(5)
    with pytest.raises(once.KeyMismatch):
        charge(6)
    assert counter.count == 1


def test_what_is_compared_may_be_said(make: Made, counter: Counter) -> None:
    charge = make(compare=lambda *args: None)
    assert (charge(5), charge(6)) == (1, 1)


def test_of_racers_one_runs_and_the_others_wait_for_its_result(make: Made, counter: Counter) -> None:
    counter.then = lambda number: time.sleep(0.05)
    charge = make()
    assert at_once([charge] * 16) == [1] * 16
    assert counter.count == 1


def test_one_that_may_not_wait_is_in_flight(make: Made, counter: Counter) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def stand(number: int) -> None:
        entered.set()
        go_on.wait(25)

    counter.then = stand
    charge, hurried = make(), make(in_flight="raise")
    bounded = make(wait="0.05s")

    def second() -> int:
        assert entered.wait(25)
        try:
            for late in (hurried, bounded):
                with pytest.raises(once.InFlight):
                    late()
        finally:
            go_on.set()
        return 0

    calls: list[Callable[[], int]] = [charge, second]
    assert at_once(calls) == [1, 0]
    assert counter.count == 1


def test_an_exception_releases_the_key_unless_it_is_remembered(make: Made, counter: Counter) -> None:
    errors = itertools.chain([ValueError("form")], itertools.repeat(DeclinedError("card", 3)))

    def refuse(number: int) -> None:
        raise next(errors)

    counter.then = refuse
    charge = make(remember=(DeclinedError,))
    with pytest.raises(ValueError, match="form"):
        charge()
    for _ in range(2):
        with pytest.raises(DeclinedError) as declined:
            charge()
        assert declined.value.args == ("card", 3)
    assert counter.count == 2


def test_a_result_that_cannot_be_stored_is_done_without_one(make: Made, counter: Counter) -> None:
    counter.then = lambda number: object()
    charge = make()
    for _ in range(2):
        with pytest.raises(once.ResultError, match="took effect, but its result cannot be stored"):
            charge()
    assert counter.count == 1


def cut(counter: Counter) -> None:
    """Cut the first call off behind its effect."""

    def interrupt(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    counter.then = interrupt


def interrupted(make: Made, counter: Counter, **options: Any) -> Any:
    """A function whose first call was cut off."""
    cut(counter)
    charge = make(**options)
    with pytest.raises(KeyboardInterrupt):
        charge()
    return charge


def test_a_call_that_was_cut_off_is_unknown_until_it_is_resolved(make: Made, counter: Counter) -> None:
    charge = interrupted(make, counter)
    for _ in range(2):
        with pytest.raises(once.OutcomeUnknown):
            charge()
    assert charge.inspect("k").state == "unknown"
    charge.resolve("k", 9)
    assert (charge(), charge.inspect("k").state) == (9, "done")
    assert (charge.forget("k"), charge.inspect("k")) == (True, None)
    assert counter.count == 1


def test_a_call_that_was_cut_off_is_run_again_where_that_is_said(make: Made, counter: Counter) -> None:
    charge = interrupted(make, counter, on_crash="retry")
    assert (charge(), charge()) == (2, 2)


@pytest.mark.parametrize(("answer", "expected"), [(Happened(5), 5), (None, 2)])
def test_a_prober_decides(make: Made, counter: Counter, answer: Happened | None, expected: int) -> None:
    charge = interrupted(make, counter, on_crash="ask", ask=lambda *args: answer)
    assert (charge(), charge()) == (expected, expected)


def test_a_lease_is_renewed_while_it_runs(make: Made, counter: Counter) -> None:
    counter.then = lambda number: time.sleep(0.8)
    charge = make(lease=LEASE, on_crash="retry")

    def second() -> int:
        time.sleep(0.4)
        return int(charge())

    calls: list[Callable[[], int]] = [charge, second]
    assert at_once(calls) == [1, 1]


def test_a_key_that_has_expired_is_a_new_one(make: Made, place: Place, counter: Counter) -> None:
    charge = make(keep="1ms")
    assert charge() == 1
    time.sleep(0.01)
    assert charge() == 2


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_clock_that_is_moved_ends_receipts_and_one_that_jumps_does_not(
    tmp_path: Path, counter: Counter, kind: str, where: str
) -> None:
    clock = FrozenClock()
    store = Once(":memory:" if where == "memory" else str(tmp_path / "receipts.db"), clock=clock)
    charge = made_of(store, counter, kind)(keep="7d")
    beginning = clock.now
    assert charge() == 1
    clock.set(beginning + timedelta(days=8))  # the wrong date, for a moment
    assert charge() == 1
    clock.set(beginning)
    clock.move("8d")
    assert charge() == 2
    clock.set(beginning)
    assert charge() == 2
    store.close()


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_late_finisher_is_fenced_and_told(tmp_path: Path, counter: Counter, kind: str, where: str) -> None:
    clock = FrozenClock()
    store = Once(":memory:" if where == "memory" else str(tmp_path / "receipts.db"), clock=clock)
    charge = made_of(store, counter, kind)(lease="60s", on_crash="retry")
    entered, go_on = threading.Event(), threading.Event()

    def stand(number: int) -> None:
        if number == 1:
            entered.set()
            go_on.wait(25)

    counter.then = stand

    def first() -> int:
        with pytest.raises(once.Fenced, match="may have happened twice"):
            charge()
        return 0

    def second() -> int:
        assert entered.wait(25)
        clock.move("61s")
        try:
            return int(charge())
        finally:
            go_on.set()

    assert at_once([first, second]) == [0, 2]
    assert charge() == 2
    store.close()


def test_a_store_that_cannot_be_reached_runs_nothing(counter: Counter, kind: str) -> None:
    store = Once("postgresql://semel@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(once.StoreUnavailable):
        made_of(store, counter, kind)()()
    assert counter.count == 0
    store.close()


def test_a_missing_table_is_named_with_what_to_do(counter: Counter, kind: str) -> None:
    store = Once(fresh_schema())
    with pytest.raises(once.TableMissing, match="semel once init URL"):
        made_of(store, counter, kind)()()
    assert counter.count == 0
    store.close()


def test_scopes_are_apart(store: Once, counter: Counter, kind: str) -> None:
    make = made_of(store, counter, kind)
    assert (make(scope="one")(), make(scope="two")(), make(scope="one")()) == (1, 2, 1)
