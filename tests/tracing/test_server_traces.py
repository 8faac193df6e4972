"""The spans of a server: whose requests have them, on each wire and store, and what a lost collector costs."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from semel.client.telemetry import operation_of, template_of
from semel.server.ops.traces import route_template
from semel.surfaces.registry import SURFACES
from tests.events.wire import Peer
from tests.harness.collector import Collector, ReceivedSpan
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.ledger.calls import GrpcWire
from tests.tracing.calls import CONTENT, KEY, NAME, TOKEN, assert_no_secret, trace_of

TEXT = {"Content-Type": "text/plain"}
NAMES = ["POST /v1/stream/{}", "semel commit"]


def parent(*, is_sampled: bool = True) -> tuple[str, str]:
    """A new trace id, and the `traceparent` that continues it."""
    trace = secrets.token_hex(16)
    return trace, f"00-{trace}-{secrets.token_hex(8)}-{'01' if is_sampled else '00'}"


def call(server: RunningServer, method: str, path: str, body: bytes, fields: Mapping[str, str]) -> int:
    """The status of a request with the token, on a connection of its own."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **fields})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def append(server: RunningServer, fields: Mapping[str, str], name: str = NAME) -> None:
    """Create a stream and append to it; only the append has these fields."""
    assert call(server, "PUT", f"/v1/stream/{name}", b"", TEXT) in (200, 201)
    assert call(server, "POST", f"/v1/stream/{name}", CONTENT.encode(), {**TEXT, **fields}) == 204


def test_only_requests_with_a_sampled_traceparent_are_traced(server: RunningServer, collector: Collector) -> None:
    _, unsampled = parent(is_sampled=False)
    zeros = f"00-{'0' * 32}-{'0' * 16}-01"
    before = {one.trace_id for one in collector.spans}
    for fields in ({}, {"traceparent": unsampled}, {"traceparent": zeros}, {"traceparent": "nonsense-01"}):
        append(server, fields)
    trace, sampled = parent()
    append(server, {"traceparent": sampled, "tracestate": "vendor=1"})
    served, commit = trace_of(collector, trace, NAMES)
    assert served.parent_id == sampled.split("-")[2]
    assert commit.parent_id == served.span_id
    assert {one.trace_id for one in collector.spans} - before == {trace}


@pytest.mark.parametrize("store", ["memory", "postgresql"])
def test_a_commit_of_each_store_has_a_span_with_its_name(collector: Collector, tmp_path: Path, store: str) -> None:
    url = "memory:" if store == "memory" else fresh_url()
    variables = collector.variables() | {"SEMEL_STORE": url, "SEMEL_TOKEN_ACTIVE": TOKEN}
    trace, sampled = parent()
    with RunningServer(tmp_path / "data", env=variables) as running:
        append(running, {"traceparent": sampled, "Idempotency-Key": KEY})
    served, commit = trace_of(collector, trace, NAMES)
    assert commit.parent_id == served.span_id
    assert commit.attributes["db.system.name"] == store
    assert commit.attributes["semel.verdict"] == "fresh"


def test_a_large_body_belongs_to_the_trace_of_its_request(server: RunningServer, collector: Collector) -> None:
    """It is read in a task, and its content is parsed in a thread."""
    name = f"large-{secrets.token_hex(4)}"
    kind = {"Content-Type": "application/json"}
    assert call(server, "PUT", f"/v1/stream/{name}", b"", kind) == 201
    body = json.dumps(["x" * 100] * 20_000).encode()
    trace, sampled = parent()
    assert call(server, "POST", f"/v1/stream/{name}", body, {**kind, "traceparent": sampled}) == 204
    served, commit = trace_of(collector, trace, NAMES)
    assert commit.parent_id == served.span_id


def test_a_refused_request_has_a_span_and_no_commit(server: RunningServer, collector: Collector) -> None:
    trace, sampled = parent()
    path = f"/v1/jobs/{NAME}/nothing"
    assert call(server, "GET", path, b"", {"traceparent": sampled}) == 404
    [served] = trace_of(collector, trace, ["GET /v1/jobs/{}"])
    assert served.attributes["http.response.status_code"] == 404
    assert not served.is_failed
    assert_no_secret(collector)


def test_a_client_that_leaves_before_the_answer_ends_the_span(server: RunningServer, collector: Collector) -> None:
    trace, sampled = parent()
    name = f"live-{secrets.token_hex(4)}"
    assert call(server, "PUT", f"/v1/stream/{name}", b"", TEXT) == 201
    head = f"POST /v1/stream/{name} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: text/plain\r\nContent-Length: 1000000\r\ntraceparent: {sampled}\r\n\r\nbegin"
    with socket.create_connection((HOST, server.port)) as line:
        line.sendall(head.encode())
    [served] = trace_of(collector, trace, ["POST /v1/stream/{}"])
    assert served.attributes["error.type"] == "client_disconnected"
    assert "http.response.status_code" not in served.attributes


@pytest.fixture
def open_server(collector: Collector, tmp_path: Path) -> Iterator[RunningServer]:
    """A server without credentials: two clients of events have two names there."""
    with RunningServer(tmp_path / "data", env=collector.variables()) as running:
        yield running


def test_messages_of_a_websocket_are_spans_of_the_handshakes_trace(
    open_server: RunningServer, collector: Collector
) -> None:
    trace, sampled = parent()
    with Peer(open_server.port, additional_headers={"traceparent": sampled}) as client:
        client.connect()
        for number in range(3):
            event = {"type": "t", "payload": {"text": CONTENT}}
            client.commit({"id": f"{KEY}-{secrets.token_hex(4)}-{number}", "partitions": [NAME], "event": event})
    message = "semel events message"
    spans = trace_of(collector, trace, [message] * 4 + ["semel commit"] * 3)
    commits = [one for one in spans if one.name == "semel commit"]
    messages = {one.span_id: one for one in spans if one.name == message}
    assert len({one.parent_id for one in commits} & messages.keys()) == 3
    assert {one.kind for one in messages.values()} == {"server"}
    assert {one.parent_id for one in messages.values()} == {sampled.split("-")[2]}
    assert_no_secret(collector)


def test_messages_of_an_unsampled_websocket_beside_a_sampled_one_have_no_spans(
    open_server: RunningServer, collector: Collector
) -> None:
    trace, sampled = parent()
    other, unsampled = parent(is_sampled=False)
    with (
        Peer(open_server.port, additional_headers={"traceparent": sampled}) as traced,
        Peer(open_server.port, additional_headers={"traceparent": unsampled}) as plain,
    ):
        traced.connect()
        plain.connect()
        for number in range(20):
            event = {"type": "t", "payload": {}}
            for client in (traced, plain):
                name = f"{KEY}-{secrets.token_hex(4)}-{number}"
                client.send("submit_events", {"events": [{"id": name, "partitions": [NAME], "event": event}]})
        for _ in range(20):
            traced.answer()
            plain.answer()
    spans = trace_of(collector, trace, ["semel events message"] * 21 + ["semel commit"] * 20)
    assert len(spans) == 41
    assert not [one for one in collector.spans if one.trace_id == other]


def test_a_call_over_grpc_is_a_span_with_its_commit(server: RunningServer, collector: Collector) -> None:
    trace, sampled = parent()
    wire = GrpcWire([server.grpc_port], metadata=[("authorization", f"Bearer {TOKEN}")])
    try:
        org = wire.ask("CreateOrganization", {"name": NAME})["slug"]["slug"]
        vault = wire.ask("CreateVault", {"organization": {"slug": org}})["vault"]["slug"]
        write = {
            "organization": {"slug": org},
            "vault": {"slug": vault},
            "clientId": {"id": NAME},
            "sequence": "1",
            "operations": [{"setEntity": {"key": KEY, "value": "MTAw"}}],
        }
        wire.ask("Write", write, [("traceparent", sampled)])
    finally:
        wire.close()
    spans = collector.wait_for(lambda spans: sum(one.trace_id == trace for one in spans) == 2)
    served, commit = sorted((one for one in spans if one.trace_id == trace), key=_is_commit)
    assert served.name.endswith("/Write")
    assert (served.kind, served.attributes["rpc.system.name"], served.attributes["rpc.response.status_code"]) == (
        "server",
        "grpc",
        "0",
    )
    assert (commit.parent_id, commit.attributes["semel.verdict"]) == (served.span_id, "fresh")
    assert_no_secret(collector)


def _is_commit(span: ReceivedSpan) -> bool:
    return span.name == "semel commit"


def test_a_collector_that_fails_is_logged_once_and_fails_no_request(tmp_path: Path) -> None:
    with Collector(status=400) as refusing:
        variables = refusing.variables() | {"SEMEL_TOKEN_ACTIVE": TOKEN, "SEMEL_LOG_FORMAT": "json"}
        with RunningServer(tmp_path / "data", env=variables) as running:
            for _ in range(20):
                append(running, {"traceparent": parent()[1]})
            assert running.stop() == 0
            running.start()
        printed = running.output.read_text()
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    told = [one["message"] for one in lines if one["level"] != "info"]
    assert told == ["traces cannot be sent; they are dropped until the collector can be reached"], printed


def test_clients_know_the_words_of_all_routes() -> None:
    for row in SURFACES:
        for word in row.route_words:
            assert template_of(f"/{word.decode()}") == f"/{word.decode()}"


def test_names_and_ids_are_no_part_of_a_route() -> None:
    words = {row.name: row.route_words for row in SURFACES}
    for surface, path, route in (
        ("streams", b"/v1/stream/a/b%20c", "/v1/stream/{}"),
        ("streams", b"/v1/stream/", "/v1/stream/{}"),
        ("streams", b"/v1/streams", "/v1/streams"),
        ("jobs", b"/v1/jobs/job_0123/complete", "/v1/jobs/{}/complete"),
        ("jobs", b"/v1/jobs/queues/mail", "/v1/jobs/queues/{}"),
        ("ledger", b"/ledger/v1/orgs/1/vaults/2/blocks/7/proof", "/ledger/v1/orgs/{}/vaults/{}/blocks/{}/proof"),
        ("deltas", b"/sync/gw/push", "/sync/{}/push"),
        ("events", b"/v1/events", "/v1/events"),
        ("events", b"/v1/events/id/mail", "/v1/events/id/{}"),
        ("events", b"*", "/"),
    ):
        assert route_template(path, words[surface]) == route


def test_a_call_is_named_by_its_surface_and_operation() -> None:
    for method, path, surface, operation in (
        ("PUT", "/v1/stream/orders", "streams", "create"),
        ("DELETE", "/v1/stream/orders", "streams", "delete"),
        ("GET", "/v1/streams?prefix=a", "streams", "list"),
        ("GET", "/v1/events/partitions", "events", "partitions"),
        ("POST", "/v1/jobs/claim", "jobs", "claim"),
        ("POST", "/v1/jobs/job_01/complete", "jobs", "complete"),
        ("GET", "/ledger/v1/orgs/1/vaults/2/tip", "ledger", "tip"),
        ("POST", "/v1/sync/gw/push", "deltas", "push"),
        ("GET", "/readyz", "server", "readyz"),
        ("GET", "/", "server", "read"),
    ):
        assert operation_of(method, template_of(path)) == (surface, operation)
