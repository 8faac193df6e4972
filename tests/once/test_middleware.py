"""`once.Middleware` on a real socket: one effect a key, the same answer to every retry, errors as HTTP has them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel import once
from semel.once import Middleware, Once
from semel.once.claims import Act, ReceiptChange
from semel.once.http_rules import Incoming
from tests.harness.together import at_once
from tests.once.web import served

MIB = 1_048_576


class Shop:
    """An application: it counts what it is asked, and answers as the path says."""

    def __init__(self) -> None:
        self.charges = 0
        self.gate = threading.Event()
        self.gate.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        assert scope["type"] == "http"
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.charges += 1
        number = self.charges
        await asyncio.to_thread(self.gate.wait, 25)
        status = int(scope["path"].rpartition("/")[2]) if scope["path"].rpartition("/")[2].isdigit() else 201
        if scope["path"] == "/broken":
            raise RuntimeError("broken")
        if scope["path"] == "/doubtful":
            raise once.OutcomeUnknown("bank")
        again = [(b"retry-after", b"1")] if scope["query_string"] == b"retry" else []
        headers = [*again, (b"content-type", b"text/plain"), (b"location", b"/charges/%d" % number), (b"x-own", b"s")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["path"].startswith("/large"):
            for _ in range(3):
                await send({"type": "http.response.body", "body": b"x" * MIB, "more_body": True})
        told = b"" if status == 204 else b"charge %d of " % number + body
        await send({"type": "http.response.body", "body": told})


@pytest.fixture
def shop() -> Shop:
    """An application that nobody has asked."""
    return Shop()


Ask = Callable[..., httpx.Response]


def scope_of(incoming: Incoming) -> object:
    """The tenant, by a header."""
    return incoming.header("x-tenant") or "none"


@pytest.fixture
def ask(shop: Shop, tmp_path: Path) -> Iterator[Ask]:
    """POST to the application behind the middleware."""
    store = Once(str(tmp_path / "receipts.db"))
    app = Middleware(shop, store, scope=scope_of, require=["/payments"])
    with served(app) as url, httpx.Client(base_url=url, timeout=30) as client:

        def post(
            path: str = "/charges", key: str | bytes | None = "k", body: bytes = b"5", **headers: str
        ) -> httpx.Response:
            named = [(name.encode(), value.encode()) for name, value in headers.items()]
            if key is not None:
                named.append((b"Idempotency-Key", key if isinstance(key, bytes) else key.encode()))
            return client.post(path, content=body, headers=named)

        yield post
    store.close()


def test_a_retry_gets_the_same_answer_and_is_told_so(ask: Ask, shop: Shop) -> None:
    first, again = ask(), ask()
    assert (first.status_code, first.text, first.headers["location"]) == (201, "charge 1 of 5", "/charges/1")
    assert (again.status_code, again.text, again.headers["location"]) == (201, "charge 1 of 5", "/charges/1")
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["x-own"] == first.headers["x-own"] == "s"
    assert shop.charges == 1


def test_a_quoted_key_and_a_bare_one_are_one_key(ask: Ask, shop: Shop) -> None:
    ask(key='"k1"')
    assert ask(key="k1").headers["idempotency-replayed"] == "true"
    assert shop.charges == 1


@pytest.mark.parametrize("key", [b"", b'""', b"k" * 257, b"\xe9"])
def test_a_key_that_cannot_be_used_is_400(ask: Ask, shop: Shop, key: bytes) -> None:
    assert ask(key=key).status_code == 400
    assert shop.charges == 0


def test_a_key_is_required_where_it_is_said_and_else_not(ask: Ask, shop: Shop) -> None:
    refused = ask("/payments/1", key=None)
    assert (refused.status_code, refused.json()["code"]) == (400, "key_required")
    assert ask("/charges", key=None).status_code == 201
    assert shop.charges == 1


@pytest.mark.parametrize(("path", "body"), [("/charges", b"6"), ("/charges?x=1", b"5"), ("/other", b"5")])
def test_another_request_with_the_key_is_422_and_runs_nothing(ask: Ask, shop: Shop, path: str, body: bytes) -> None:
    ask()
    refused = ask(path, body=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "key_mismatch")
    assert shop.charges == 1


def test_the_keys_of_two_tenants_are_two(ask: Ask, shop: Shop) -> None:
    assert ask(**{"X-Tenant": "a"}).text != ask(**{"X-Tenant": "b"}).text
    assert shop.charges == 2


@pytest.mark.parametrize(
    ("status", "second", "runs"),
    [(200, 200, 1), (404, 404, 1), (422, 422, 1), (429, 429, 2), (409, 409, 2), (500, 409, 1), (503, 409, 1)],
)
def test_which_answers_are_remembered(ask: Ask, shop: Shop, status: int, second: int, runs: int) -> None:
    assert [ask(f"/as/{status}").status_code for _ in range(2)] == [status, second]
    assert shop.charges == runs


@pytest.mark.parametrize(
    ("on_error", "on_crash", "path", "statuses", "runs"),
    [
        ("settle", "refuse", "/as/500", [500, 409], 1),
        ("settle", "retry", "/as/500", [500, 500], 2),
        ("release", "refuse", "/as/500", [500, 500], 2),
        ("remember", "refuse", "/as/500", [500, 500], 1),
        ("settle", "refuse", "/broken", [500, 409], 1),
        ("settle", "retry", "/broken", [500, 500], 2),
        ("release", "refuse", "/broken", [500, 500], 2),
        ("remember", "refuse", "/broken", [500, 409], 1),
        ("settle", "refuse", "/as/503?retry", [503, 503], 2),
        ("remember", "refuse", "/as/503?retry", [503, 503], 2),
    ],
)
def test_what_becomes_of_a_failure_is_said(
    shop: Shop, tmp_path: Path, on_error: Any, on_crash: Any, path: str, statuses: list[int], runs: int
) -> None:
    store = Once(str(tmp_path / "receipts.db"))
    app = Middleware(shop, store, scope=None, on_error=on_error, on_crash=on_crash)
    with served(app) as url, httpx.Client(base_url=url, timeout=30) as client:
        assert [client.post(path, headers={"Idempotency-Key": "k"}).status_code for _ in range(2)] == statuses
    assert shop.charges == runs
    store.close()


def test_a_key_whose_outcome_is_unknown_is_freed_by_forgetting_it(ask: Ask, shop: Shop, tmp_path: Path) -> None:
    assert ask("/doubtful").status_code == 500
    refused = ask("/doubtful")
    assert (refused.status_code, refused.json()["code"]) == (409, "outcome_unknown")
    store = Once(str(tmp_path / "receipts.db"))
    assert store.once(key=str, scope="request:none")(lambda key: None).forget("k")
    store.close()
    assert ask("/charges").text == "charge 2 of 5"
    assert shop.charges == 2


def test_a_request_that_is_running_is_waited_for(ask: Ask, shop: Shop) -> None:
    shop.gate.clear()
    threading.Timer(0.3, shop.gate.set).start()
    answers = at_once([ask] * 8)
    assert {answer.text for answer in answers} == {"charge 1 of 5"}
    assert shop.charges == 1


def test_an_answer_that_is_too_large_arrives_and_is_not_told_again(ask: Ask, shop: Shop) -> None:
    assert len(ask("/large").content) > 3 * MIB
    refused = ask("/large")
    assert (refused.status_code, refused.json()["code"]) == (409, "answer_not_stored")
    assert shop.charges == 1


def test_a_failure_that_is_too_large_is_a_failure(ask: Ask, shop: Shop) -> None:
    assert [ask("/large/503").status_code for _ in range(2)] == [503, 409]
    assert [ask("/large/409", key="other").status_code for _ in range(2)] == [409, 409]
    assert shop.charges == 3


def test_an_answer_without_a_body_is_told_again_without_a_length(ask: Ask, shop: Shop) -> None:
    ask("/as/204")
    again = ask("/as/204")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (204, "true")
    assert "content-length" not in again.headers
    assert shop.charges == 1


def test_a_body_that_is_too_large_is_413(ask: Ask, shop: Shop) -> None:
    assert ask(body=b"x" * (MIB + 1)).status_code == 413
    assert shop.charges == 0


def test_whose_keys_they_are_must_be_said(shop: Shop) -> None:
    store = Once.memory()
    with pytest.raises(once.InvalidKey, match="scope="):
        Middleware(shop, store)  # type: ignore[call-arg]
    store.close()


class Careful:
    """An application inside of a framework that answers 500 for every exception, its own and those of `send`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on; what is raised becomes an answer."""
        try:
            await self._app(scope, receive, send)
        except Exception:
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"Internal Server Error"})
            raise


@pytest.mark.parametrize("fault", [once.StoreUnavailable("away"), RuntimeError("no space left")])
@pytest.mark.parametrize("wrap", [Careful, lambda app: app], ids=["framework", "bare"])
def test_a_store_that_fails_behind_the_effect_never_frees_the_key(
    shop: Shop, tmp_path: Path, fault: Exception, wrap: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Once(str(tmp_path / "receipts.db"))
    change, faults = store.store.change, iter([fault])

    def failing(wanted: ReceiptChange) -> Any:
        if wanted.act is Act.FINISH and (error := next(faults, None)):
            raise error
        return change(wanted)

    monkeypatch.setattr(store.store, "change", failing)
    with served(Middleware(wrap(shop), store, scope=None)) as url, httpx.Client(base_url=url, timeout=30) as client:
        for _ in range(2):
            answer = client.post("/charges", headers={"Idempotency-Key": "k"})
            assert (answer.status_code, answer.json()["code"]) == (409, "outcome_unknown")
    assert shop.charges == 1
    store.close()
