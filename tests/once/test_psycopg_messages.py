"""What `once.transaction` sends through psycopg: how many messages, and that what is quoted arrives as it was."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from semel import once
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema

NASTY = ["it's", 'say "x"', "back\\slash", "E'\\x00'", "$1 %s %% ?", "--; DROP TABLE charges", "ünï✓", "'; COMMIT; --"]


@pytest.fixture
def url() -> str:
    """A schema with the table of receipts and one of charges."""
    found = fresh_schema()
    with psycopg.connect(found) as connection:
        connection.execute(once.ddl("postgresql").encode())
        connection.execute("CREATE TABLE charges (amount int)")
    return found


def charged(connection: psycopg.Connection[Any], key: str, result: Any = 1, **options: Any) -> once.Attempt:
    """One charge."""
    with once.transaction(connection, key, {"amount": 5}, scope="customer's", **options) as attempt:
        if attempt.fresh:
            connection.execute("INSERT INTO charges VALUES (5)")
            attempt.result = result
    return attempt


def sent(connection: psycopg.Connection[Any], work: Any, path: Path) -> int:
    """How many messages of a round trip each were sent: queries, and syncs behind those with parameters."""
    with path.open("w+b") as file:
        connection.pgconn.trace(file.fileno())
        work()
        connection.pgconn.untrace()
        file.seek(0)
        return sum(line.split(b"\t")[1:4:2] in ([b"F", b"Query"], [b"F", b"Sync"]) for line in file)


def test_a_block_costs_one_round_trip_more_than_the_work_in_it(url: str, tmp_path: Path) -> None:
    with psycopg.connect(url) as connection:

        def bare() -> None:
            connection.execute("INSERT INTO charges VALUES (5)")
            connection.commit()

        def kept(key: str) -> None:
            assert charged(connection, key).fresh
            connection.commit()

        assert sent(connection, bare, tmp_path / "bare") == 3  # BEGIN, INSERT, COMMIT
        # One transaction of 64 in this process sweeps too, so of two that follow one another one does not.
        assert min(sent(connection, partial(kept, key), tmp_path / key) for key in ("a", "b")) == 4


def prepared(connection: psycopg.Connection[Any], how: str) -> None:
    """A connection as people have it."""
    if how == "latin":
        connection.execute("SET client_encoding TO 'LATIN9'")
    elif how == "quoting":
        connection.execute("SET standard_conforming_strings = off")
    elif how == "select":
        connection.execute("SELECT 1")
        return
    connection.commit()
    if how == "serializable":
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    elif how == "autocommit":
        connection.autocommit = True
        connection.execute("BEGIN")


@pytest.mark.parametrize("how", ["plain", "select", "quoting", "serializable", "autocommit", "latin"])
def test_every_text_arrives_as_it_was(url: str, how: str) -> None:
    texts = [one for one in NASTY if how != "latin" or "✓" not in one]
    with psycopg.connect(url) as connection:
        prepared(connection, how)
        for turn in (True, False):
            for text in texts:
                attempt = charged(connection, text, {text: [text, None]})
                assert (attempt.fresh, attempt.result) == (turn, {text: [text, None]})
        connection.commit()
        found = connection.execute("SELECT scope, key FROM semel_once").fetchall()
        assert {tuple(row) for row in found} == {("customer's", text) for text in texts}
        assert connection.execute("SELECT count(*) FROM charges").fetchone() == (len(texts),)


def test_a_connection_in_pipeline_mode_is_refused(url: str) -> None:
    with psycopg.connect(url) as connection:
        with connection.pipeline(), pytest.raises(once.UnsupportedConnection, match="pipeline mode"):
            charged(connection, "k")
        assert charged(connection, "k").fresh


def test_a_failed_transaction_is_told_as_it_is(url: str) -> None:
    with psycopg.connect(url) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM no_such_table")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            charged(connection, "k")
        connection.rollback()
        assert charged(connection, "k").fresh


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_transaction_usable(url: str) -> None:
    async def cancelled(other: psycopg.Connection[Any]) -> int:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("INSERT INTO charges VALUES (1)")

            async def wait() -> None:
                async with once.transaction(connection, "k", scope=None):
                    raise AssertionError("another transaction has the key")

            task = asyncio.create_task(wait())
            await asyncio.to_thread(eventually, lambda: waiting(other), "it waits for the key")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await connection.commit()  # what was done before the block
            row = await (await connection.execute("SELECT sum(amount) FROM charges")).fetchone()
            assert row is not None
            return int(row[0])

    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as other:
        with once.transaction(holder, "k", scope=None):
            assert asyncio.run(asyncio.wait_for(cancelled(other), 60)) == 1
        holder.commit()


def waiting(connection: psycopg.Connection[Any]) -> bool:
    """Whether a transaction waits for another one of this schema."""
    found = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%semel_once%'"
    ).fetchone()
    return found is not None and bool(found[0])
