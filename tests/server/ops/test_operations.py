"""Health, metrics and the listing; starting, stopping, and starting in the wrong place."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.harness.server import READY_SECONDS, STOP_SECONDS, RunningServer
from tests.harness.together import eventually

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("operations") / "data") as running:
        yield running


@pytest.mark.parametrize("path", ["/livez", "/health"])
def test_alive(server: RunningServer, path: str) -> None:
    answer = httpx.get(server.url + path)
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "version"}


@pytest.mark.parametrize("path", ["/readyz", "/ready"])
def test_ready(server: RunningServer, path: str) -> None:
    assert httpx.get(server.url + path).json() == {"status": "ready"}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/plain", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
    ],
)
def test_metrics_in_the_format_that_was_asked_for(server: RunningServer, accept: str, content_type: str) -> None:
    answer = httpx.get(server.url + "/metrics", headers={"Accept": accept})
    assert answer.headers["Content-Type"].startswith(content_type)
    assert "semel_engine_writes" in answer.text


def test_appends_are_counted_and_duplicates_cost_no_commit(server: RunningServer) -> None:
    url = server.url + "/v1/stream/counted"
    httpx.put(url, headers=JSON)
    keyed = JSON | {"Idempotency-Key": "once"}
    httpx.post(url, json=1, headers=keyed)
    durable = "semel_engine_commits_total{kind=durable}"
    replays = "semel_streams_appends_total{outcome=replay}"

    def cost_nothing() -> bool:
        before = httpx.get(server.url + "/metrics").json()
        for _ in range(20):
            assert httpx.post(url, json=1, headers=keyed).headers["Idempotency-Replayed"] == "true"
        after = httpx.get(server.url + "/metrics").json()
        assert after[replays] == before.get(replays, 0) + 20
        return bool(after[durable] == before[durable])

    # A server that has just started tidies up once, which is a commit or two of its own.
    eventually(cost_nothing, "duplicates cost no commit")


def test_the_listing_pages_through_all_streams(server: RunningServer) -> None:
    names = [f"listed/{number:02}" for number in range(7)]
    for name in names:
        httpx.put(f"{server.url}/v1/stream/{name}", headers=JSON)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = httpx.get(server.url + "/v1/streams", params={"prefix": "listed/", "limit": 3, "after": after}).json()
        found += [stream["name"] for stream in page["streams"]]
        after = page["after"]
    assert found == names


def test_a_listing_shows_a_scoped_caller_nothing_beyond_its_reach(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    digests = {name: sha256(name.encode()).hexdigest() for name in ("all", "some")}
    tokens.write_text(
        f'[[token]]\nname = "all"\nsha256 = "{digests["all"]}"\n'
        f'[[token]]\nname = "some"\nsha256 = "{digests["some"]}"\nscopes = ["streams:b/*", "streams:d"]\n'
    )
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(tokens)}) as guarded:
        everyone = {"Authorization": "Bearer all"}
        for name in ("a", "b/1", "b/2", "c", "d", "d2", "e"):
            httpx.put(f"{guarded.url}/v1/stream/{name}", headers=JSON | everyone).raise_for_status()
        found: list[str] = []
        told: list[str | None] = []
        after: str | None = ""
        while after is not None:
            params: dict[str, str | int] = {"limit": 1, "after": after}
            page = httpx.get(
                guarded.url + "/v1/streams", params=params, headers={"Authorization": "Bearer some"}
            ).json()
            found += [stream["name"] for stream in page["streams"]]
            told.append(page["after"])
            after = page["after"]
    assert found == ["b/1", "b/2", "d"]
    assert set(told) <= {*found, None}


def test_a_producers_duplicate_is_counted_as_one(server: RunningServer) -> None:
    url = server.url + "/v1/stream/produced"
    httpx.put(url, headers=JSON)
    producer = JSON | {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    before = httpx.get(server.url + "/metrics").json()
    for _ in range(3):
        httpx.post(url, json=1, headers=producer).raise_for_status()
    after = httpx.get(server.url + "/metrics").json()
    grown = {
        name: after.get(f"semel_streams_appends_total{{outcome={name}}}", 0)
        - before.get(f"semel_streams_appends_total{{outcome={name}}}", 0)
        for name in ("stored", "duplicate", "replay")
    }
    assert grown == {"stored": 1, "duplicate": 2, "replay": 0}


def test_an_answer_to_a_body_that_was_not_read_ends_the_connection(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_MAX_BODY_BYTES": "1000"}) as small:
        answer = httpx.post(small.url + "/v1/stream/missing", content=b"x" * 200_000, headers=JSON)
    assert answer.status_code == 404
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1", "9" * 5_000])
def test_a_listing_of_no_sensible_length_is_refused(server: RunningServer, limit: str) -> None:
    answer = httpx.get(server.url + "/v1/streams", params={"limit": limit})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/stream", "/nothing"])
def test_elsewhere_there_is_nothing(server: RunningServer, path: str) -> None:
    answer = httpx.get(server.url + path)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


def test_a_second_server_on_the_same_data_is_refused(server: RunningServer) -> None:
    command = [sys.executable, "-m", "semel", "serve", "--port", "0", "--data", str(server.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
    assert done.returncode != 0
    assert "Another server" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_told_in_a_sentence(server: RunningServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "semel", "serve", "--port", str(server.port), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
    assert done.returncode != 0
    assert str(server.port) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_stop_ends_live_readers_and_exits_with_zero(tmp_path: Path, number: signal.Signals) -> None:
    server = RunningServer(tmp_path / "data")
    server.start()
    httpx.put(server.url + "/v1/stream/s", headers=JSON)
    ended = threading.Event()

    def follow() -> None:
        with httpx.stream("GET", f"{server.url}/v1/stream/s?live=sse&offset=now", timeout=STOP_SECONDS) as events:
            opened.set()
            for _ in events.iter_raw():
                pass
        ended.set()

    opened = threading.Event()
    reader = threading.Thread(target=follow)
    reader.start()
    assert opened.wait(STOP_SECONDS)
    process = server._running()
    process.send_signal(number)
    assert process.wait(STOP_SECONDS) == 0
    assert ended.wait(STOP_SECONDS)
    reader.join()


def test_logs_are_json_lines_and_tell_no_secrets(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data")
    server.start()
    secret = {"Idempotency-Key": "key-that-must-not-be-logged", "Authorization": "Bearer token-that-must-not-be-logged"}
    httpx.put(server.url + "/v1/stream/s", headers=JSON)
    httpx.post(server.url + "/v1/stream/s", content=b"{broken", headers=JSON | secret)
    assert server.stop() == 0
    output = server.output.read_text()
    assert "must-not-be-logged" not in output
    logged = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert logged[-1]["message"] == "stopped"
    assert all({"ts", "level", "logger", "message"} <= set(line) for line in logged)
