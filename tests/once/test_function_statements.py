"""A function is killed (-9) at every statement of its call, and raced for by 64 callers: effects equal keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from semel.once import Happened, OnceError, current_key
from semel.testing import point
from tests.harness.guardian import guard
from tests.harness.together import at_once
from tests.once.killing import killed_at
from tests.once.places import Place, fresh_place

RACERS = 64
LEAST_PLACES, MOST_PLACES = 5, 200
AMOUNT = 5
UNKNOWN = "OutcomeUnknown"
OnCrash = Literal["refuse", "ask", "retry"]
Charge = Callable[[str], object]


class Bank:
    """The world outside: a file with a line for each request. Requests with one key are one charge."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def charge(self) -> int:
        """Charge under the key of the call. No driver shows the file, so its places are named."""
        point("before the charge")
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{current_key()}\n".encode())
        point("behind the charge")
        return AMOUNT

    def requests(self) -> Counter[str]:
        """How often each key arrived."""
        return Counter(self._path.read_text("ascii").split())

    def found(self, key: str) -> Happened | None:
        """What a prober says."""
        return Happened(AMOUNT) if self.requests()[key] else None


@contextmanager
def charging(place: Place, bank: Bank, on_crash: OnCrash, is_async: bool) -> Iterator[Charge]:
    """The guarded function, with a store that this process opens."""

    def charge(key: str) -> int:
        return bank.charge()

    async def charge_async(key: str) -> int:
        await asyncio.sleep(0)
        return bank.charge()

    more: dict[str, Any] = {"ask": bank.found} if on_crash == "ask" else {}
    with closing(place.open()) as store:
        guarded = store.once(key="{key}", scope="shop", lease="0.4s", wait="20s", on_crash=on_crash, **more)
        if is_async:
            guarded_async = guarded(charge_async)
            yield lambda key: asyncio.run(guarded_async(key))
        else:
            yield guarded(charge)


def answer_of(charge: Charge, key: str) -> object:
    """What a caller is told."""
    try:
        return charge(key)
    except OnceError as error:
        return type(error).__name__


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each store that processes share."""
    guard()
    return fresh_place(request.param, tmp_path)


def kill_everywhere(place: Place, bank: Bank, on_crash: OnCrash, is_async: bool) -> list[str]:
    """Kill a call at its first place, another one at its second, and so on. The keys of the killed calls."""
    keys = list[str]()

    def call() -> list[object]:
        with charging(place, bank, on_crash, is_async) as charge:
            return [charge(f"charge-{len(keys) + 1}")]

    while killed_at(len(keys) + 1, call):
        keys.append(f"charge-{len(keys) + 1}")
    assert LEAST_PLACES < len(keys) < MOST_PLACES
    return keys


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
@pytest.mark.parametrize("on_crash", ["refuse", "ask", "retry"])
def test_a_kill_at_every_statement_leaves_one_effect_or_an_honest_unknown(
    place: Place, tmp_path: Path, on_crash: OnCrash, is_async: bool
) -> None:
    bank = Bank(tmp_path / "bank")
    keys = kill_everywhere(place, bank, on_crash, is_async)
    with charging(place, bank, on_crash, is_async) as charge:
        answers = {key: answer_of(charge, key) for key in keys}
        assert {key: answer_of(charge, key) for key in keys} == answers
    requests = bank.requests()
    if on_crash == "refuse":
        assert set(answers.values()) == {AMOUNT, UNKNOWN}
        assert {requests[key] for key, answer in answers.items() if answer == AMOUNT} == {1}
        # It was killed behind its claim: before the charge, or after it.
        assert {requests[key] for key, answer in answers.items() if answer == UNKNOWN} == {0, 1}
    else:
        assert set(answers.values()) == {AMOUNT}
        most = 1 if on_crash == "ask" else 2  # `retry` asks the bank again, which has one charge for each key
        assert {requests[key] for key in keys} == set(range(1, most + 1))


@pytest.mark.parametrize("number", [3, 20, 60, 200])
def test_64_racers_whose_process_is_killed_have_one_effect(place: Place, tmp_path: Path, number: int) -> None:
    bank = Bank(tmp_path / "bank")

    def race() -> list[object]:
        with charging(place, bank, "ask", is_async=False) as charge:
            return at_once([lambda: answer_of(charge, "charge-1")] * RACERS)

    killed_at(number, race)
    assert race() == [AMOUNT] * RACERS
    assert bank.requests() == {"charge-1": 1}
