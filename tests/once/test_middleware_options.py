"""The options of the middleware: what is wrong is refused where it is given, and what differs by route does."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel import once
from semel.once import InvalidKey, Middleware, Once, Outbox, WsgiMiddleware, asgi
from semel.once.database import CONNECTIONS
from semel.once.django import once_per_key
from semel.once.http_rules import LARGE_BODY
from semel.testing.apps import AppRequest, Interruption, asgi_answer
from tests.once import joined_world as worlds
from tests.once.doors import AsgiDoor, Door, WsgiDoor
from tests.once.joined_world import Reply


@pytest.fixture
def store() -> Iterator[Once]:
    """Receipts in memory."""
    with closing(Once.memory()) as made:
        yield made


async def whose(request: object) -> str:
    """A scope that would have to be awaited."""
    return "a"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "scope="),
    ({"scope": "tenant"}, "scope="),
    ({"scope": whose}, "coroutine function"),
    ({"scope": None, "on_crash": "Refuse"}, "on_crash"),
    ({"scope": None, "on_crash": "never"}, "on_crash"),
    ({"scope": None, "on_crash": "ask"}, "on_crash"),
    ({"scope": None, "on_error": "Release"}, "on_error"),
    ({"scope": None, "on_error": "retry"}, "on_error"),
    ({"scope": None, "keep": "a day"}, "a day"),
    ({"scope": None, "lease": "0s"}, "lease"),
    ({"scope": None, "wait": -1}, "-1"),
    ({"scope": None, "max_body": "1 MB?"}, "1 MB"),
    ({"scope": None, "max_body": {"/uploads": "big"}}, "big"),
    ({"scope": None, "max_answer": -1}, "-1"),
    ({"scope": None, "max_answer": 1.5}, "1.5"),
    ({"scope": None, "methods": "POST"}, "methods"),
    ({"scope": None, "methods": [b"POST"]}, "methods"),
    ({"scope": None, "methods": ["POST, PATCH"]}, "methods"),
    ({"scope": None, "methods": ()}, "methods"),
    ({"scope": None, "fail_open": "no"}, "fail_open"),
    ({"scope": None, "fail_open": None}, "fail_open"),
    ({"scope": None, "keep": 0}, "keep"),
    ({"scope": None, "keep": "0s"}, "keep"),
    ({"scope": None, "keep": True}, "True"),
    ({"scope": None, "keep": None}, "None"),
    ({"scope": None, "wait": float("nan")}, "nan"),
    ({"scope": None, "require": "/charges"}, "require"),
    ({"scope": None, "require": ["charges"]}, "charges"),
    ({"scope": None, "max_body": {"uploads": "1MiB"}}, "uploads"),
    ({"scope": None, "compare": "body"}, "compare"),
    ({"scope": None, "compare": whose}, "compare"),
    ({"scope": None, "compare": {"/uploads": 5}}, "compare"),
    ({"scope": None, "compare": {"uploads": len}}, "uploads"),
]


@pytest.mark.parametrize("kind", [Middleware, WsgiMiddleware])
@pytest.mark.parametrize(("options", "named"), WRONG, ids=range(len(WRONG)))
def test_an_option_that_is_wrong_is_refused_where_it_is_given(
    kind: Any, options: dict[str, Any], named: str, store: Once
) -> None:
    with pytest.raises((InvalidKey, ValueError), match=named):
        kind(lambda *_: None, store, **options)


@pytest.mark.parametrize("kind", [Middleware, WsgiMiddleware])
def test_a_store_is_not_its_address(kind: Any) -> None:
    with pytest.raises(InvalidKey, match=r"store= must be an Once, as Once\('receipts.db'\), not a str"):
        kind(lambda *_: None, "receipts.db", scope=None)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"scope": "a"}, "scope"),
        ({"scope": whose}, "scope"),
        ({"scope": None, "max_answer": "big"}, "big"),
        ({"scope": None, "keep": "a day"}, "a day"),
        ({"scope": None, "keep": 0}, "keep"),
        ({"scope": None, "wait": "soon"}, "soon"),
        ({"scope": None, "table": "a b"}, "a b"),
        ({"scope": None, "compare": "body"}, "compare"),
        ({"scope": None, "is_required": "no"}, "is_required"),
    ],
)
def test_options_of_a_view_alike(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidKey, match=named):
        once_per_key(**options)


@pytest.mark.parametrize("keep", [0, "0s", "0.1ms", True, None, float("inf")])
def test_no_receipt_is_forgotten_at_once(keep: Any, store: Once, tmp_path: Path) -> None:
    """Each retry would run again."""
    with pytest.raises(InvalidKey):
        store.once(key="order", keep=keep)
    with pytest.raises(InvalidKey):
        Outbox(tmp_path / "outbox.db", keep=keep)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, pytest.raises(InvalidKey):
        once.transaction(connection, "order-7", scope=None, keep=keep)


def test_a_store_that_cannot_keep_receipts_is_refused() -> None:
    with pytest.raises(InvalidKey, match="path of the store is empty"):
        Once("")
    with pytest.raises(InvalidKey, match="codec"):
        Once(":memory:", codec=5)  # type: ignore[arg-type]


@pytest.fixture(params=[AsgiDoor, WsgiDoor])
def door_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Door]]:
    """A door of each kind, with options."""
    opened: list[Door] = []

    def make(**options: Any) -> Door:
        opened.append(request.param(tmp_path, **options))
        return opened[-1]

    yield make
    for door in opened:
        door.close()


def test_what_is_compared_may_differ_by_route(door_of: Callable[..., Door]) -> None:
    door = door_of(
        compare={"/uploads": lambda incoming, body: len(body), "/uploads/exact": lambda incoming, body: body}
    )
    shop = "http://shop.test"
    told = {}
    for path in ("/orders", "/uploads", "/uploads/exact"):
        answers = [door.ask(path, body, url=shop + path).status_code for body in (b"ab", b"cd", b"abc")]
        told[path] = answers
    assert told == {"/orders": [200, 422, 422], "/uploads": [200, 200, 422], "/uploads/exact": [200, 422, 422]}
    # The route and the method belong to the question all the same.
    assert door.ask("/uploads", b"ab", url=shop + "/uploads/other").status_code == 422


def test_how_large_a_body_may_be_may_differ_by_route(door_of: Callable[..., Door]) -> None:
    door = door_of(max_body={"": "1KiB", "/uploads": "4KiB"})
    sizes = (1_024, 1_025, 4_096, 4_097)
    told = [
        [door.ask(f"{path}{size}", b"x" * size, url=f"http://shop.test{path}").status_code for size in sizes]
        for path in ("/orders", "/uploads/1")
    ]
    assert told == [[200, 413, 413, 413], [200, 200, 200, 413]]
    assert door.runs == 4


def test_a_block_is_kept_as_long_as_its_request(tmp_path: Path) -> None:
    world = worlds.Sqlite3Asgi(tmp_path, "")
    world.begin()
    world.protected = lambda on_crash: Middleware(world.handle, world.store, scope=None, keep="36h")  # type: ignore[method-assign]
    assert world.attempt("BCA", "refuse") == Reply(200, "charge 1")
    kept = world.query("SELECT expires_at - created_at FROM semel_once")
    with closing(sqlite3.connect(tmp_path / "receipts.db")) as receipts:
        kept_request = receipts.execute("SELECT expires_at - created_at FROM semel_once").fetchall()
    assert kept == [(36 * 3_600_000,)]
    assert kept_request[0][0] >= kept[0][0]
    world.close()


@pytest.mark.parametrize("stopped", ["cancel", "timeout", "cancel behind the lock"])
def test_a_request_that_is_stopped_while_it_claims_has_not_run(tmp_path: Path, stopped: str) -> None:
    file, runs = str(tmp_path / "receipts.db"), []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        runs.append(1)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    store = Once(file)
    store.store.create()
    app = Middleware(handle, store, scope=None)
    request = AppRequest(app, "/charges", "POST", {}, None, b"", {}, 25.0, "k")

    async def ask() -> tuple[int, bytes]:
        found = await asgi_answer(request, 0, Interruption())
        return found.status, found.body

    async def stop(lock: sqlite3.Connection) -> None:
        lock.execute("BEGIN IMMEDIATE")
        if stopped == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await ask()
            lock.execute("COMMIT")
            return
        task = asyncio.create_task(ask())
        await asyncio.sleep(0.2)  # the claim waits for the lock now, or has not begun: both must end alike
        if stopped == "cancel behind the lock":
            lock.execute("COMMIT")  # the thread of the claim may commit it now
        task.cancel()
        await asyncio.wait({task})
        if lock.in_transaction:
            lock.execute("COMMIT")

    async def play() -> list[tuple[int, bytes]]:
        with closing(sqlite3.connect(file, isolation_level=None)) as lock:
            await stop(lock)
        return [await ask() for _ in range(2)]

    assert asyncio.run(play()) == [(200, b"done")] * 2
    assert len(runs) == 1
    store.close()


@pytest.mark.parametrize("joined", [False, True])
def test_events_of_a_wsgi_application_come_as_they_are_made(tmp_path: Path, joined: bool) -> None:
    world = worlds.Sqlite3Wsgi(tmp_path, "")
    world.begin()
    made: list[int] = []

    def handle(environ: Any, start_response: Any) -> Iterator[bytes]:
        connection = world.connect()
        try:
            if joined:
                with once.transaction(connection) as attempt:
                    world.run(connection, world.charge)
                    attempt.result = 1
            start_response("200 OK", [("Content-Type", "text/event-stream")])
            for number in range(3):
                made.append(number)
                yield b"data: %d\n\n" % number
        finally:
            connection.close()

    app = WsgiMiddleware(handle, world.store, scope=None)
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k", "CONTENT_LENGTH": "0"}
    lines: list[str] = []
    start = lambda line, headers, fault=None: lines.append(line)  # noqa: E731
    if joined:
        with pytest.raises(once.ResultError, match="its request is not over: commit before the answer"):
            app(dict(environ), start)
        assert world.query("SELECT count(*) FROM charges") == [(0,)]
    else:
        answer = app(dict(environ), start)
        assert made == [0]
        assert b"".join(answer) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
        assert b"answer_not_stored" in b"".join(app(dict(environ), start))
        assert lines == ["200 OK", "409 Conflict"]
    world.close()


TENANT: ContextVar[str] = ContextVar("tenant")


@pytest.mark.parametrize("size", [1, 40_000, 900_000])
def test_a_scope_may_come_from_a_context_variable_whatever_the_size_of_the_body(
    door_of: Callable[..., Door], size: int
) -> None:
    door = door_of(scope=lambda incoming: TENANT.get())
    for tenant in ("a", "b"):
        token = TENANT.set(tenant)
        assert [door.ask(body=b"x" * size).status_code for _ in range(2)] == [200, 200]
        TENANT.reset(token)
    assert door.runs == 2


@pytest.mark.parametrize(("fail_open", "status", "runs"), [(False, 503, 0), (True, 200, 1)])
def test_a_large_body_that_no_thread_is_free_to_compare(
    store: Once, monkeypatch: pytest.MonkeyPatch, fail_open: bool, status: int, runs: int
) -> None:
    monkeypatch.setattr(asgi, "PATIENCE_SECONDS", 0.1)
    ran, is_over = list[int](), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ran.append(len((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def asked() -> int:
        transport = httpx.ASGITransport(Middleware(app, store, scope=None, fail_open=fail_open))
        async with httpx.AsyncClient(transport=transport) as client:
            sent = client.post("http://shop.test/", content=b"x" * LARGE_BODY, headers={"Idempotency-Key": "k"})
            return (await sent).status_code

    for _ in range(CONNECTIONS):
        store.store.database.submit(is_over.wait)
    try:
        assert (asyncio.run(asked()), ran) == (status, [LARGE_BODY] * runs)
    finally:
        is_over.set()


@pytest.mark.parametrize("size", [0, LARGE_BODY])
def test_values_that_cannot_be_compared_run_nothing(door_of: Callable[..., Door], size: int) -> None:
    door = door_of(compare=lambda incoming, body: json.loads(body))
    refused = door.ask("k", b"NaN" + b" " * size)
    assert (refused.status_code, refused.json()["code"], door.runs) == (400, "invalid_body", 0)
