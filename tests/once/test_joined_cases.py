"""Joined requests in the situations in which a transaction is not what it seems: each on a real database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any

import anyio
import psycopg
import pytest
import sqlalchemy
from psycopg_pool import ConnectionPool
from sqlalchemy.orm import Session

from semel import once
from semel.once import runs
from semel.once.database import CONNECTIONS
from semel.once.drivers import sqlalchemy as sqlalchemy_driver
from tests.once import joined_world as worlds
from tests.once.joined_world import BrokenHandlerError, Reply, World, done, entered
from tests.testing.web_shops import Base, WebOrder

Send = Callable[[dict[str, Any]], Awaitable[None]]


@pytest.fixture(params=[worlds.Sqlite3Asgi, worlds.AsyncPsycopgAsgi, worlds.AsyncpgAsgi, worlds.PsycopgWsgi])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each kind of driver."""
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[World]:
    """Charges in PostgreSQL, receipts of requests in a file."""
    with opened(worlds.PostgresWorld, tmp_path, str(tmp_path / "receipts.db")) as made:
        yield made


@contextmanager
def opened(kind: type[World], folder: Path, receipts: str = "") -> Iterator[World]:
    """A world with a new key."""
    made = kind(folder, receipts)
    made.begin()
    yield made
    made.close()


class Careful:
    """An application inside of a framework that answers 500 for every exception, and raises it again."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Pass on; what is raised becomes an answer."""
        try:
            await self._app(scope, receive, send)
        except Exception:
            await answer(send, "Internal Server Error", 500)
            raise


async def answer(send: Send, body: object, status: int = 200) -> None:
    """A whole answer."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": str(body).encode()})


def test_a_receipt_that_has_expired_is_no_sign_of_a_commit(world: World) -> None:
    assert world.attempt("BCA", "refuse") == Reply(200, "charge 1")
    world.change("UPDATE semel_once SET expires_at = 1")
    world.store.once(key=str, scope="request:")(lambda key: None).forget(world.key)
    assert world.attempt("BRA", "refuse") == Reply(200, "charge 2")
    assert [world.attempt("BCA", "refuse") for _ in range(2)] == [Reply(200, "charge 3")] * 2
    assert world.rows() == [1, 3]


@pytest.mark.parametrize("end", ["C", "R"])
def test_a_receipt_that_cannot_be_read_leaves_it_to_the_retry(postgres: World, end: str) -> None:
    hidden = False

    async def handle(scope: Any, receive: Any, send: Send) -> None:
        nonlocal hidden
        if hidden:
            postgres.change("ALTER TABLE hidden RENAME TO semel_once")
        with psycopg.connect(postgres.url) as connection:  # type: ignore[attr-defined]
            with once.transaction(connection) as attempt:
                if attempt.fresh:
                    connection.execute(postgres.charge.encode())
                    attempt.result = f"charge {postgres.number}"
            (connection.commit if end == "C" or hidden else connection.rollback)()
        if not hidden:
            postgres.change("ALTER TABLE semel_once RENAME TO hidden")
            hidden = True
        await answer(send, attempt.result)

    postgres.handle = handle  # type: ignore[method-assign]
    last = "charge 1" if end == "C" else "charge 2"
    assert [postgres.attempt("", "refuse") for _ in range(3)] == [
        Reply(200, "charge 1"), Reply(200, last), Reply(200, last),
    ]  # fmt: skip
    assert postgres.rows() == [int(last[-1])]


def test_a_transaction_that_an_expired_attribute_has_begun_delays_the_answer_only(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'orders.db'}")
    Base.metadata.create_all(engine)
    once.migrate(engine)
    was_open: list[bool] = []

    async def handle(scope: Any, receive: Any, send: Send) -> None:
        with Session(engine) as session:
            order = WebOrder()
            with once.transaction(session) as attempt:
                session.add(order)
                session.flush()
                attempt.result = order.id
            session.commit()
            await answer(send, order.id)  # it has expired: SQLAlchemy reads it anew
            was_open.append(session.in_transaction())

    with opened(worlds.SqliteWorld, tmp_path) as shop:
        shop.handle = handle  # type: ignore[method-assign]
        assert [shop.attempt("", "refuse") for _ in range(2)] == [Reply(200, "1")] * 2
    assert was_open == [True]
    engine.dispose()


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_connection_that_serves_somebody_else_says_nothing(postgres: World, end: str) -> None:
    runs: list[int] = []
    with ConnectionPool(postgres.url, min_size=1, max_size=1, open=True) as pool:  # type: ignore[attr-defined]

        async def handle(scope: Any, receive: Any, send: Send) -> None:
            runs.append(1)
            with pool.connection() as connection:
                with once.transaction(connection) as attempt:
                    if attempt.fresh:
                        connection.execute(postgres.charge.encode())
                        attempt.result = len(runs)
                if end == "rollback" and len(runs) == 1:
                    connection.rollback()
            other = pool.getconn()
            other.execute(b"SELECT 1")  # somebody else has a transaction on the connection now
            held.append(other)
            await answer(send, attempt.result)

        postgres.handle = handle  # type: ignore[method-assign]
        replies = []
        for _ in range(3):
            held: list[Any] = []
            replies.append(postgres.attempt("", "refuse"))
            for other in held:
                other.rollback()
                pool.putconn(other)
    if end == "commit":
        assert (replies, len(runs)) == ([Reply(200, "1")] * 3, 1)
    else:
        assert (replies, len(runs)) == ([Reply(200, "1"), Reply(200, "2"), Reply(200, "2")], 2)
    assert len(postgres.rows()) == 1


FATES = [
    (200, "stored"), (201, "stored"), (302, "stored"), (404, "stored"), (422, "stored"),
    (401, "run"), (409, "run"), (429, "run"), (500, "run"), (503, "run"), (0, "run"),
]  # fmt: skip
"""What becomes of the key of a committed request, by its answer; without one it raised."""


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", [worlds.Sqlite3Asgi, worlds.Sqlite3Wsgi, worlds.AsyncPsycopgAsgi, worlds.PsycopgWsgi])
@pytest.mark.parametrize("on_crash", ["refuse", "retry"])
def test_what_becomes_of_the_key_of_a_joined_request(
    kind: type[World], end: str, on_crash: str, tmp_path: Path
) -> None:
    status, runs = 0, 0

    async def play(target: Any) -> str:
        nonlocal runs
        runs += 1
        async with entered(once.transaction(target)) as attempt:
            if attempt.fresh:
                await done(shop.run(target, shop.charge))
                attempt.result = f"charge {shop.number}"
        await done((shop.commit if end == "commit" else shop.rollback)(target))
        await done(target.close())
        if not status:
            raise BrokenHandlerError
        return str(attempt.result)

    async def handle(scope: Any, receive: Any, send: Send) -> None:
        await answer(send, await play(await done(shop.connect())), status)

    def handle_blocking(environ: Any, start_response: Any) -> list[bytes]:
        body = asyncio.run(play(shop.connect()))
        start_response(f"{status} Whatever", [])
        return [body.encode()]

    with opened(kind, tmp_path) as shop:
        shop.handle, shop.handle_blocking = handle, handle_blocking  # type: ignore[attr-defined,method-assign]
        for status, fate in FATES:
            shop.begin()
            runs = 0
            replies = [shop.attempt("", on_crash) for _ in range(3)]
            first = "charge 1" if status else ""
            if end == "rollback":
                found = [f"charge {number}" if status else "" for number in (1, 2, 3)]
                assert (runs, shop.rows()) == (3, [])
            else:
                found = [first] * 3
                assert (runs, shop.rows()) == (1 if fate == "stored" else 3, [1])
            assert replies == [Reply(status, body) for body in found], status


@pytest.mark.parametrize("fails", ["behind the answer", "large", "events"])
def test_a_framework_may_replace_the_answer_that_was_held_back(fails: str, tmp_path: Path) -> None:
    async def handle(scope: Any, receive: Any, send: Send) -> None:
        connection = shop.connect()
        try:
            with once.transaction(connection) as attempt:
                shop.run(connection, shop.charge)
                attempt.result = 1
            kind = b"text/event-stream" if fails == "events" else b"text/plain"
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            body = b"x" * (2_000_000 if fails == "large" else 10)
            await send({"type": "http.response.body", "body": body, "more_body": fails != "behind the answer"})
            raise BrokenHandlerError
        finally:
            connection.close()

    with opened(worlds.Sqlite3Asgi, tmp_path) as shop:
        shop.handle = Careful(handle)  # type: ignore[method-assign]
        for _ in range(2):
            assert shop.attempt("", "refuse") == Reply(500, "Internal Server Error")
        assert shop.rows() == []


@pytest.mark.parametrize("fails", ["raises", "answers 500", "answers 200"])
@pytest.mark.parametrize("world", [worlds.Sqlite3Asgi, worlds.AsyncPsycopgAsgi, worlds.AsyncpgAsgi], indirect=True)
def test_what_the_database_refuses_of_a_block_is_the_answer(world: World, fails: str) -> None:
    async def handle(scope: Any, receive: Any, send: Send) -> None:
        target = await done(world.connect())
        try:
            async with entered(once.transaction(target, wait="0.2s")) as attempt:
                attempt.result = "charged"
            await done(world.commit(target))
            await answer(send, attempt.result)
        except once.OnceError:
            if fails == "raises":
                raise
            await answer(send, "mine", 500 if fails == "answers 500" else 200)
        finally:
            await done(target.close())

    world.handle = handle  # type: ignore[method-assign]
    row = f"'', '{world.key}', {'zeroblob(32)' if isinstance(world, worlds.SqliteWorld) else repr(chr(92) + 'x00')}"
    world.change(
        "INSERT INTO semel_once (scope, key, fingerprint, state, created_at, expires_at) "
        f"VALUES ({row}, 'done', 1, 9000000000000)"
    )
    replies = [world.attempt("", "refuse") for _ in range(2)]
    assert {reply.status for reply in replies} == {200 if fails == "answers 200" else 422}
    assert all("key_mismatch" in reply.body for reply in replies) or fails == "answers 200"
    world.change("DELETE FROM semel_once")
    if fails != "answers 200":
        assert world.attempt("", "refuse") == Reply(200, "charged")


@pytest.mark.parametrize(
    "kind", [worlds.AsyncpgAsgi, worlds.AsyncSessionPostgres, worlds.SessionPostgresAsgi, worlds.SessionWsgi]
)
def test_a_table_that_is_locked_leaves_it_to_the_retry(
    kind: type[World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (runs, sqlalchemy_driver):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    with opened(kind, tmp_path, str(tmp_path / "receipts.db")) as shop:
        with psycopg.connect(shop.url) as lock:  # type: ignore[attr-defined]
            commit = shop.commit

            async def locking(target: Any) -> None:
                await done(commit(target))
                lock.execute(b"LOCK TABLE semel_once IN ACCESS EXCLUSIVE MODE")

            shop.commit = locking if shop.is_eager else lambda target: asyncio.run(locking(target))  # type: ignore[method-assign]
            assert shop.attempt("BCA", "refuse") == Reply(200, "charge 1")
            shop.commit = commit  # type: ignore[method-assign]
            lock.rollback()
        assert [shop.attempt("BCA", "refuse") for _ in range(2)] == [Reply(200, "charge 1")] * 2
        assert shop.rows() == [1]


def test_a_receipt_for_which_no_thread_is_free_leaves_it_to_the_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PATIENCE_SECONDS", 0.2)
    free = threading.Event()
    with opened(worlds.AsyncPsycopgAsgi, tmp_path) as shop:
        commit = shop.commit

        async def busy(target: Any) -> None:
            await commit(target)
            for _ in range(CONNECTIONS):
                shop.store.store.database.submit(free.wait)
            threading.Timer(1, free.set).start()

        shop.commit = busy  # type: ignore[method-assign]
        assert shop.attempt("BCA", "refuse") == Reply(200, "charge 1")
        shop.commit = commit  # type: ignore[method-assign]
        assert [shop.attempt("BCA", "refuse") for _ in range(2)] == [Reply(200, "charge 1")] * 2
        assert shop.rows() == [1]


@pytest.mark.parametrize("world", [worlds.SessionAsgi, worlds.AsyncPsycopgAsgi, worlds.AsyncpgAsgi], indirect=True)
@pytest.mark.parametrize("has_committed", [False, True])
def test_a_scope_that_goes_on_cancelling_leaves_the_key_to_the_retry(world: World, has_committed: bool) -> None:
    play, protected = type(world).handle, world.protected
    limits: list[anyio.CancelScope] = []

    async def handle(scope: Any, receive: Any, send: Send) -> None:
        target = await done(world.connect())
        try:
            async with entered(once.transaction(target)) as attempt:
                await done(world.run(target, world.charge))
                attempt.result = f"charge {world.number}"
            if has_committed:
                await done(world.commit(target))
            limits[-1].cancel()
            await asyncio.sleep(25)
        finally:
            with anyio.CancelScope(shield=True):
                await done(target.close())

    async def limited(scope: Any, receive: Any, send: Send) -> None:
        with anyio.CancelScope() as limit:  # unlike asyncio's, it cancels each further wait too
            limits.append(limit)
            await protected("refuse")(scope, receive, send)

    world.handle = handle  # type: ignore[method-assign]
    world.protected = lambda on_crash: limited  # type: ignore[method-assign]
    assert world.attempt("", "refuse") == Reply()
    world.protected = protected  # type: ignore[method-assign]
    world.handle = MethodType(play, world)  # type: ignore[method-assign]
    last = "charge 1" if has_committed else "charge 2"
    assert [world.attempt("BCA", "refuse") for _ in range(2)] == [Reply(200, last)] * 2
    assert world.rows() == [1 if has_committed else 2]
