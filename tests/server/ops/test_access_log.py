"""The access log and the slow log: one line for each request on every wire, and never a wait for the disk."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.server.ops import rotated_file
from semel.server.ops.access_log import ACCESS_NAME, SLOW_NAME, AccessLog, LoggedRequest
from tests.events.wire import Peer
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file

TOKEN = "the-token-of-the-logged-one"
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"
Line = dict[str, Any]


class LoggedSite:
    """A server with both logs, and its lines."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=60, headers={"Authorization": f"Bearer {TOKEN}"})

    def lines(self, name: str = ACCESS_NAME) -> list[Line]:
        """All lines so far."""
        path = self.server.data / "logs" / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logged(self, act: Callable[[], object], count: int = 1) -> list[Line]:
        """The lines that an act leaves."""
        mark = f"mark-{secrets.token_hex(8)}"
        self.http.get("/livez", headers={"X-Request-Id": mark})
        act()

        def found() -> list[Line]:
            lines = self.lines()
            places = [place for place, line in enumerate(lines) if line.get("request_id") == mark]
            return lines[places[0] + 1 :] if places else []

        eventually(lambda: len(found()) >= count, "the lines are written")
        return found()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedSite]:
    folder = tmp_path_factory.mktemp("access")
    tokens = token_file(folder, {"logged": (TOKEN, ["admin"], [])})
    env = {"SEMEL_ACCESS_LOG": "true", "SEMEL_SLOW_LOG_MS": "86400000"}
    with RunningServer(folder / "data", env=env | {"SEMEL_TOKENS": str(tokens)}, grpc=True) as server:
        found = LoggedSite(server)
        with found.http:
            yield found


def without_chance(line: Line) -> Line:
    """What of a line is the same for each request of a kind."""
    return {name: value for name, value in line.items() if name not in ("ts", "seconds", "request_id", "bytes")}


POSTED = {"surface": "streams", "wire": "http", "method": "POST", "route": "/v1/stream/{}", "status": 204}


def test_a_line_has_the_facts_of_its_request(site: LoggedSite) -> None:
    site.http.put("/v1/stream/made", headers={"Content-Type": "application/json"})
    headers = {"X-Request-Id": "the-id", "traceparent": TRACE}
    [line] = site.logged(lambda: site.http.post("/v1/stream/made", json=1, headers=headers))
    known = {"principal": "client:logged", "remote": HOST, "traceparent": TRACE}
    assert without_chance(line) == POSTED | known
    assert line["request_id"] == "the-id"
    assert 0 < line["seconds"] < 60
    assert line["bytes"] > 100  # with the head


def test_requests_with_a_known_head_have_the_same_lines(site: LoggedSite) -> None:
    site.http.put("/v1/stream/shaped", headers={"Content-Type": "application/json"})
    answers: list[httpx.Response] = []

    def append() -> None:
        keys = [{"Idempotency-Key": f"k-{number}"} for number in range(6)]
        answers.extend(site.http.post("/v1/stream/shaped", json=1, headers=key) for key in keys)

    lines = site.logged(append, 6)
    assert [without_chance(line) for line in lines] == [POSTED | {"principal": "client:logged", "remote": HOST}] * 6
    assert [line["request_id"] for line in lines] == [one.headers["X-Request-Id"] for one in answers]
    assert len({line["bytes"] for line in lines}) == 1


def test_calls_of_workers_and_transactions_have_lines_of_their_routes(site: LoggedSite) -> None:
    org = site.http.post("/ledger/v1/orgs", json={"name": "o"}).json()["slug"]["slug"]
    vault = site.http.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
    operation = {"setEntity": {"key": "k", "value": "AA=="}}

    def work() -> None:
        for number in range(3):
            site.http.post("/v1/jobs", json={"kind": "k", "params": {}, "idempotency_key": f"k-{number}"})
            [job] = site.http.post("/v1/jobs/claim", json={"worker_id": "w", "max": 1}).json()["jobs"]
            done = {"lease_token": job["lease_token"], "result": {}}
            site.http.post(f"/v1/jobs/{job['job_id']}/complete", json=done)
            write = {"clientId": "logged", "sequence": str(number + 1), "operations": [operation]}
            site.http.post(f"/ledger/v1/orgs/{org}/vaults/{vault}/writes", json=write)

    lines = site.logged(work, 12)
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v1/jobs", 200),
        ("/v1/jobs/claim", 200),
        ("/v1/jobs/{}/complete", 200),
        ("/ledger/v1/orgs/{}/vaults/{}/writes", 200),
    ] * 3


def test_refusals_and_paths_of_nothing_have_lines(site: LoggedSite) -> None:
    [missing] = site.logged(lambda: site.http.get("/a-name/that-is-no-word?query=hidden"))
    assert (missing["surface"], missing["route"], missing["status"]) == ("none", "/{}", 404)
    [stranger] = site.logged(lambda: httpx.get(site.server.url + "/v1/stream/s"))
    assert (stranger["status"], "principal" in stranger) == (401, False)
    [health] = site.logged(lambda: site.http.get("/livez"))
    assert (health["surface"], health["route"]) == ("server", "/livez")


def test_messages_and_calls_have_lines(site: LoggedSite) -> None:
    def talk() -> None:
        with Peer(site.server.port) as peer:
            peer.connect("logged", TOKEN)
            peer.submit([{"id": "e", "partitions": ["p"], "event": {"type": "t"}}])

    lines = site.logged(talk, 3)
    assert [(line["method"], line["wire"], line["status"]) for line in lines] == [
        ("GET", "http", 101),
        ("MESSAGE", "websocket", None),
        ("MESSAGE", "websocket", None),
    ]
    assert len({line["request_id"] for line in lines}) == 1
    assert lines[2]["principal"] == "client:logged"

    def call() -> None:
        with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
            made: Any = channel.unary_unary("/ledger.v1.HealthService/Check")
            made(b"", timeout=60, wait_for_ready=True, metadata=[("traceparent", TRACE)])

    [line] = site.logged(call)
    assert (line["wire"], line["route"], line["status"]) == ("grpc", "/ledger.v1.HealthService/Check", 0)
    assert line["traceparent"] == TRACE


def test_a_stream_is_logged_when_its_reader_leaves(site: LoggedSite) -> None:
    site.http.put("/v1/stream/followed", headers={"Content-Type": "application/json"})

    def follow() -> None:
        url = f"{site.server.url}/v1/stream/followed?offset=-1&live=sse"
        with httpx.stream("GET", url, timeout=60, headers={"Authorization": f"Bearer {TOKEN}"}) as streamed:
            next(streamed.iter_raw())

    [line] = site.logged(follow)
    assert (line["wire"], line["status"]) == ("live", 200)


def test_a_client_that_leaves_before_its_answer_is_logged_without_a_status(site: LoggedSite) -> None:
    site.http.put("/v1/stream/left", headers={"Content-Type": "application/json"})

    def leave() -> None:
        head = f"GET /v1/stream/left?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        with socket.create_connection((HOST, site.server.port), timeout=60) as line:
            line.sendall(f"{head}\r\n".encode())
            eventually(lambda: httpx_metric(site, "semel_live_readers") >= 1, "the poll waits")

    site.logged(leave)
    eventually(lambda: any(one["status"] is None and one["wire"] == "live" for one in site.lines()), "it is logged")


def httpx_metric(site: LoggedSite, name: str) -> float:
    return float(site.http.get("/metrics").json()[name])


def test_the_metrics_count_the_lines(site: LoggedSite) -> None:
    site.logged(lambda: site.http.get("/livez"))
    assert httpx_metric(site, "semel_access_lines_total") > 1
    assert httpx_metric(site, "semel_access_lost_lines_total") == 0
    assert site.lines(SLOW_NAME) == []  # nothing takes a day


def test_a_line_that_a_message_causes_has_the_id_of_its_handshake(site: LoggedSite) -> None:
    with Peer(site.server.port, additional_headers={"X-Request-Id": "the-handshake", "traceparent": TRACE}) as peer:
        peer.connect("logged", TOKEN)
        peer.ask("sync", {"partitions": ["p"], "since_committed_id": 1_000_000})

    def told() -> list[Line]:
        texts = site.server.output.read_text().splitlines()
        return [json.loads(text) for text in texts if "a cursor is above every event" in text]

    eventually(lambda: bool(told()), "the server complains of the cursor")
    assert [(line["request_id"], line["traceparent"]) for line in told()] == [("the-handshake", TRACE)]


def test_a_call_has_the_id_of_its_metadata(site: LoggedSite) -> None:
    def call() -> None:
        with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
            made: Any = channel.unary_unary("/ledger.v1.HealthService/Check")
            _, answered = made.with_call(b"", timeout=60, wait_for_ready=True, metadata=[("x-request-id", "the-call")])
            assert dict(answered.initial_metadata())["x-request-id"] == "the-call"

    [line] = site.logged(call)
    assert line["request_id"] == "the-call"


# ---- The log alone ----


def log_in(folder: Path, *, logs_all: bool = True, slow_ms: int = 0) -> AccessLog:
    return AccessLog(folder, SystemWorld(), {}, logs_all=logs_all, slow_ms=slow_ms)


def request(seconds: float = 0.0, wire: str = "http") -> LoggedRequest:
    return LoggedRequest("streams", wire, "POST", "/v1/stream/{}", 204, 100, seconds, "client:a", HOST, "id")


def told(folder: Path, name: str) -> list[Line]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_only_slow_requests_are_in_the_slow_log(tmp_path: Path) -> None:
    log = log_in(tmp_path, logs_all=False, slow_ms=100)
    for one in (request(0.099), request(0.1), request(30.0, "live")):
        log.add(one)
    log.close()
    assert [line["seconds"] for line in told(tmp_path, SLOW_NAME)] == [0.1]
    assert told(tmp_path, ACCESS_NAME) == []


def test_a_disk_that_hangs_loses_lines_and_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotated_file, "MAX_WAITING_BYTES", 1_000)
    hangs, goes_on = threading.Event(), threading.Event()
    append = rotated_file.LineFile.append

    def hang(file: rotated_file.LineFile, lines: bytes) -> None:
        hangs.set()
        assert goes_on.wait(60)
        append(file, lines)

    monkeypatch.setattr(rotated_file.LineFile, "append", hang)
    log = log_in(tmp_path)
    log.add(request())
    written = log._writer.submit(log._write)
    assert hangs.wait(60)
    for _ in range(100):
        log.add(request())  # returns at once
    assert log.lost_lines > 90
    goes_on.set()
    written.result(60)
    log.close()
    lines = told(tmp_path, ACCESS_NAME)
    assert lines[-1]["lost_lines"] == log.lost_lines
    assert len(lines) == 102 - log.lost_lines


def test_a_disk_that_fails_is_counted_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("this is a file and not a folder")
    log = log_in(tmp_path / "logs")
    for _ in range(3):
        log.add(request())
        log._write()
    assert log.write_errors == 3
    assert [one.message for one in caplog.records] == ["the access log cannot be written"]
    log.close()
