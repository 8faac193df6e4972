"""SQLite, where the receipts of requests may be in the handlers' own file: who locks it is told so."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from semel import once
from semel.once import ResultError, UnsupportedConnection
from semel.once.transaction import driver_of
from tests.once import joined_world as worlds
from tests.once.joined_world import Reply, World, done, entered

KINDS: dict[str, type[worlds.SqliteWorld]] = {
    "sqlite3": worlds.Sqlite3Asgi,
    "session": worlds.SessionAsgi,
    "async session": worlds.AsyncSessionSqlite,
}


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Charges and the receipts of requests in one file."""
    made = KINDS[request.param](tmp_path, str(tmp_path / "shop.db"))
    made.begin()
    yield made
    made.close()


def plays(world: World, before: Callable[[Any], Any]) -> list[str]:
    """A handler that does something before its block. Returns the list of what it raises."""
    raised: list[str] = []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        target = await done(world.connect())
        try:
            await done(before(target))
            async with entered(once.transaction(target)) as attempt:
                if attempt.fresh:
                    await done(world.run(target, world.charge))
                    attempt.result = "charged"
            await done(world.commit(target))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": attempt.result.encode()})
        except UnsupportedConnection as error:
            raised.append(str(error))
            raise
        finally:
            await done(target.close())

    world.handle = handle  # type: ignore[method-assign]
    return raised


def test_a_write_before_the_block_is_told_and_leaves_nothing(world: World) -> None:
    raised = plays(world, lambda target: world.run(target, world.charge))
    assert world.attempt("", "refuse") == Reply()
    assert len(raised) == 1
    assert "begin once.transaction before the first write and without BEGIN IMMEDIATE" in raised[0]
    assert world.rows() == []
    plays(world, lambda target: None)
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "charged")] * 2
    assert len(world.rows()) == 1


def test_a_read_before_the_block_is_fine(world: World) -> None:
    raised = plays(world, lambda target: world.run(target, "SELECT count(*) FROM charges"))
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "charged")] * 2
    assert (raised, len(world.rows())) == ([], 1)


def test_a_transaction_that_locks_at_once_is_told_too(tmp_path: Path) -> None:
    made = worlds.Sqlite3Asgi(tmp_path, str(tmp_path / "shop.db"))
    made.begin()
    raised = plays(made, lambda target: target.execute("BEGIN IMMEDIATE"))
    assert made.attempt("", "refuse") == Reply()
    assert (len(raised), made.rows()) == (1, [])
    made.close()


def test_the_lock_of_somebody_else_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["semel.once.transaction"], "OWN_LOCK_SECONDS", 0.05)
    marking = threading.Event()
    with closing(sqlite3.connect(world.file, isolation_level=None, check_same_thread=False)) as other:  # type: ignore[attr-defined]

        def lock(_: Any) -> None:
            other.execute("BEGIN IMMEDIATE")
            threading.Timer(0.5, other.execute, ["COMMIT"]).start()
            marking.set()

        raised = plays(world, lambda target: None if marking.is_set() else lock(target))
        assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "charged")] * 2
        assert (raised, len(world.rows())) == ([], 1)


def test_apsw_and_the_store_do_not_write_to_one_file(tmp_path: Path) -> None:
    made = worlds.ApswAsgi(tmp_path, str(tmp_path / "shop.db"))
    made.begin()
    raised = plays(made, lambda target: None)
    assert made.attempt("", "refuse") == Reply()
    assert [text.partition(":")[0] for text in raised] == [
        "apsw and the store of receipts are two copies of SQLite, which do not see each other's locks"
    ]
    assert made.rows() == []
    made.close()


def test_a_connection_that_another_thread_uses_may_have_an_open_transaction(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "shop.db"))
    connection.execute("BEGIN")
    driver, has_begun, may_end = driver_of(connection), threading.Event(), threading.Event()

    def progress() -> bool:
        has_begun.set()
        may_end.wait(25)
        return False

    connection.set_progress_handler(progress, 1)
    working = threading.Thread(target=lambda: connection.execute("SELECT 1").fetchall())
    working.start()
    assert has_begun.wait(25)
    is_open = driver.is_open()
    may_end.set()
    working.join()
    assert is_open
    connection.execute("ROLLBACK")
    assert not driver.is_open()
    connection.close()
    assert not driver.is_open()


@pytest.mark.parametrize("what", ["events", "large"])
def test_a_joined_request_that_streams_is_told_what_to_do(world: World, what: str) -> None:
    raised: list[str] = []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        target = await done(world.connect())
        try:
            async with entered(once.transaction(target)) as attempt:
                await done(world.run(target, world.charge))
                attempt.result = 1
            kind = b"text/event-stream" if what == "events" else b"text/plain"
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": b"x" * 2_000_000, "more_body": True})
        except ResultError as error:
            raised.append(str(error))
            raise
        finally:
            await done(target.close())

    world.handle = handle  # type: ignore[method-assign]
    assert world.attempt("", "refuse") == Reply()
    assert [text.partition(": ")[2] for text in raised] == [
        "commit before the answer, raise max_answer=, or pass a key to once.transaction."
    ]
    assert world.rows() == []
