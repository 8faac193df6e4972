"""`once.WsgiMiddleware` on a real socket: what `once.Middleware` does, for applications that block."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest

from semel import once
from semel.once import Once, WsgiMiddleware
from semel.once.claims import Act, ReceiptChange
from tests.harness.server import HOST
from tests.harness.together import at_once

MIB = 1_048_576
Ask = Callable[..., httpx.Response]


class Shop:
    """An application: it counts what it is asked, and answers as the path says."""

    def __init__(self) -> None:
        self.charges = 0
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Handle a request."""
        with self._lock:
            self.charges += 1
            number = self.charges
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.gate.wait(25)
        path = environ["PATH_INFO"]
        if path == "/broken":
            raise RuntimeError("broken")
        status = {"/busy": "503 Busy", "/unwell": "503 Unwell", "/odd": "299 Odd"}.get(path, "201 Created")
        headers = [("Content-Type", "text/plain"), ("Location", f"/charges/{number}"), ("X-Own", "s")]
        start_response(status, [*headers, ("Retry-After", "1")] if path == "/busy" else headers)
        text = b"charge %d of " % number + body
        return Pieces(self, [b"x" * MIB] * 3 if path == "/large" else [text[:6], text[6:]])


class Pieces:
    """A body that wants to be closed, as PEP 3333 has it."""

    def __init__(self, shop: Shop, pieces: list[bytes]) -> None:
        self._shop = shop
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    def close(self) -> None:
        """Count it."""
        self._shop.closed += 1


class Server(ThreadingMixIn, WSGIServer):
    """One thread a request."""

    daemon_threads = True
    request_queue_size = 128


class Quiet(WSGIRequestHandler):
    """Says nothing."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def get_stderr(self) -> Any:
        """Where errors of an application go: nowhere."""
        return BytesTextSink()


class BytesTextSink:
    """Takes what wsgiref tells of errors."""

    def write(self, _: str) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Nothing is held."""


@pytest.fixture
def shop() -> Shop:
    """An application that has handled nothing."""
    return Shop()


@pytest.fixture
def ask(shop: Shop, tmp_path: Path) -> Iterator[Ask]:
    """POST to the application behind the middleware."""
    store = Once(str(tmp_path / "receipts.db"))
    app = WsgiMiddleware(shop, store, scope=lambda incoming: incoming.header("x-tenant") or "-", require=["/payments"])
    with make_server(HOST, 0, app, Server, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        with httpx.Client(base_url=f"http://{HOST}:{server.server_port}", timeout=30) as client:

            def post(path: str = "/charges", key: str | None = "k", body: bytes = b"5", **more: str) -> httpx.Response:
                headers = {**({} if key is None else {"Idempotency-Key": key}), **more}
                return client.post(path, content=body, headers=headers)

            yield post
        server.shutdown()
        thread.join(25)
    store.close()


def test_a_retry_gets_the_same_answer_and_is_told_so(ask: Ask, shop: Shop) -> None:
    first, again = ask(), ask(key='"k"')
    for answer in (first, again):
        assert (answer.status_code, answer.text, answer.headers["location"]) == (201, "charge 1 of 5", "/charges/1")
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert ("x-own" in first.headers, "x-own" in again.headers) == (True, True)
    assert (shop.charges, shop.closed) == (1, 1)


@pytest.mark.parametrize(
    ("path", "body"), [("/charges", b"6"), ("/charges?x=1", b"5"), ("/other", b"5"), ("/charge%FF", b"5")]
)
def test_another_request_with_the_key_is_422_and_runs_nothing(ask: Ask, shop: Shop, path: str, body: bytes) -> None:
    ask("/charge%FE" if path == "/charge%FF" else "/charges")
    refused = ask(path, body=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "key_mismatch")
    assert shop.charges == 1


@pytest.mark.parametrize(
    ("path", "key", "size", "status"),
    [("/payments", None, 1, 400), ("/charges", "k" * 257, 1, 400), ("/charges", "k", MIB + 1, 413)],
)
def test_a_request_that_cannot_be_used_is_refused(
    ask: Ask, shop: Shop, path: str, key: str | None, size: int, status: int
) -> None:
    assert ask(path, key, b"x" * size).status_code == status
    assert shop.charges == 0


def test_tenants_are_apart_and_a_request_without_a_key_runs_as_it_is(ask: Ask, shop: Shop) -> None:
    asked = [ask(**{"X-Tenant": "a"}), ask(**{"X-Tenant": "b"}), ask(**{"X-Tenant": "a"}), ask(key=None), ask(key=None)]
    assert [answer.text.split()[1] for answer in asked] == ["1", "2", "1", "3", "4"]


@pytest.mark.parametrize(
    ("path", "statuses", "runs"), [("/busy", [503, 503], 2), ("/unwell", [503, 409], 1), ("/broken", [500, 409], 1)]
)
def test_a_request_that_failed_runs_again_only_if_it_said_that_it_did_nothing(
    ask: Ask, shop: Shop, path: str, statuses: list[int], runs: int
) -> None:
    assert [ask(path).status_code for _ in range(2)] == statuses
    assert shop.charges == runs


def test_a_status_that_no_standard_names_is_told_again(ask: Ask, shop: Shop) -> None:
    assert [ask("/odd").status_code for _ in range(2)] == [299, 299]
    assert shop.charges == 1


def test_of_racers_one_runs_and_the_others_wait_for_its_answer(ask: Ask, shop: Shop) -> None:
    shop.gate.clear()
    threading.Timer(0.3, shop.gate.set).start()
    assert {answer.text for answer in at_once([ask] * 8)} == {"charge 1 of 5"}
    assert shop.charges == 1


def test_an_answer_that_is_too_large_arrives_is_closed_and_is_not_told_again(ask: Ask, shop: Shop) -> None:
    assert len(ask("/large").content) == 3 * MIB
    refused = ask("/large")
    assert (refused.status_code, refused.json()["code"]) == (409, "answer_not_stored")
    assert (shop.charges, shop.closed) == (1, 1)


def called(app: Any, **more: Any) -> tuple[str, bytes]:
    """Call an application without a socket: the status line and the body."""
    lines: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/charges", "HTTP_IDEMPOTENCY_KEY": "k", **more}
    body = b"".join(app(environ, lambda line, *_: lines.append(line)))
    return lines[0], body


def test_a_body_without_a_length_is_read_to_its_end_where_the_server_says_that_it_ends(shop: Shop) -> None:
    app = WsgiMiddleware(shop, Once.memory(), scope=None)
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input": BytesIO(b"56")}
    assert called(app, **{**chunked, "wsgi.input_terminated": True})[1] == b"charge 1 of 56"
    assert called(app, **{**chunked, "HTTP_IDEMPOTENCY_KEY": "other"})[0].startswith("411 ")
    large = {**chunked, "wsgi.input": BytesIO(b"x" * (MIB + 1)), "wsgi.input_terminated": True}
    assert called(app, **{**large, "HTTP_IDEMPOTENCY_KEY": "large"})[0].startswith("413 ")
    assert shop.charges == 1


def test_a_handler_joins_its_transaction_to_the_request(tmp_path: Path) -> None:
    place = str(tmp_path / "shop.db")
    store, crashes = Once(place), [True]
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE charges (amount int)")

    def handle(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with closing(sqlite3.connect(place, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            with once.transaction(connection) as attempt:
                if attempt.fresh:
                    connection.execute("INSERT INTO charges VALUES (5)")
                    attempt.result = 5
            connection.execute("COMMIT")
        if crashes.pop():
            raise KeyboardInterrupt  # behind COMMIT
        start_response("201 Created", [])
        return [b"%d" % attempt.result]

    app = WsgiMiddleware(handle, store, scope=None)
    with pytest.raises(KeyboardInterrupt):
        called(app, **{"wsgi.input": BytesIO()})
    crashes.append(False)
    assert called(app, **{"wsgi.input": BytesIO()}) == ("201 Created", b"5")
    assert called(app, **{"wsgi.input": BytesIO()}) == ("201 Created", b"5")
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("SELECT count(*) FROM charges").fetchone() == (1,)
    store.close()


@pytest.mark.parametrize("path", ["/charges", "/large"])
@pytest.mark.parametrize("fault", [once.StoreUnavailable("away"), RuntimeError("no space left")])
def test_a_store_that_fails_behind_the_effect_never_frees_the_key(
    shop: Shop, path: str, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Once.memory()
    change, faults = store.store.change, iter([fault])

    def failing(wanted: ReceiptChange) -> Any:
        if wanted.act is Act.FINISH and (error := next(faults, None)):
            raise error
        return change(wanted)

    monkeypatch.setattr(store.store, "change", failing)
    app = WsgiMiddleware(shop, store, scope=None)
    told: list[str] = []
    for _ in range(2):
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "HTTP_IDEMPOTENCY_KEY": "k", "CONTENT_LENGTH": "0"}
        body = app(environ | {"wsgi.input": BytesIO()}, lambda line, *_: told.append(line))
        assert json.loads(b"".join(body))["code"] == "outcome_unknown"
    assert told == ["409 Conflict"] * 2
    assert (shop.charges, shop.closed) == (1, 1)
