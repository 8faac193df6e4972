"""`semel proxy` as a person runs it: what it says, how it stops, and what it refuses."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from semel.cli.main import main
from semel.once import Once
from tests.harness.server import HOST, RunningServer
from tests.harness.together import at_once, eventually
from tests.once.conftest import fresh_schema
from tests.proxy.running import CLIENT, Process, proxied
from tests.proxy.upstream import Upstream, serving

KEY = {"Idempotency-Key": "k", "Authorization": "Bearer secret"}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A service that has seen nothing."""
    with serving() as service:
        yield service


def command(upstream: Upstream, folder: Path, *more: str) -> list[str]:
    words = ["proxy", "--upstream", upstream.url, "--store", str(folder / "proxy.db"), "--route", "POST /hold"]
    return [*words, "--port", "{port}", *more]


def test_it_says_where_it_listens_and_lets_running_requests_end(upstream: Upstream, tmp_path: Path) -> None:
    output = tmp_path / "output"
    proxy = Process("semel", *command(upstream, tmp_path))
    proxy.start(output=output)
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(CLIENT.post(f"{proxy.url}/hold?q=secret", content=b"5", headers=KEY))
    )
    thread.start()
    eventually(lambda: bool(upstream.seen), "the request is running")
    assert proxy.process is not None
    proxy.process.send_signal(signal.SIGTERM)
    eventually(lambda: "stopping" in output.read_text(), "it stops")
    assert proxy.process.poll() is None
    upstream.gate.set()
    thread.join(25)
    assert answers[0].text == "charge 1 of 5"
    assert proxy.process.wait(25) == 0
    told = output.read_text()
    assert told.startswith(f"Semel proxies {proxy.url} to {upstream.url}; receipts in ")
    assert "POST /hold 201 " in told
    assert "secret" not in told
    assert "Traceback" not in told


def test_a_request_that_does_not_end_is_cut_off_and_unknown(upstream: Upstream, tmp_path: Path) -> None:
    output = tmp_path / "output"
    proxy = Process("semel", *command(upstream, tmp_path, "--stop-timeout", "500ms", "--quiet"))
    proxy.start(output=output)
    answers: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: answers.append(CLIENT.post(f"{proxy.url}/hold", content=b"5", headers=KEY))
    )
    thread.start()
    eventually(lambda: bool(upstream.seen), "the request is running")
    assert proxy.process is not None
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.process.wait(25) == 0
    thread.join(25)
    assert (answers[0].status_code, answers[0].json()["code"]) == (503, "stopping")
    assert "Traceback" not in output.read_text()
    store = Once(str(tmp_path / "proxy.db"))
    with proxied(upstream.url, store, wait=0.1) as url:
        answer = CLIENT.post(f"{url}/hold", content=b"5", headers=KEY)
        assert (answer.status_code, answer.json()["code"]) == (409, "outcome_unknown")
    store.close()
    assert upstream.effects == 1


def refused(*words: str) -> str:
    """The sentence of a command that does not begin."""
    result = CliRunner().invoke(main, ["proxy", *words])
    assert result.exit_code != 0
    return result.output.strip().splitlines()[-1]


def test_what_it_cannot_do_is_told_in_one_sentence(tmp_path: Path) -> None:
    good = ("--upstream", "http://127.0.0.1:1", "--store", str(tmp_path / "a.db"), "--route", "POST /x")
    assert "is not a route" in refused(*good, "--route", "charges")
    assert "The method of a route must be one of" in refused(*good, "--route", "GET /x")
    assert "upstream" in refused(*good, "--upstream", "http://u:secret@h")
    assert "contradict" in refused(*good, "--scope", "none", "--scope-header", "Cookie")
    assert "is not a duration" in refused(*good, "--timeout", "soon")
    assert "is not a size" in refused(*good, "--max-body", "big")
    assert "cannot be opened" in refused(*good, "--store", str(tmp_path / "none" / "a.db"))
    with socket.create_server((HOST, 0)) as taken:
        assert "Cannot listen on" in refused(*good, "--port", str(taken.getsockname()[1]))


def test_a_database_without_the_table_is_told_before_it_listens() -> None:
    said = refused("--upstream", "http://127.0.0.1:1", "--store", fresh_schema(), "--route", "POST /x")
    assert "semel once init" in said


def paid_twice(upstream: Upstream, store: Once) -> None:
    with proxied(upstream.url, store) as url:
        upstream.gate.set()
        answers = at_once([lambda: CLIENT.post(f"{url}/hold", content=b"5", headers=KEY)] * 4)
        assert {answer.text for answer in answers} == {"charge 1 of 5"}
    assert upstream.effects == 1


def test_receipts_may_be_in_postgresql(upstream: Upstream) -> None:
    place = fresh_schema()
    store = Once(place)
    store.store.create()  # type: ignore[attr-defined]
    paid_twice(upstream, store)
    store.close()


def test_receipts_may_be_on_a_semel_server(upstream: Upstream, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        store = Once(server.url)
        paid_twice(upstream, store)
        store.close()
