"""Every log line of a failed request, message or call has its request id and `traceparent`, with an access log or not.

A real server whose decisions raise, or whose disk fails, is asked over every wire; its standard error is read.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.json_format import ParseDict
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from semel.surfaces.ledger.proto import ledger_pb2
from tests.deltas.binary.caller import address, push_frame
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.events.wire import Peer, item
from tests.harness.server import HOST, STOP_SECONDS, RunningServer
from tests.harness.together import eventually
from tests.server.test_faults import FaultyServer

TRACE_ID = "0123456789abcdef0123456789abcdef"
TRACE = f"00-{TRACE_ID}-0123456789abcdef-00"
WRITE = "/ledger.v1.WriteService/Write"
Line = dict[str, Any]


def logged(output: Path) -> list[Line]:
    """The lines of the log among what a server has printed."""
    return [json.loads(text) for text in output.read_text().splitlines() if text.startswith("{")]


class BrokenSite:
    """A server whose decisions raise while `breaks` is there."""

    def __init__(self, server: RunningServer, breaks: Path) -> None:
        self.server = server
        self._breaks = breaks
        self.http = httpx.Client(base_url=server.url, timeout=60)
        self.org = self.http.post("/ledger/v1/orgs", json={"name": "o"}).json()["slug"]["slug"]
        self.vault = self.http.post(f"/ledger/v1/orgs/{self.org}/vaults", json={}).json()["vault"]["slug"]
        self.http.put("/v1/stream/s", headers={"Content-Type": "application/json"}).raise_for_status()

    def lines(self) -> list[Line]:
        """What the server has logged."""
        return logged(self.server.output)

    def broken(self, act: Callable[[], object]) -> list[Line]:
        """The errors that are logged while an act meets raising decisions."""
        before = len(self.lines())
        self._breaks.touch()
        try:
            act()
        finally:
            self._breaks.unlink()

        def found() -> list[Line]:
            return [line for line in self.lines()[before:] if line["message"] == "fault in a decision"]

        eventually(lambda: bool(found()), "a line tells of the fault")
        return found()


@pytest.fixture(scope="module", params=["false", "true"], ids=["without an access log", "with an access log"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokenSite]:
    folder = tmp_path_factory.mktemp("lines")
    env = {"SEMEL_DECISION_FAULT_FILE": str(folder / "breaks"), "SEMEL_ACCESS_LOG": request.param}
    with RunningServer(folder / "data", env=env, grpc=True) as server:
        found = BrokenSite(server, folder / "breaks")
        yield found
        found.http.close()


def headers(name: str) -> dict[str, str]:
    return {"X-Request-Id": name, "traceparent": TRACE}


def submit_event(site: BrokenSite, name: str) -> None:
    with Peer(site.server.port, additional_headers=headers(name)) as peer:
        peer.connect()
        peer.send("submit_events", {"events": [item(["p"])]})
        with suppress(AssertionError):
            peer.receive()


def push_delta(site: BrokenSite, name: str) -> None:
    pushed = delta("INSERT", columns(title="t"), hlc=stamp(now_ms()), client="c")
    with connect(address(site.server.port, "gw"), additional_headers=headers(name), proxy=None) as peer:
        peer.send(push_frame([pushed], "c"))
        with suppress(ConnectionClosed):
            peer.recv(30)


def write_block(site: BrokenSite, name: str) -> None:
    fields = {"organization": {"slug": site.org}, "vault": {"slug": site.vault}, "clientId": {"id": "c"}}
    write = ParseDict(
        {**fields, "sequence": "1", "operations": [{"setEntity": {"key": "k", "value": "AA=="}}]},
        ledger_pb2.WriteRequest(),
    )
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        call: Any = channel.unary_unary(WRITE, request_serializer=ledger_pb2.WriteRequest.SerializeToString)
        metadata = [("x-request-id", name), ("traceparent", TRACE)]
        with pytest.raises(grpc.RpcError) as refused:
            call(write, timeout=60, wait_for_ready=True, metadata=metadata)
    answer: Any = refused.value
    assert answer.code() is grpc.StatusCode.INTERNAL
    assert dict(answer.initial_metadata())["x-request-id"] == name


def post(site: BrokenSite, path: str, name: str, body: object) -> None:
    assert site.http.post(path, json=body, headers=headers(name)).status_code == 500


JOB = {"kind": "k", "params": {}}
EVENTS = {"events": [{"id": "h", "partitions": ["p"], "event": {"type": "t"}}]}
WIRES: dict[str, Callable[[BrokenSite, str], object]] = {
    "streams": lambda site, name: post(site, "/v1/stream/s", name, 1),
    "jobs": lambda site, name: post(site, "/v1/jobs", name, JOB),
    "events over HTTP": lambda site, name: post(site, "/v1/events", name, EVENTS),
    "events over a WebSocket": submit_event,
    "deltas over a WebSocket": push_delta,
    "ledger over gRPC": write_block,
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_decision_that_raises_is_logged_with_its_request(site: BrokenSite, wire: str) -> None:
    name = f"id of {wire}"
    told = site.broken(lambda: WIRES[wire](site, name))[-1]
    assert (told["request_id"], told["traceparent"], told["trace_id"]) == (name, TRACE, TRACE_ID)
    assert len(told["error_id"]) == 16


KNOWN: dict[str, tuple[str, Callable[[BrokenSite, int], object]]] = {
    "streams": ("/v1/stream/s", lambda site, number: number),
    "jobs": ("/v1/jobs", lambda site, number: JOB),
    "ledger": (
        "/ledger/v1/orgs/{org}/vaults/{vault}/writes",
        lambda site, number: {
            "clientId": "known",
            "sequence": str(number),
            "operations": [{"setEntity": {"key": "k", "value": "AA=="}}],
        },
    ),
}


def posted(line: socket.socket, path: str, body: object) -> tuple[int, str]:
    """Send a request in one piece, so that its head is known by its bytes; the status and the request id."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    line.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    answer = HTTPResponse(line)
    answer.begin()
    answer.read()
    return answer.status, answer.headers["X-Request-Id"]


@pytest.mark.parametrize("surface", KNOWN)
def test_a_request_of_a_known_head_is_logged_with_the_id_of_its_answer(site: BrokenSite, surface: str) -> None:
    path, body = KNOWN[surface]
    path = path.format(org=site.org, vault=site.vault)
    with socket.create_connection((HOST, site.server.port), timeout=60) as line:
        for number in (1, 2, 3):
            assert posted(line, path, body(site, number))[0] in (200, 204)
        answers: list[tuple[int, str]] = []
        told = site.broken(lambda: answers.append(posted(line, path, body(site, 4))))[-1]
        assert answers == [(500, told["request_id"])]
        assert posted(line, path, body(site, 4))[0] in (200, 204)


def test_a_commit_that_fails_is_logged_with_its_request(tmp_path: Path) -> None:
    server = FaultyServer(tmp_path)
    httpx.put(server.url + "/v1/stream/s", headers={"Content-Type": "application/json"}).raise_for_status()
    server.break_disk("sync")
    answer = httpx.post(server.url + "/v1/stream/s", json=1, headers=headers("the one that is lost"))
    assert answer.json()["code"] == "OUTCOME_UNKNOWN"
    assert server.process.wait(STOP_SECONDS) == 1
    [told] = [line for line in logged(tmp_path / "stderr") if line["message"] == "the store failed"]
    assert (told["request_id"], told["traceparent"]) == ("the one that is lost", TRACE)
