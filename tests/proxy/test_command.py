"""`semel proxy` as a person runs it: what it says, how it stops, and what it refuses."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from semel.cli.main import main
from semel.once import Once
from semel.proxy.settings import ProxySettings, route_of, settings_from
from tests.harness.server import HOST
from tests.harness.together import at_once, eventually
from tests.once.conftest import fresh_schema
from tests.proxy.running import CLIENT, Process, exchanged, proxied
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


def listens(port: int) -> bool:
    """Whether a connection is accepted."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


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
    eventually(lambda: not listens(proxy.port), "it accepts no more connections")
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
    with proxied(upstream.url, store, wait=0.1, scope_headers=("authorization",)) as url:
        answer = CLIENT.post(f"{url}/hold", content=b"5", headers=KEY)
        assert (answer.status_code, answer.json()["code"]) == (409, "outcome_unknown")
    store.close()
    assert upstream.effects == 1


def asgi(upstream: Upstream, folder: Path, *more: str) -> Process:
    """The application under uvicorn's own command."""
    proxy = Process("uvicorn", "semel.proxy:app", "--port", "{port}", "--no-proxy-headers", "--no-date-header", *more)
    variables = {"UPSTREAM": upstream.url, "STORE": str(folder / "proxy.db"), "ROUTES": "POST /hold, PUT /x/* retry"}
    proxy.variables = {f"SEMEL_PROXY_{name}": text for name, text in variables.items()}
    return proxy


def test_the_application_runs_under_uvicorn_and_gives_up_claims_at_its_end(upstream: Upstream, tmp_path: Path) -> None:
    proxy = asgi(upstream, tmp_path, "--timeout-graceful-shutdown", "1")
    proxy.start(SEMEL_PROXY_LEASE="5m", SEMEL_PROXY_WAIT="100ms")
    answers: list[httpx.Response] = []
    calls = [
        threading.Thread(
            target=lambda key: answers.append(
                CLIENT.post(f"{proxy.url}/hold", content=b"5", headers={**KEY, "Idempotency-Key": key})
            ),
            args=(key,),
        )
        for key in "abcdefgh"
    ]
    for call in calls:
        call.start()
    eventually(lambda: len(upstream.seen) == len(calls), "the requests are running")
    assert proxy.process is not None
    proxy.process.send_signal(signal.SIGTERM)
    proxy.process.wait(25)
    for call in calls:
        call.join(25)
    assert [(one.status_code, one.json()["code"]) for one in answers] == [(503, "stopping")] * len(calls)
    upstream.gate.set()
    proxy.start(SEMEL_PROXY_WAIT="100ms")
    for key in "abcdefgh":
        again = CLIENT.post(f"{proxy.url}/hold", content=b"5", headers={**KEY, "Idempotency-Key": key})
        assert (again.status_code, again.json()["code"]) == (409, "outcome_unknown")
    first, second = (
        CLIENT.post(f"{proxy.url}/hold", content=b"5", headers={**KEY, "Idempotency-Key": "new"}) for _ in range(2)
    )
    assert (first.text, second.headers["idempotency-replayed"]) == (second.text, "true")
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + "a" * 22
    assert exchanged(proxy.url, f"GET / HTTP/1.1\r\nHost: h\r\n{upgrade}==\r\n\r\n".encode())[9:12] == b"403"
    proxy.kill()
    assert upstream.effects == len(calls) + 1


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"UPSTREAM": ""}, "Set SEMEL_PROXY_UPSTREAM."),
        ({"ROUTE": "POST /x"}, "SEMEL_PROXY_ROUTE is not a variable of the proxy."),
        ({"ROUTES": "GET /x"}, "The method of a route must be one of"),
        ({"ON_CRASH": "maybe"}, "must be one of refuse, retry."),
        ({"KEEP": "soon"}, "SEMEL_PROXY_KEEP is 'soon': 'soon' is not a duration"),
        ({"REQUIRE": "yes"}, "SEMEL_PROXY_REQUIRE is 'yes': write true or false."),
        ({"MAX_REQUESTS": "0"}, "SEMEL_PROXY_MAX_REQUESTS is '0': write a number from 1 to 65536."),
    ],
)
def test_wrong_variables_are_told_in_one_sentence(changed: dict[str, str], sentence: str) -> None:
    good = {"UPSTREAM": "http://127.0.0.1:1", "STORE": "a.db", "ROUTES": "POST /x"}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        settings_from({f"SEMEL_PROXY_{name}": text for name, text in (good | changed).items()})


def test_variables_are_the_options_of_the_command() -> None:
    texts = {
        "SEMEL_PROXY_UPSTREAM": "http://127.0.0.1:1",
        "SEMEL_PROXY_STORE": "a.db",
        "SEMEL_PROXY_ROUTES": "POST /x, PUT /y/* refuse",
        "SEMEL_PROXY_ON_CRASH": "retry",
        "SEMEL_PROXY_SCOPE_HEADERS": "none",
        "SEMEL_PROXY_KEEP": "2d",
        "SEMEL_PROXY_MAX_BODY": "2KiB",
        "SEMEL_PROXY_MAX_REQUESTS": "7",
        "SEMEL_PROXY_TRUST_FORWARDED": "true",
    }
    settings, place = settings_from(texts)
    routes = (route_of("POST /x", "retry"), route_of("PUT /y/*", "refuse"))
    assert settings == ProxySettings(
        "http://127.0.0.1:1",
        routes,
        scope_headers=(),
        keep=172_800.0,
        max_body=2_048,
        max_requests=7,
        is_forwarded_trusted=True,
    )
    assert place == "a.db"


def test_the_application_does_not_start_without_its_settings(upstream: Upstream, tmp_path: Path) -> None:
    proxy = asgi(upstream, tmp_path)
    del proxy.variables["SEMEL_PROXY_STORE"]
    output = tmp_path / "output"
    with pytest.raises(AssertionError, match="it ended"):
        proxy.start(output=output)
    assert "Set SEMEL_PROXY_STORE." in output.read_text()
    assert "Traceback" not in output.read_text()


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
    store.store.create()
    paid_twice(upstream, store)
    store.close()
