"""`assert_idempotent` finds the double in each wrong handler by the schedule that shows it, and none in a right one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semel.once import Once
from semel.testing import FrozenClock, IdempotencyReport, NotIdempotentError, assert_idempotent
from tests.once.conftest import fresh_schema
from tests.testing import shops
from tests.testing.shops import Charge, Shop

ALL = {"duplicate", "lost", "concurrent", "killed"}


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A shop on each database."""
    return Shop(str(tmp_path / "shop.db") if request.param == "sqlite" else fresh_schema(), tmp_path)


@pytest.fixture
def postgres_shop(tmp_path: Path) -> Shop:
    """One on PostgreSQL."""
    return Shop(fresh_schema(), tmp_path)


@pytest.fixture
def clock() -> FrozenClock:
    """Stands still."""
    return FrozenClock()


@pytest.fixture
def store(tmp_path: Path, clock: FrozenClock) -> Iterator[Once]:
    """A store on disk."""
    found = Once(str(tmp_path / "receipts.db"), clock=clock)
    yield found
    found.close()


def faults(call: Charge, shop: Shop, **options: Any) -> dict[str, Any]:
    """The run of each schedule that found a fault."""
    with pytest.raises(NotIdempotentError) as found:
        assert_idempotent(call, effects=shop.count, **options)
    assert "reproduce: assert_idempotent(" in str(found.value)
    return {run.schedule: run for run in found.value.runs}


def test_a_naive_handler_fails_under_every_schedule(shop: Shop) -> None:
    found = faults(shops.naive(shop), shop)
    assert set(found) == ALL
    assert found["duplicate"].effects == 3
    assert found["concurrent"].effects == 2


def test_a_handler_that_checks_first_fails_beside_another_call_alone(shop: Shop) -> None:
    found = faults(shops.checks_first(shop), shop)
    assert set(found) == {"concurrent"}
    assert found["concurrent"].effects == 2
    assert "SELECT 1 FROM charges" in found["concurrent"].story
    found = faults(shops.checks_first(shop), shop, schedules=["concurrent"], at=0, patience=0.5)
    assert found["concurrent"].effects == 4


def test_a_handler_that_notes_its_effect_in_a_second_commit_fails_when_killed_between(shop: Shop) -> None:
    found = faults(shops.effect_first(shop), shop, patience=0.03)
    assert set(found) == {"killed"}
    assert found["killed"].effects == 2
    assert "commit" in found["killed"].story


def test_a_handler_that_notes_an_effect_before_it_happens_fails_when_killed_between(shop: Shop) -> None:
    found = faults(shops.note_first(shop), shop, schedules=["duplicate", "killed"])
    assert (set(found), found["killed"].effects) == ({"killed"}, 0)


def test_a_handler_that_remembers_in_memory_fails_when_killed(shop: Shop) -> None:
    found = faults(shops.remembers_in_memory(shop), shop, patience=0.03)
    assert (set(found), found["killed"].effects) == ({"killed"}, 2)


def test_a_handler_with_one_effect_and_two_answers_fails(shop: Shop) -> None:
    found = faults(shops.answers_otherwise(shop), shop, schedules=["duplicate", "lost", "killed"])
    assert set(found) >= {"duplicate", "lost"}
    assert found["duplicate"].fault() == "the answers differ"


def test_a_coroutine_that_is_cancelled_before_it_remembers_fails(postgres_shop: Shop) -> None:
    found = faults(shops.remembers_late_async(postgres_shop.place), postgres_shop, schedules=["duplicate", "lost"])
    assert (set(found), found["lost"].effects) == ({"lost"}, 2)
    assert "cancelled while it waited (shops.py" in found["lost"].story


def never(found: object) -> bool:
    """A transaction has no outcome that is unknown."""
    return False


def check(report: IdempotencyReport, *operations: str) -> None:
    """Every schedule ran, and the call was killed before and behind each operation."""
    assert set(report.runs) == ALL
    for operation in operations:
        for when in ("before", "after"):
            assert any(f"{when} {operation}" in place for place in report.places["killed"]), report.places["killed"]
    assert "before its answer left" in report.places["killed"][-1]
    assert report.runs["killed"] >= 2 * len(operations)
    assert report.runs["concurrent"] >= 2


def test_nothing_is_found_in_a_handler_that_uses_a_transaction(shop: Shop) -> None:
    report = assert_idempotent(shops.in_transaction(shop), effects=shop.count, unknown=never, patience=0.03)
    driver = "psycopg" if shop.is_postgres else "sqlite3 Connection."
    check(report, f"{driver} commit".replace(". ", "."))


def test_nothing_is_found_in_a_function_that_runs_once(shop: Shop, store: Once, clock: FrozenClock) -> None:
    charge = shops.in_function(shop, store)
    report = assert_idempotent(charge, effects=shop.count, patience=0.03, before_retry=lambda: clock.move("61s"))
    check(report, "sqlite3 Connection.execute")


def test_a_naive_coroutine_fails_under_every_schedule(postgres_shop: Shop) -> None:
    assert set(faults(shops.naive_async(postgres_shop.place), postgres_shop)) == ALL


def test_a_coroutine_that_checks_first_fails_beside_another_task_alone(postgres_shop: Shop) -> None:
    assert set(faults(shops.checks_first_async(postgres_shop.place), postgres_shop)) == {"concurrent"}


def test_nothing_is_found_in_a_coroutine_that_uses_a_transaction(postgres_shop: Shop) -> None:
    charge = shops.in_transaction_async(postgres_shop.place)
    report = assert_idempotent(charge, effects=postgres_shop.count, unknown=never, patience=0.03)
    check(report, "psycopg commit")
    assert report.runs["lost"] > 2


def test_nothing_is_found_with_asyncpg_either(postgres_shop: Shop) -> None:
    charge = shops.in_transaction_asyncpg(postgres_shop.place)
    schedules = ["duplicate", "lost", "concurrent"]  # each driver is killed in the tests of once.transaction
    report = assert_idempotent(charge, effects=postgres_shop.count, schedules=schedules, unknown=never, patience=0.03)
    assert min(report.runs["lost"], report.runs["concurrent"]) > 5


def test_nothing_is_found_in_a_coroutine_function_that_runs_once(shop: Shop, store: Once, clock: FrozenClock) -> None:
    charge = shops.in_coroutine_function(shop, store)
    report = assert_idempotent(charge, effects=shop.count, patience=0.03, before_retry=lambda: clock.move("61s"))
    check(report, "sqlite3 Connection.execute")
