"""`once.transaction` over every driver: one effect a key, the same answer to every retry, nothing half done."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable

import pytest

from semel import once
from tests.harness.together import at_once
from tests.once.houses import House, Play
from tests.once.script import BrokenError, Call, Commit, Effect, Result, fail

RACERS = 64
PATIENCE_SECONDS = 25.0


def test_the_first_call_runs_and_every_retry_is_told_its_result(house: House) -> None:
    first = house.play(Play(arguments={"amount": 5, "to": "x"}))
    again = house.play(Play(arguments={"to": "x", "amount": 5}))
    assert (first.fresh, first.replayed, first.result) == (True, False, {"charge": 7})
    assert (again.fresh, again.replayed, again.result) == (False, True, {"charge": 7})
    assert again.created_at == first.created_at
    assert (house.charges(), house.receipts()) == (1, 1)


def test_the_keys_of_two_scopes_are_two_keys(house: House) -> None:
    house.play(Play(options={"scope": "one"}))
    assert house.play(Play(options={"scope": "two"})).fresh
    assert house.play(Play(options={"scope": None})).fresh
    assert house.charges() == 3


def test_other_arguments_under_a_known_key_run_nothing(house: House) -> None:
    house.play(Play(arguments=5))
    with pytest.raises(once.KeyMismatch, match="'key' was used with other arguments"):
        house.play(Play(arguments=6))
    assert house.charges() == 1


def test_an_exception_leaves_neither_effect_nor_receipt_and_the_retry_runs(house: House) -> None:
    with pytest.raises(BrokenError):
        house.play(Play(actions=(Effect(), Call(fail))))
    assert (house.charges(), house.receipts()) == (0, 0)
    assert house.play(Play()).fresh


def test_an_exception_that_the_caller_catches_before_it_commits_leaves_nothing_either(house: House) -> None:
    with pytest.raises(BrokenError):
        house.play(Play(actions=(Effect(), Call(fail)), catches=BrokenError))
    assert (house.charges(), house.receipts()) == (0, 0)
    assert house.play(Play()).fresh


def test_a_result_that_cannot_be_stored_undoes_all(house: House) -> None:
    with pytest.raises(once.ResultError, match="type object cannot be stored"):
        house.play(Play(actions=(Effect(), Result(object())), catches=once.ResultError))
    assert (house.charges(), house.receipts()) == (0, 0)


def test_a_key_that_has_expired_is_a_new_one_and_the_attempt_tells(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some writes delete expired receipts, and this one expires before a slow machine has stored it.
    monkeypatch.setattr(sys.modules["semel.once.transaction"], "_writes", itertools.count(1))
    first = house.play(Play(options={"keep": "1ms"}))
    time.sleep(0.01)
    second = house.play(Play(arguments="other"))
    assert second.fresh
    assert second.expired_before == first.created_at
    assert (house.charges(), house.receipts()) == (2, 1)


def test_a_missing_table_is_named_with_what_to_do(house: House) -> None:
    with pytest.raises(once.TableMissing, match="semel once init URL"):
        house.play(Play(options={"table": "elsewhere"}))
    assert house.charges() == 0


def test_a_commit_inside_of_the_block_is_told_and_the_retry_does_not_run(house: House) -> None:
    if not house.can_end_inside:
        return
    with pytest.raises(once.TransactionEnded):
        house.play(Play(actions=(Effect(), Commit(), Result(1))))
    with pytest.raises(once.OutcomeUnknown):
        house.play(Play())
    assert house.charges() == 1


def held(entered: threading.Event, go_on: threading.Event) -> Callable[[], object]:
    """Stand in the block until the other side goes on."""

    def stand() -> bool:
        entered.set()
        return go_on.wait(PATIENCE_SECONDS)

    return stand


def test_a_racer_waits_for_the_first_and_is_told_its_result(house: House) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def first() -> once.Attempt:
        wait = Call(held(entered, go_on))
        return house.play(Play(actions=(Effect(), wait, Result("first"))))

    def second() -> once.Attempt:
        assert entered.wait(PATIENCE_SECONDS)
        threading.Timer(0.3, go_on.set).start()
        return house.play(Play(actions=(Effect(), Result("second"))))

    results = at_once([first, second])
    assert [one.result for one in results] == ["first", "first"]
    assert [one.fresh for one in results] == [True, False]
    assert house.charges() == 1


def test_a_bound_on_waiting_is_in_flight(house: House) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def first() -> once.Attempt:
        wait = Call(held(entered, go_on))
        return house.play(Play(actions=(Effect(), wait, Result("first"))))

    def second() -> str:
        assert entered.wait(PATIENCE_SECONDS)
        try:
            house.play(Play(options={"wait": "0.2s"}))
        except once.InFlight as error:
            return str(error)
        finally:
            go_on.set()
        return "ran"

    results = at_once([first, second])
    assert "is running" in str(results[1])
    assert house.charges() == 1


def test_of_64_racers_one_has_an_effect_and_63_are_told(house: House) -> None:
    results = at_once([lambda: house.play(Play())] * RACERS)
    assert sorted(one.fresh for one in results) == [False] * (RACERS - 1) + [True]
    assert {str(one.result) for one in results} == {"{'charge': 7}"}
    assert house.charges() == 1


def _until_it_runs(house: House, isolation: str) -> once.Attempt:
    """As an application does: a transaction that has to run again is run again."""
    for _ in range(RACERS * 4):
        try:
            return house.play(Play(isolation=isolation))
        except once.RunAgain:
            continue
    raise AssertionError("it never ran")


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_so_it_is_at_every_level_of_isolation(postgres_house: House, isolation: str) -> None:
    results = at_once([lambda: _until_it_runs(postgres_house, isolation)] * RACERS)
    assert sorted(one.fresh for one in results) == [False] * (RACERS - 1) + [True]
    assert postgres_house.charges() == 1
