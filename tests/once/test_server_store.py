"""Receipts on a real Semel server: lost answers, a server that is gone, and answers that are no receipts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from semel import once
from semel.once import Once
from tests.harness.server import HOST, RunningServer, free_port
from tests.once.losing import losing
from tests.once.places import TOKEN, fresh_place, shared_server


def counted(store: Once, effects: list[int], **options: Any) -> Any:
    """A function that counts its effects."""

    @store.once(key=lambda: "k", **options)
    def charge() -> int:
        effects.append(1)
        return len(effects)

    return charge


def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    place = fresh_place("server", tmp_path)
    effects: list[int] = []
    with losing(shared_server().url) as (url, lost):
        store = place._replace(url=url).open()
        charge = counted(store, effects)
        assert [charge(), charge()] == [1, 1]
        store.close()
    assert len(lost) == 3, "the answers to GET, PUT and POST"
    assert len(effects) == 1


def test_a_server_that_is_gone_runs_nothing_and_one_that_is_back_does(tmp_path: Path) -> None:
    effects: list[int] = []
    with RunningServer(tmp_path / "data") as server:
        store = Once(server.url)
        charge, other = counted(store, effects, scope="one"), counted(store, effects, scope="two")
        assert charge() == 1
        server.kill()
        for function in (charge, other):
            with pytest.raises(once.StoreUnavailable, match="does not answer"):
                function()
        assert len(effects) == 1
        server.start()
        assert (charge(), other(), charge()) == (1, 2, 1)
        store.close()


def test_a_server_that_goes_while_a_function_runs_leaves_the_unknown_and_says_so(tmp_path: Path) -> None:
    effects: list[int] = []
    with RunningServer(tmp_path / "data") as server:
        store = Once(server.url)

        @store.once(key=lambda: "k", lease="0.5s", wait="20s")
        def charge() -> int:
            effects.append(1)
            server.kill()
            return 7

        with pytest.raises(once.OutcomeUnknown) as told:
            charge()
        assert isinstance(told.value.__cause__, once.StoreUnavailable)
        server.start()
        with pytest.raises(once.OutcomeUnknown):
            charge()
        charge.resolve("k", 7)
        assert charge() == 7
        assert len(effects) == 1
        store.close()


def test_an_exception_of_a_function_is_raised_when_the_store_is_gone_too(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        store = Once(server.url)

        @store.once(key=lambda: "k")
        def charge() -> None:
            server.kill()
            raise ConnectionAbortedError("the bank hung up")

        with pytest.raises(ConnectionAbortedError, match="the bank"):
            charge()
        store.close()


def test_a_token_that_is_wrong_runs_nothing_and_is_not_told(tmp_path: Path) -> None:
    effects: list[int] = []
    store = fresh_place("server", tmp_path)._replace(token="other-secret").open()
    with pytest.raises(once.StoreUnavailable, match="status 401") as told:
        counted(store, effects)()
    assert "other-secret" not in f"{told.value!r}{told.value.__cause__!r}"
    assert not effects
    store.close()


@pytest.mark.parametrize("token", [f"{TOKEN}\n", "two words", "umlaut-\xe4"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(once.InvalidKey, match="token") as told:
        counted(Once("http://127.0.0.1:1", token=token), [])()
    assert token.strip() not in str(told.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999", "http://u:p@127.0.0.1", "http://", "http://h?x=1", "http://[::1"]
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(once.InvalidKey, match="The URL of a Semel server"):
        counted(Once(url), [])()


@contextmanager
def saying(body: bytes) -> Iterator[str]:
    """A service that answers everything with these bytes, and is no Semel server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Stream-Up-To-Date", "true")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer((HOST, free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(25)


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"{}", b"[1]", b'[{"state": "done"}]', b"7", b"[" * 100_000])
def test_an_answer_that_is_no_receipt_runs_nothing(body: bytes) -> None:
    effects: list[int] = []
    with saying(body) as url:
        store = Once(url)
        with pytest.raises(once.StoreUnavailable, match="not a log of receipts"):
            counted(store, effects)()
        store.close()
    assert not effects
