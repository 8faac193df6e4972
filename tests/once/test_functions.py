"""Functions that run once a key: one effect, the same answer to every retry, and an honest unknown after a crash."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel import once
from semel.once import Happened, Once, current_key
from semel.once.claims import Act, ReceiptChange
from semel.once.database import CONNECTIONS
from tests.harness.together import PATIENCE_SECONDS, at_once, eventually
from tests.once.places import PLACES, Place, fresh_place

LEASE = "0.3s"


class DeclinedError(Exception):
    """What a bank says."""


class StolenError(DeclinedError):
    """A kind of it."""


class Effects:
    """What happened outside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.keys: list[str] = []

    def add(self) -> int:
        """One more."""
        with self._lock:
            self.keys.append(current_key())
            return len(self.keys)


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
def effects() -> Effects:
    """None yet."""
    return Effects()


def test_the_first_call_runs_and_every_retry_is_told_its_result(store: Once, effects: Effects) -> None:
    @store.once(key=lambda order: f"charge:{order['id']}")
    def charge(order: dict[str, Any]) -> dict[str, Any]:
        return {"n": effects.add(), "order": order}

    assert charge({"id": 7, "amount": 5}) == charge({"amount": 5, "id": 7}) == {"n": 1, "order": {"id": 7, "amount": 5}}
    assert effects.keys == ["charge:7"]
    found = charge.inspect("charge:7")
    assert found is not None
    assert (found.state, found.result["n"]) == ("done", 1)


def test_other_arguments_under_a_known_key_run_nothing(store: Once, effects: Effects) -> None:
    @store.once(key=lambda amount: "k")
    def charge(amount: int) -> int:
        return effects.add()

    charge(1)
    with pytest.raises(once.KeyMismatch):
        charge(2)
    assert len(effects.keys) == 1


def test_two_functions_with_one_key_are_two(store: Once, effects: Effects) -> None:
    @store.once(key=lambda: "k")
    def one() -> str:
        return "one"

    @store.once(key=lambda: "k")
    def two() -> str:
        return "two"

    assert (one(), two(), one()) == ("one", "two", "one")


def test_of_64_racers_one_has_an_effect_and_63_are_told(store: Once, effects: Effects) -> None:
    @store.once(key=lambda: "k", wait="60s")
    def charge() -> int:
        time.sleep(0.05)
        return effects.add()

    assert at_once([charge] * 64) == [1] * 64
    assert len(effects.keys) == 1


def test_coroutines_alike(store: Once, effects: Effects) -> None:
    @store.once(key=lambda: "k", wait="60s")
    async def charge() -> int:
        await asyncio.sleep(0.05)
        return effects.add()

    async def race() -> list[int]:
        return await asyncio.gather(*[charge() for _ in range(8)])

    assert asyncio.run(race()) == [1] * 8
    assert len(effects.keys) == 1


def test_a_call_that_may_not_wait_is_in_flight(store: Once, effects: Effects) -> None:
    entered, go_on = threading.Event(), threading.Event()

    @store.once(key=lambda: "k", in_flight="raise")
    def charge() -> int:
        entered.set()
        go_on.wait(25)
        return effects.add()

    def second() -> int:
        assert entered.wait(25)
        try:
            with pytest.raises(once.InFlight) as refused:
                charge()
            assert refused.value.retry_after >= 1
        finally:
            go_on.set()
        return 0

    calls: list[Callable[[], int]] = [charge, second]
    assert at_once(calls) == [1, 0]


def test_an_exception_releases_the_key_and_a_remembered_one_is_told_again(store: Once, effects: Effects) -> None:
    errors: Iterator[Exception] = itertools.chain([ValueError("form")], itertools.repeat(StolenError("card", 3)))

    @store.once(key=lambda: "k", remember=(DeclinedError,))
    def charge() -> int:
        effects.add()
        raise next(errors)

    with pytest.raises(ValueError, match="form"):
        charge()
    for _ in range(3):
        with pytest.raises(StolenError) as declined:
            charge()
        assert declined.value.args == ("card", 3)
    assert len(effects.keys) == 2


@pytest.mark.parametrize(("on_crash", "runs"), [("refuse", 1), ("retry", 2)])
def test_a_function_that_does_not_know_its_own_outcome_leaves_the_unknown(
    store: Once, effects: Effects, on_crash: Any, runs: int
) -> None:
    @store.once(key=lambda number: f"n:{number}", on_crash=on_crash)
    def send(number: int) -> None:
        effects.add()
        raise once.OutcomeUnknown("bank")

    for _ in range(2):
        with pytest.raises(once.OutcomeUnknown):
            send(1)
    assert len(effects.keys) == runs


def test_a_result_that_cannot_be_stored_is_told_as_done_without_one(store: Once, effects: Effects) -> None:
    @store.once(key=lambda: "k")
    def charge() -> object:
        effects.add()
        return object()

    for _ in range(3):
        with pytest.raises(once.ResultError, match="took effect, but its result cannot be stored"):
            charge()
    assert len(effects.keys) == 1


def test_a_lease_is_renewed_while_the_function_runs(store: Once, effects: Effects) -> None:
    @store.once(key=lambda: "k", lease=LEASE, on_crash="retry", wait="60s")
    def charge() -> int:
        time.sleep(1.2)
        return effects.add()

    def second() -> int:
        time.sleep(0.6)
        return charge()

    calls: list[Callable[[], int]] = [charge, second]
    assert at_once(calls) == [1, 1]


def test_a_call_that_was_cut_off_is_unknown_until_a_person_says_what_became_of_it(
    store: Once, effects: Effects
) -> None:
    charge = cut_off(store, effects)
    for _ in range(2):
        with pytest.raises(once.OutcomeUnknown, match="find out whether it took effect"):
            charge()
    found = charge.inspect("k")
    assert found is not None
    assert found.state == "unknown"
    charge.resolve("k", {"charge": 9})
    assert charge() == {"charge": 9}
    with pytest.raises(once.OnceError, match="nothing to resolve"):
        charge.resolve("k")
    assert charge.forget("k")
    assert not charge.forget("k")
    assert len(effects.keys) == 1


def test_a_call_that_was_cut_off_is_run_again_where_its_function_says_so(store: Once, effects: Effects) -> None:
    charge = cut_off(store, effects, on_crash="retry")
    assert charge() == {"charge": 2}
    assert charge() == {"charge": 2}


@pytest.mark.parametrize(("answer", "expected", "runs"), [(Happened({"charge": 5}), 5, 1), (None, 2, 2)])
def test_a_prober_decides(store: Once, effects: Effects, answer: Happened | None, expected: int, runs: int) -> None:
    charge = cut_off(store, effects, on_crash="ask", ask=lambda: answer)
    assert charge() == {"charge": expected}
    assert charge() == {"charge": expected}
    assert len(effects.keys) == runs


def test_a_prober_that_fails_leaves_the_unknown(store: Once, effects: Effects) -> None:
    def ask() -> None:
        raise OSError("the bank does not answer")

    charge = cut_off(store, effects, on_crash="ask", ask=ask)
    for _ in range(2):
        with pytest.raises(OSError, match="bank"):
            charge()
    found = charge.inspect("k")
    assert found is not None
    assert found.state == "unknown"


def test_a_key_that_has_expired_is_a_new_one(store: Once, place: Place, effects: Effects) -> None:
    @store.once(key=lambda: "k", keep="1ms")
    def charge() -> int:
        return effects.add()

    assert charge() == 1
    time.sleep(0.01)
    assert charge() == 2


def test_options_that_cannot_be_used_are_refused(store: Once) -> None:
    with pytest.raises(once.InvalidKey, match="ask"):
        store.once(key=lambda: "k", on_crash="ask")
    with pytest.raises(once.InvalidKey, match="is not a duration"):
        store.once(key=lambda: "k", keep="soon")
    with pytest.raises(once.OnceError, match="only inside a function"):
        current_key()


def cut_off(store: Once, effects: Effects, **options: Any) -> Any:
    """A function whose first call was interrupted behind its effect."""

    @store.once(key=lambda: "k", **options)
    def charge() -> dict[str, int]:
        number = effects.add()
        if number == 1:
            raise KeyboardInterrupt
        return {"charge": number}

    with pytest.raises(KeyboardInterrupt):
        charge()
    return charge


def test_a_coroutine_function_stays_one_for_who_asks_inspect() -> None:
    store = Once.memory()

    @store.once(key=str)
    async def charge(number: int) -> int:
        return number

    @store.once(key=str)
    def charge_blocking(number: int) -> int:
        return number

    assert inspect.iscoroutinefunction(charge) is (sys.version_info >= (3, 12))  # 3.11 has no way to say so
    assert not inspect.iscoroutinefunction(charge_blocking)
    store.close()


def test_a_method_is_run_once_a_key_whichever_object_it_is_called_on(store: Once) -> None:
    effects = Effects()

    class Bank:
        """A bank, whose objects cannot be compared."""

        @store.once(key=lambda self, order, amount=5: f"charge:{order}")
        def charge(self, order: int, amount: int = 5) -> int:
            return effects.add() + amount

        @store.once(key=lambda self, order: f"refund:{order}")
        async def refund(self, order: int) -> int:
            return effects.add()

        @staticmethod
        @store.once(key=lambda order: f"fee:{order}")
        def fee(order: int) -> int:
            return effects.add()

    first, second = Bank(), Bank()
    assert (first.charge(7), second.charge(7)) == (6, 6)
    with pytest.raises(once.KeyMismatch):
        second.charge(7, amount=6)
    assert [asyncio.run(bank.refund(7)) for bank in (first, second)] == [2, 2]
    assert [Bank.fee(7), Bank.fee(7)] == [3, 3]
    assert effects.keys == ["charge:7", "refund:7", "fee:7"]
    found = first.charge.inspect("charge:7")
    assert (found and found.result) == 6
    assert Bank.charge.forget("charge:7")
    assert second.charge(7) == 9


def test_a_result_is_stored_although_its_caller_was_stopped_meanwhile(place: Place) -> None:
    """No thread of the store is free when the function returns, and then the call is cancelled."""
    with closing(place.open()) as store:
        effects, is_over, has_run = Effects(), threading.Event(), asyncio.Event()

        @store.once(key="order", scope="shop", in_flight="raise")
        async def charge(order: str) -> int:
            for _ in range(CONNECTIONS):
                store.store.database.submit(is_over.wait)
            has_run.set()
            return effects.add()

        async def stopped() -> None:
            call = asyncio.create_task(charge("7"))
            await has_run.wait()
            await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            is_over.set()

        asyncio.run(stopped())
        eventually(lambda: (found := charge.inspect("7")) is not None and found.state == "done", "the result is stored")
        assert (asyncio.run(charge("7")), effects.keys) == (1, ["7"])


def test_a_signal_while_a_result_is_stored_does_not_lose_it(store: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    effects, change = Effects(), store.store.change

    @store.once(key="order", scope="shop", in_flight="raise")
    def charge(order: str) -> int:
        return effects.add()

    def interrupted(wanted: ReceiptChange) -> Any:
        if wanted.act is Act.FINISH:
            monkeypatch.setattr(store.store, "change", change)
            raise KeyboardInterrupt
        return change(wanted)

    monkeypatch.setattr(store.store, "change", interrupted)
    with pytest.raises(KeyboardInterrupt):
        charge("7")
    eventually(lambda: (found := charge.inspect("7")) is not None and found.state == "done", "the result is stored")
    assert (charge("7"), effects.keys) == (1, ["7"])


def test_a_time_limit_is_not_kept_waiting_for_a_key_to_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is locked when the limit ends, so what takes the claim back waits too: behind the caller."""
    effects, is_free = Effects(), threading.Event()
    with closing(Once(tmp_path / "receipts.db")) as store, closing(sqlite3.connect(tmp_path / "receipts.db")) as other:
        change, in_time = store.store.change, list[bool]()

        def waiting(wanted: ReceiptChange) -> Any:
            if wanted.act is Act.GIVE_BACK:
                in_time.append(is_free.wait(PATIENCE_SECONDS))
            return change(wanted)

        monkeypatch.setattr(store.store, "change", waiting)

        @store.once(key="order", scope="shop", wait="20s")
        async def charge(order: str) -> int:
            return effects.add()

        async def hurried() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await charge("7")

        other.execute("BEGIN IMMEDIATE")
        asyncio.run(hurried())
        is_free.set()
        other.rollback()
        assert (asyncio.run(charge("7")), effects.keys) == (1, ["7"])
        eventually(lambda: bool(in_time), "the claim is taken back")
        assert all(in_time)
