"""All orders of block, answer, commit, rollback, exception and kill, then retries: a model says what must happen.

An answer that was sent for a committed charge is the answer of every retry, and no key has two charges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.once import joined_world as worlds
from tests.once.joined_world import GOOD, NOTHING, SCRIPTS, Known, World, expected

WORLDS: dict[str, tuple[type[World], str]] = {
    "asgi-sqlite3": (worlds.Sqlite3Asgi, ""),
    "asgi-apsw": (worlds.ApswAsgi, ""),
    "asgi-session-sqlite": (worlds.SessionAsgi, ""),
    "asgi-async-session-sqlite": (worlds.AsyncSessionSqlite, ""),
    "asgi-psycopg": (worlds.AsyncPsycopgAsgi, ""),
    "asgi-psycopg, receipts in sqlite": (worlds.AsyncPsycopgAsgi, "receipts.db"),
    "asgi-async-session-postgresql": (worlds.AsyncSessionPostgres, ""),
    "asgi-asyncpg": (worlds.AsyncpgAsgi, ""),
    "wsgi-sqlite3": (worlds.Sqlite3Wsgi, ""),
    "wsgi-psycopg": (worlds.PsycopgWsgi, ""),
    "wsgi-session-postgresql": (worlds.SessionWsgi, ""),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Each door with a driver."""
    kind, receipts = WORLDS[request.param]
    folder: Path = tmp_path_factory.mktemp("world")
    made = kind(folder, str(folder / receipts) if receipts else "")
    yield made
    made.close()


def check(world: World, scripts: list[str], on_crash: str) -> None:
    """Play attempts, and two good retries behind them."""
    world.begin()
    known, told = Known(), []
    for number, script in enumerate([*scripts, GOOD, GOOD], 1):
        reply, known = expected(known, number, script, on_crash, is_eager=world.is_eager)
        found = world.attempt(script, on_crash)
        assert (found, world.rows()) == (reply, [] if known.row is None else [known.row]), (scripts, number)
        told.append(found)
    last = told[-1]
    assert last.status == 200 or known == Known(is_open=True), "only what died before its block stays unknown"
    promised = {reply.body for reply in told if reply.body == f"charge {known.row}"}
    assert promised == ({last.body} if last.status == 200 and last.body != NOTHING else set())


@pytest.mark.parametrize("on_crash", ["refuse", "retry"])
def test_each_order_ends_in_one_charge_and_one_answer(world: World, on_crash: str) -> None:
    for script in SCRIPTS:
        check(world, [script], on_crash)


@settings(max_examples=25, database=None, derandomize=True)
@given(st.lists(st.sampled_from(SCRIPTS), min_size=2, max_size=4), st.sampled_from(["refuse", "retry"]))
@example(["BAC", "BCK", "BX"], "refuse")
@example(["BRA", "BCX", "K"], "refuse")
def test_each_order_of_orders_alike(world: World, scripts: list[str], on_crash: str) -> None:
    check(world, scripts, on_crash)
