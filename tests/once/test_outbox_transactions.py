"""A message in the caller's own transaction, over every driver: it commits with the data, or neither is there."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest

from semel import once
from semel.once import Outbox
from semel.once.dispatcher import Flushed
from tests.harness.together import at_once
from tests.once.counter import counting
from tests.once.houses import House, Play
from tests.once.script import BrokenError, Call, Effect, fail

RACERS = 8
MESSAGES = "SELECT key FROM semel_outbox ORDER BY number"


class Posting:
    """A block that posts a message at its end, for drivers of both kinds."""

    def __init__(self, connection: Any, key: str, options: dict[str, Any]) -> None:
        facts: dict[str, Any] = {"url": "http://127.0.0.1:1/x", "json": 1, "key": key, "order_by": "shop"} | options
        limits = {name: facts.pop(name) for name in ("table",) if name in facts}
        self._box = Outbox.in_transaction(connection, **limits)
        self._facts = facts
        self._attempt = once.Attempt(key, "", fresh=True)

    def __enter__(self) -> once.Attempt:
        return self._attempt

    def __exit__(self, *_: object) -> None:
        self._attempt.result = self._box.post(**self._facts).fresh

    async def __aenter__(self) -> once.Attempt:
        return self._attempt

    async def __aexit__(self, *_: object) -> None:
        self._attempt.result = (await self._box.post_async(**self._facts)).fresh


class PostPlay(Play):
    """A transaction that acts, and then posts a message."""

    def begin(self, connection: Any) -> Any:
        """The block."""
        return Posting(connection, str(self.key), self.options)


@pytest.fixture
def shop(house: House) -> House:
    """Each driver in turn, on a database with an outbox."""
    if house.is_postgres:
        with psycopg.connect(house.place, autocommit=True) as connection:
            connection.execute(once.outbox_ddl("postgresql").encode())
    else:
        file = sqlite3.connect(house.place)
        file.executescript(once.outbox_ddl("sqlite"))
        file.close()
    return house


def posts(**facts: Any) -> PostPlay:
    """A transaction that posts and charges."""
    return PostPlay(**({"actions": (Effect(),)} | facts))


def test_a_message_commits_with_the_callers_data_and_is_delivered_once(shop: House) -> None:
    with counting() as service:
        play = posts(key="charge-7", options={"url": f"{service.url}/x", "json": {"amount": 5}})
        assert [shop.play(play).result for _ in range(2)] == [True, False]
        assert (shop.charges(), shop.query(MESSAGES)) == (2, [("charge-7",)])
        box = Outbox(shop.place)
        assert box.flush_sync(20).delivered == 1
        assert not shop.play(play).result
        box.flush_sync(20)
        box.close()
        assert [(one.key, one.body) for one in service.arrived] == [('"charge-7"', b'{"amount":5}')]


def test_a_transaction_that_fails_leaves_neither_data_nor_message(shop: House) -> None:
    with pytest.raises(BrokenError):
        shop.play(posts(actions=(Effect(), Call(fail))))
    assert (shop.charges(), shop.query(MESSAGES)) == (0, [])


def test_a_refused_message_leaves_the_rest_of_the_transaction_as_it_was(shop: House) -> None:
    shop.play(posts(key="a"))
    for error, play in {
        once.KeyMismatch: posts(key="a", options={"json": 2}),
        once.TableMissing: posts(key="c", options={"table": "elsewhere"}),
    }.items():
        with pytest.raises(error):
            shop.play(play._replace(catches=error))
    assert (shop.charges(), shop.query(MESSAGES)) == (3, [("a",)])


def test_racers_with_one_key_post_one_message(shop: House) -> None:
    found = at_once([lambda: shop.play(posts(key="k"))] * RACERS)
    assert sorted(bool(one.result) for one in found) == [False] * (RACERS - 1) + [True]
    assert (shop.charges(), shop.query(MESSAGES)) == (RACERS, [("k",)])


def test_a_message_that_is_posted_again_is_delivered_while_that_transaction_is_open(shop: House) -> None:
    if not shop.is_postgres:
        return  # SQLite has one writer
    with counting() as service:
        play = posts(key="k", options={"url": f"{service.url}/x"})
        shop.play(play)
        box = Outbox(shop.place)
        flushes: list[Flushed] = []
        assert not shop.play(play._replace(before_commit=lambda: flushes.append(box.flush_sync(20)))).result
        assert [(one.delivered, one.left) for one in flushes] == [(1, 0)]
        box.close()


def test_using_posts_in_a_transaction_of_the_outboxs_own_database(built: Any) -> None:
    shop = built("sqlite3")
    box = Outbox(shop.place)
    connection = sqlite3.connect(shop.place)
    connection.execute("INSERT INTO charges VALUES (1)")
    assert box.post("http://127.0.0.1:1/x", json=1, key="k", using=connection).fresh
    assert box.state("k") is None
    connection.rollback()
    assert box.state("k") is None
    assert box.post("http://127.0.0.1:1/x", json=1, key="k", using=connection).fresh
    connection.commit()
    assert box.state("k") == "queued"
    connection.close()
    box.close()


def test_a_connection_that_commits_each_statement_is_refused(built: Any) -> None:
    with psycopg.connect(built("psycopg").place, autocommit=True) as connection, pytest.raises(once.NotInTransaction):
        Outbox.in_transaction(connection).post("http://x/", json=1)
    plain = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(once.NotInTransaction):
        Outbox.in_transaction(plain).post("http://x/", json=1)
    with pytest.raises(once.UnsupportedConnection, match="without await"):
        asyncio.run(Outbox.in_transaction(plain).post_async("http://x/", json=1))
    plain.close()
    with pytest.raises(once.UnsupportedConnection):
        Outbox.in_transaction(object()).post("http://x/", json=1)


async def _post_without_await(place: str) -> None:
    async with await psycopg.AsyncConnection.connect(place) as connection:
        with pytest.raises(once.UnsupportedConnection, match=r"await box\.post_async"):
            Outbox.in_transaction(connection).post("http://x/", json=1)


def test_post_says_what_to_write_for_an_asynchronous_connection(built: Any) -> None:
    asyncio.run(_post_without_await(built("psycopg-async").place))
