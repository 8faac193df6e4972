"""One shell around all surfaces: the same behaviour on every path and wire, each refusal in its surface's own shape.

The table has a row for each surface, the server's own paths, and the other wires: WebSocket handshakes and gRPC.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import grpc
import httpx
import pytest

from semel.surfaces.registry import SURFACES
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file

ADMIN, READER = "the-token-of-the-admin", "the-token-of-the-reader"
PAGE, FOREIGN = "https://app.example", "https://elsewhere.example"
BODY_LIMIT = 20_000
LARGE = json.dumps({"filler": "x" * 9_000_000}).encode()


def problem(answer: httpx.Response, code: str) -> None:
    """An RFC 9457 problem document."""
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (answer.status_code, code)
    assert {"type", "title", "detail", "retry"} <= set(body)


def of_jobs(answer: httpx.Response, code: str) -> None:
    """The shape of jobs."""
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["ok"], answer.json()["error"]) == (False, code)


def of_deltas(answer: httpx.Response, code: str) -> None:
    """The shape of deltas, with the id of the request."""
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["code"], answer.json()["requestId"]) == (code, answer.headers["x-request-id"])


class Refusal(NamedTuple):
    """A request that is refused, and how."""

    method: str
    path: str
    status: int
    code: str
    body: Any = None


class Row(NamedTuple):
    """What one surface answers."""

    shape: Callable[[httpx.Response, str], None]
    known: str
    """A path that is there, for GET."""
    unauthorized: str
    """The code of 401."""
    forbidden: Refusal
    missing: Refusal
    not_allowed: Refusal
    too_large: Refusal | None
    foreign: str
    """The code of a refused origin."""


TABLE: Mapping[str, Row] = {
    "streams": Row(
        problem,
        "/v1/stream/s",
        "UNAUTHORIZED",
        Refusal("PUT", "/v1/stream/s", 403, "FORBIDDEN"),
        Refusal("GET", "/v1/stream/missing", 404, "STREAM_NOT_FOUND"),
        Refusal("PATCH", "/v1/stream/s", 405, "METHOD_NOT_ALLOWED"),
        Refusal("POST", "/v1/stream/s", 413, "PAYLOAD_TOO_LARGE"),
        "FORBIDDEN_ORIGIN",
    ),
    "events": Row(
        problem,
        "/v1/events?partition=p",
        "auth_failed",
        Refusal("GET", "/v1/events?partition=p&client_id=admin", 403, "auth_failed"),
        Refusal("GET", "/v1/events/missing", 404, "not_found"),
        Refusal("PUT", "/v1/events", 405, "bad_request"),
        Refusal("POST", "/v1/events", 413, "bad_request"),
        "FORBIDDEN_ORIGIN",
    ),
    "jobs": Row(
        of_jobs,
        "/v1/jobs",
        "unauthorized",
        Refusal("POST", "/v1/jobs", 403, "forbidden", {"kind": "k", "params": {}}),
        Refusal("GET", "/v1/jobs/job_missing", 404, "not_found"),
        Refusal("PATCH", "/v1/jobs", 405, "method_not_allowed"),
        Refusal("POST", "/v1/jobs", 413, "too_large"),
        "forbidden_origin",
    ),
    "ledger": Row(
        problem,
        "/ledger/v1/orgs",
        "UNAUTHENTICATED",
        Refusal("POST", "/ledger/v1/orgs", 403, "PERMISSION_DENIED", {"name": "o"}),
        Refusal("GET", "/ledger/v1/missing", 404, "NOT_FOUND"),
        Refusal("PUT", "/ledger/v1/orgs", 405, "UNIMPLEMENTED"),
        Refusal("POST", "/ledger/v1/orgs", 400, "INVALID_ARGUMENT"),  # the contract has no 413
        "PERMISSION_DENIED",
    ),
    "deltas": Row(
        of_deltas,
        "/v1/sync/g/pull?since=0&clientId=c",
        "AUTH_ERROR",
        Refusal("POST", "/v1/sync/g/push", 403, "AUTH_ERROR", {"clientId": "reader", "deltas": []}),
        Refusal("GET", "/v1/sync/g/missing", 404, "NOT_FOUND"),
        Refusal("PUT", "/v1/sync/g/pull", 404, "NOT_FOUND"),  # a method that is not used is a path that is not there
        Refusal("POST", "/v1/sync/g/push", 413, "VALIDATION_ERROR"),
        "FORBIDDEN_ORIGIN",
    ),
    "server": Row(
        problem,
        "/metrics",
        "UNAUTHORIZED",
        Refusal("GET", "/v1/diagnose", 403, "FORBIDDEN"),
        Refusal("GET", "/v1/missing", 404, "NOT_FOUND"),
        Refusal("POST", "/metrics", 405, "METHOD_NOT_ALLOWED"),
        None,  # it takes no body
        "FORBIDDEN_ORIGIN",
    ),
}


class Site(NamedTuple):
    """A server with tokens and one allowed origin."""

    server: RunningServer

    def ask(self, method: str, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.request(method, self.server.url + path, headers=headers | options.pop("headers", {}), **options)

    def lines(self, event: str, path: str) -> list[dict[str, str]]:
        """The audit lines of an event at a path."""
        log = self.server.data / "logs" / "audit.jsonl"
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        found = [json.loads(line) for line in whole.splitlines()]
        return [one["details"] for one in found if one["event"] == event and one["details"].get("path") == path]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("shell")
    entries: dict[str, tuple[str, list[str], list[str]]] = {
        "admin": (ADMIN, ["read", "write", "work", "admin"], []),
        "reader": (READER, ["read"], []),
    }
    env = {
        "SEMEL_STORE": "memory:",
        "SEMEL_TOKENS": str(token_file(folder, entries)),
        "SEMEL_ALLOWED_ORIGINS": PAGE,
        "SEMEL_MAX_BODY_BYTES": str(BODY_LIMIT),
        "SEMEL_EVENTS_MESSAGE_BYTES": str(BODY_LIMIT),
        "SEMEL_DELTAS_MAX_BODY_BYTES": str(BODY_LIMIT),
    }
    with RunningServer(folder / "data", env=env, grpc=True) as server:
        site = Site(server)
        assert site.ask("PUT", "/v1/stream/s", ADMIN).status_code == 201
        yield site


def test_the_table_has_every_surface() -> None:
    assert set(TABLE) == {surface.name for surface in SURFACES} | {"server"}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("token", [None, "unknown"])
def test_401_without_a_credential_that_holds(site: Site, name: str, token: str | None) -> None:
    answer = site.ask("GET", TABLE[name].known, token)
    assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer")
    TABLE[name].shape(answer, TABLE[name].unauthorized)


@pytest.mark.parametrize("name", TABLE)
def test_403_without_the_right_and_its_audit_line(site: Site, name: str) -> None:
    row = TABLE[name].forbidden
    path = row.path.partition("?")[0]
    wanted = {"reason": "missing_role", "path": path, "remote_addr": HOST}
    before = site.lines("AUTH_FAILURE", path).count(wanted)
    answer = site.ask(row.method, row.path, READER, json=row.body)
    assert answer.status_code == row.status
    TABLE[name].shape(answer, row.code)
    eventually(lambda: site.lines("AUTH_FAILURE", path).count(wanted) == before + 1, "an audit line")


@pytest.mark.parametrize("name", TABLE)
def test_404_where_nothing_is(site: Site, name: str) -> None:
    row = TABLE[name].missing
    answer = site.ask(row.method, row.path, ADMIN)
    assert answer.status_code == row.status
    TABLE[name].shape(answer, row.code)


@pytest.mark.parametrize("name", TABLE)
def test_405_names_the_methods_that_are_used(site: Site, name: str) -> None:
    row = TABLE[name].not_allowed
    answer = site.ask(row.method, row.path, ADMIN, json={})
    assert answer.status_code == row.status
    TABLE[name].shape(answer, row.code)
    if row.status == 405:
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.too_large is not None])
def test_413_for_a_body_over_the_limit_and_the_connection_ends(site: Site, name: str) -> None:
    row = TABLE[name].too_large
    assert row is not None
    answer = site.ask(row.method, row.path, ADMIN, content=LARGE, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["connection"]) == (row.status, "close")
    TABLE[name].shape(answer, row.code)


@pytest.mark.parametrize("name", TABLE)
def test_options_needs_no_credential_and_names_the_methods(site: Site, name: str) -> None:
    answer = site.ask("OPTIONS", TABLE[name].known)
    assert (answer.status_code, answer.content) == (204, b"")
    assert {"GET", "OPTIONS"} <= {method.strip() for method in answer.headers["allow"].split(",")}


@pytest.mark.parametrize("name", TABLE)
def test_a_page_of_an_allowed_origin_may_call(site: Site, name: str) -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-one"}
    preflight = site.ask("OPTIONS", TABLE[name].known, headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, PAGE)
    assert preflight.headers["access-control-allow-headers"] == "x-one"
    for token in (ADMIN, None):
        answer = site.ask("GET", TABLE[name].known, token, headers={"Origin": PAGE})
        assert answer.status_code == (401 if token is None else 200)
        varies = {field.strip() for field in answer.headers["vary"].split(",")}
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert varies == {"Origin"}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_a_page_of_a_foreign_origin_may_not_and_is_on_record(site: Site, name: str, method: str) -> None:
    path = TABLE[name].known.partition("?")[0]
    before = len(site.lines("ORIGIN_REFUSED", path))
    answer = site.ask(method, TABLE[name].known, ADMIN, headers={"Origin": FOREIGN})
    assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
    TABLE[name].shape(answer, TABLE[name].foreign)
    eventually(lambda: len(site.lines("ORIGIN_REFUSED", path)) == before + 1, "an audit line")


@pytest.mark.parametrize("name", TABLE)
def test_a_request_id_is_given_back_and_else_made(site: Site, name: str) -> None:
    paths = [TABLE[name].known, TABLE[name].missing.path]
    given = [site.ask("GET", path, ADMIN, headers={"X-Request-Id": "my own: 7"}) for path in paths]
    assert [answer.headers["x-request-id"] for answer in given] == ["my own: 7"] * 2
    made = {site.ask("GET", path, ADMIN).headers["x-request-id"] for path in paths * 2}
    assert len(made) == 4
    too_long = site.ask("GET", paths[0], ADMIN, headers={"X-Request-Id": "x" * 129})
    assert too_long.headers["x-request-id"] not in ("", "x" * 129)


@pytest.mark.parametrize("name", TABLE)
def test_every_answer_has_the_headers_of_all(site: Site, name: str) -> None:
    for answer in (site.ask("GET", TABLE[name].known, ADMIN), site.ask("GET", TABLE[name].missing.path, ADMIN)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "sandbox"
        assert "date" in answer.headers


# The other wires.

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
}


def shake(site: Site, path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, site.server.port, timeout=60)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        body = b"" if answer.status == 101 else answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body
    finally:
        connection.close()


SOCKETS = {"events": "/v1/events", "deltas": "/v1/sync/g/ws"}


@pytest.mark.parametrize("name", SOCKETS)
def test_a_handshake_of_a_foreign_page_is_refused_in_the_surfaces_shape(site: Site, name: str) -> None:
    before = len(site.lines("ORIGIN_REFUSED", SOCKETS[name]))
    known = {"Authorization": f"Bearer {ADMIN}"}
    status, headers, body = shake(site, SOCKETS[name], HANDSHAKE | known | {"Origin": FOREIGN})
    assert (status, json.loads(body)["code"], bool(headers["x-request-id"])) == (403, TABLE[name].foreign, True)
    eventually(lambda: len(site.lines("ORIGIN_REFUSED", SOCKETS[name])) == before + 1, "an audit line")
    assert shake(site, SOCKETS[name], HANDSHAKE | known | {"Origin": PAGE})[0] == 101


def test_a_handshake_of_deltas_needs_a_credential(site: Site) -> None:
    status, headers, body = shake(site, SOCKETS["deltas"], HANDSHAKE | {"X-Request-Id": "mine"})
    assert (status, json.loads(body)["code"], headers["x-request-id"]) == (401, "AUTH_ERROR", "mine")


@pytest.mark.parametrize("name", SOCKETS)
@pytest.mark.parametrize("origin", [None, FOREIGN])
def test_a_refused_handshake_is_answered_like_a_request(site: Site, name: str, origin: str | None) -> None:
    flawed = HANDSHAKE | {"Sec-WebSocket-Version": "12", "X-Request-Id": "mine"}
    status, headers, body = shake(site, SOCKETS[name], flawed if origin is None else flawed | {"Origin": origin})
    answer = httpx.Response(status, headers=headers, content=body)
    code = {"events": "bad_request", "deltas": "VALIDATION_ERROR"}[name] if origin is None else TABLE[name].foreign
    TABLE[name].shape(answer, code)
    assert (status, headers.get("sec-websocket-version")) == ((400, "13") if origin is None else (403, None))
    assert (headers["x-request-id"], headers["connection"]) == ("mine", "close")
    assert (headers["x-content-type-options"], headers["vary"], "date" in headers) == ("nosniff", "Origin", True)


CREATE = "/ledger.v1.AdminService/CreateOrganization"


def called(site: Site, path: str, message: bytes, token: str | None) -> str:
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        call: Any = channel.unary_unary(path)
        known = [] if token is None else [("x-api-key", token)]
        try:
            call(message, metadata=known, timeout=60, wait_for_ready=True)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


GRPC: Mapping[str, tuple[str, bytes, str | None]] = {
    "UNAUTHENTICATED": (CREATE, b"\x0a\x01x", None),
    "PERMISSION_DENIED": (CREATE, b"\x0a\x01x", READER),
    "UNIMPLEMENTED": ("/ledger.v1.AdminService/Missing", b"", ADMIN),
    "INVALID_ARGUMENT": (CREATE, b"\x0a\xff\xff\x03" + b"x" * 65_535, ADMIN),
    "OK": (CREATE, b"\x0a\x01x", ADMIN),
}


@pytest.mark.parametrize("status", GRPC)
def test_grpc_refuses_alike(site: Site, status: str) -> None:
    path, message, token = GRPC[status]
    reason = {"UNAUTHENTICATED": "missing_token", "PERMISSION_DENIED": "missing_role"}.get(status, "")
    assert called(site, path, message, token) == status
    if reason:
        recorded = {"reason": reason, "path": path, "remote_addr": HOST}
        eventually(lambda: site.lines("AUTH_FAILURE", path).count(recorded) == 1, "an audit line")
