"""An answer of the store is lost: its statement has done its work, and later calls see what the page says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

import psycopg
import pytest

from semel import once
from semel.once import Once, OnceError, database
from semel.once.errors import StoreUnavailable
from semel.once.table import Row, Statement
from tests.once.conftest import fresh_schema

SIGNS = {
    "claim": "INSERT INTO",
    "find": "SELECT fingerprint",
    "take over": "attempt = attempt + 1",
    "finish": "SET state = ?",
    "release": "DELETE",
    "abandon": "lease_until = 0",
    "forget": "DELETE",
    "resolve": "SET state = 'done'",
}
"""A part of the statement of each act."""


class Losing:
    """A network that loses the answer to one statement, and after it every one until it is whole again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lost = ""
        """The act whose answer is lost next."""
        self.is_repeated = True
        """Whether the database is there again at once."""
        self.is_away = False
        self._run_on = database.run_on
        patch.setattr(database, "run_on", self.run_on)

    def run_on(self, connection: Any, statement: Statement, limit: Any) -> Sequence[Row]:
        if self.is_away:
            raise psycopg.OperationalError("the database is away")
        rows = self._run_on(connection, statement, limit)
        if self.lost and SIGNS[self.lost] in statement.sql:
            self.lost, self.is_away = "", not self.is_repeated
            raise psycopg.OperationalError("the answer was lost")
        return rows


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Losing:
    """A network that loses nothing yet."""
    return Losing(monkeypatch)


@pytest.fixture
def store(losing: Losing) -> Iterator[Once]:
    """Receipts in PostgreSQL."""
    with closing(Once(fresh_schema())) as made:
        made.store.create()
        yield made


class Case(NamedTuple):
    """One row: an act, what was before it, how the function ends, and what is seen."""

    act: str
    before: str
    """`unknown` or `done`: the receipt of an earlier call."""
    on_crash: str
    raises: type[Exception] | None
    ends: object
    """What the call returns whose answer was lost, or the error that it raises."""
    runs: int
    """How often the function has run then."""
    retry: object
    """The same for the retry."""
    runs_then: int


NOTHING = ("", "refuse", None)
REPEATED = (
    Case("claim", *NOTHING, 1, 1, 1, 1),
    Case("find", "done", "refuse", None, 1, 1, 1, 1),
    Case("take over", "unknown", "retry", None, 2, 2, 2, 2),
    Case("take over", "unknown", "ask", None, 2, 2, 2, 2),
    Case("finish", *NOTHING, 1, 1, 1, 1),
    Case("release", "", "refuse", ValueError, ValueError, 1, 2, 2),
    Case("abandon", "", "refuse", TimeoutError, TimeoutError, 1, once.OutcomeUnknown, 1),
    Case("abandon", "", "retry", TimeoutError, TimeoutError, 1, 2, 2),
)
"""The statement is repeated on a new connection, and finds what it has done itself."""
AWAY = (
    Case("claim", *NOTHING, StoreUnavailable, 0, 1, 1),
    Case("find", "done", "refuse", None, StoreUnavailable, 1, 1, 1),
    Case("take over", "unknown", "retry", None, StoreUnavailable, 1, 2, 2),
    Case("take over", "unknown", "ask", None, StoreUnavailable, 1, 2, 2),
    Case("finish", *NOTHING, once.OutcomeUnknown, 1, 1, 1),
    Case("release", "", "refuse", ValueError, ValueError, 1, 2, 2),
    Case("abandon", "", "refuse", TimeoutError, TimeoutError, 1, once.OutcomeUnknown, 1),
)
"""The database stays away until the call has ended, and is there again for the retry."""


class Charging:
    """A function that charges, and what its bank is asked."""

    def __init__(self, store: Once, case: Case) -> None:
        self.runs = 0
        self.asked = 0
        self.raises: type[Exception] | None = None
        asking: dict[str, Any] = {"ask": self.ask} if case.on_crash == "ask" else {}
        options: dict[str, Any] = {"on_crash": case.on_crash, "lease": "0.5s", "scope": "shop"}
        self.charge = store.once(key="order", **options, **asking)(self.run)

    def run(self, order: str) -> int:
        self.runs += 1
        if self.raises is not None:
            raise self.raises
        return self.runs

    def ask(self, order: str) -> None:
        self.asked += 1

    def seen(self) -> object:
        """What a call returns, or the class of its error."""
        try:
            return self.charge("7")
        except Exception as error:  # noqa: BLE001 - it is compared
            return type(error)


def name_of(case: Case) -> str:
    return f"{case.act}-{case.before}-{case.on_crash}"


def prepared(store: Once, case: Case) -> Charging:
    found = Charging(store, case)
    if case.before == "unknown":
        found.raises = TimeoutError
    if case.before:
        with suppress(TimeoutError):
            found.charge("7")
    found.raises = case.raises
    return found


@pytest.mark.parametrize("case", REPEATED, ids=name_of)
def test_a_statement_whose_answer_is_lost_is_repeated(losing: Losing, store: Once, case: Case) -> None:
    check(losing, prepared(store, case), case, is_repeated=True)


@pytest.mark.parametrize("case", AWAY, ids=name_of)
def test_a_database_that_stays_away_loses_and_doubles_nothing(losing: Losing, store: Once, case: Case) -> None:
    check(losing, prepared(store, case), case, is_repeated=False)


def check(losing: Losing, found: Charging, case: Case, *, is_repeated: bool) -> None:
    losing.lost, losing.is_repeated = case.act, is_repeated
    assert (found.seen(), found.runs) == (case.ends, case.runs)
    assert not losing.lost, "the statement has run"
    losing.is_away, found.raises = False, None
    assert (until_decided(found), found.runs) == (case.retry, case.runs_then)
    assert (found.seen(), found.runs) == (case.retry, case.runs_then)
    if case.on_crash == "ask":
        assert found.asked == 1


def until_decided(found: Charging) -> object:
    """A retry; one that comes before the lease of a claim without an answer has ended waits for it."""
    said = found.seen()
    while said is once.InFlight:
        said = found.seen()
    return said


@pytest.mark.parametrize("act", ["resolve", "forget"])
@pytest.mark.parametrize("is_repeated", [True, False])
def test_what_a_person_decides_is_told_as_done(losing: Losing, store: Once, act: str, is_repeated: bool) -> None:
    case = Case(act, "unknown", *NOTHING[1:], None, 0, None, 0)
    found = prepared(store, case)
    losing.lost, losing.is_repeated = act, is_repeated
    ways: dict[str, Callable[[], object]] = {
        "resolve": lambda: found.charge.resolve("7", 99),
        "forget": lambda: found.charge.forget("7"),
    }
    if is_repeated:
        assert ways[act]() is (True if act == "forget" else None)
    else:
        with pytest.raises(StoreUnavailable):
            ways[act]()
        losing.is_away = False
        assert ways[act]() is (False if act == "forget" else None)
    assert (found.seen(), found.runs) == ((99, 1) if act == "resolve" else (2, 2))


def test_a_key_that_another_result_has_is_not_resolved_again(store: Once) -> None:
    found = prepared(store, Case("resolve", "unknown", *NOTHING[1:], None, 0, None, 0))
    found.charge.resolve("7", 99)
    with pytest.raises(OnceError, match="nothing to resolve"):
        found.charge.resolve("7", 98)
    assert found.seen() == 99
