"""A known caller that may not: refused, and on record, on every surface and wire alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import httpx
import pytest

from tests.events.wire import Peer, item
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file

READER, WRITER, LIMITED = "the-token-of-the-reader", "the-token-of-the-writer", "the-token-of-the-limited"
EVENTS = {"events": [item(["p"])]}
DELTAS = {"clientId": "reader", "deltas": []}
CREATE = "/ledger.v1.AdminService/CreateOrganization"


class Site(NamedTuple):
    """A server with three tokens."""

    server: RunningServer

    def http(self, method: str, path: str, token: str, body: Any = None, **headers: str) -> int:
        known = {"Authorization": f"Bearer {token}"} | headers
        return httpx.request(method, self.server.url + path, headers=known, json=body).status_code

    def said(self, token: str, client: str, kind: str, payload: Any) -> str:
        """What the WebSocket of events answers."""
        with Peer(self.server.port, client) as peer:
            peer.connect(token=token)
            answer = peer.ask(kind, payload)["payload"]
        return str(answer.get("code") or answer["results"][0]["reason"])

    def grpc(self, path: str, token: str) -> str:
        with grpc.insecure_channel(f"{HOST}:{self.server.grpc_port}") as channel:
            call: Any = channel.unary_unary(path)
            try:
                call(b"\x0a\x01x", metadata=[("x-api-key", token)], timeout=60, wait_for_ready=True)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"

    def denials(self, path: str) -> int:
        """How many are on record for a path."""
        log = self.server.data / "logs" / "audit.jsonl"
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        lines = [json.loads(line) for line in whole.splitlines()]
        wanted = {"reason": "missing_role", "path": path, "remote_addr": HOST}
        return sum(line["event"] == "AUTH_FAILURE" and line["details"] == wanted for line in lines)


def connect_as_another(site: Site) -> str:
    with Peer(site.server.port) as peer:
        return str(peer.error("connect", {"client_id": "writer", "token": READER})["code"])


Try = tuple[str, object, Callable[[Site], object]]
"""The path on record, the refusal, and what is tried."""
TRIES: dict[str, Try] = {
    "streams, PUT": ("/v1/stream/a", 403, lambda site: site.http("PUT", "/v1/stream/a", READER)),
    "streams, POST": ("/v1/stream/b", 403, lambda site: site.http("POST", "/v1/stream/b", READER, 1)),
    "streams, DELETE": ("/v1/stream/c", 403, lambda site: site.http("DELETE", "/v1/stream/c", READER)),
    "streams, GET": ("/v1/stream/d", 403, lambda site: site.http("GET", "/v1/stream/d?offset=-1", WRITER)),
    "streams, another scope": ("/v1/stream/e", 403, lambda site: site.http("PUT", "/v1/stream/e", LIMITED)),
    "list of streams": ("/v1/streams", 403, lambda site: site.http("GET", "/v1/streams", WRITER)),
    "diagnosis": ("/v1/diagnose", 403, lambda site: site.http("GET", "/v1/diagnose", READER)),
    "events, POST": ("/v1/events", 200, lambda site: site.http("POST", "/v1/events", READER, EVENTS)),
    "events, GET": ("/v1/events", 403, lambda site: site.http("GET", "/v1/events?partition=p", WRITER)),
    "events, another's name": (
        "/v1/events",
        403,
        lambda site: site.http("GET", "/v1/events?partition=p&client_id=writer", READER),
    ),
    "events, submit": ("/v1/events", "forbidden", lambda site: site.said(READER, "reader", "submit_events", EVENTS)),
    "events, sync": (
        "/v1/events",
        "forbidden",
        lambda site: site.said(WRITER, "writer", "sync", {"partitions": ["p"], "since_committed_id": 0}),
    ),
    "events, connect as another": ("/v1/events", "auth_failed", connect_as_another),
    "jobs": ("/v1/jobs", 403, lambda site: site.http("POST", "/v1/jobs", READER, {"kind": "k", "params": {}})),
    "ledger": ("/ledger/v1/orgs", 403, lambda site: site.http("POST", "/ledger/v1/orgs", READER, {"name": "o"})),
    "ledger, gRPC": (CREATE, "PERMISSION_DENIED", lambda site: site.grpc(CREATE, READER)),
    "deltas": ("/v1/sync/g/push", 403, lambda site: site.http("POST", "/v1/sync/g/push", READER, DELTAS)),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("rights")
    entries = {
        "reader": (READER, ["read"], []),
        "writer": (WRITER, ["write"], []),
        "limited": (LIMITED, ["read", "write"], ["streams:mine-*"]),
    }
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKENS": str(token_file(folder, entries))}
    with RunningServer(folder / "data", env=env, grpc=True) as server:
        yield Site(server)


@pytest.mark.parametrize("name", TRIES)
def test_b8_a_known_caller_without_the_right_is_on_record(site: Site, name: str) -> None:
    path, refusal, attempt = TRIES[name]
    before = site.denials(path)
    assert attempt(site) == refusal
    eventually(lambda: site.denials(path) == before + 1, f"an audit line about {name}")


def test_b8_one_with_the_right_is_not(site: Site) -> None:
    assert site.http("PUT", "/v1/stream/mine-1", LIMITED) == 201
    assert site.http("POST", "/v1/events", WRITER, EVENTS) == 200
    assert site.http("GET", "/v1/events?partition=p", READER) == 200
    with Peer(site.server.port, "writer") as peer:
        peer.connect(token=WRITER)
        peer.commit(item(["p"]))
    before = site.denials("/v1/events")
    assert site.http("GET", "/v1/events?partition=p", WRITER) == 403  # its line is behind any of the others
    eventually(lambda: site.denials("/v1/events") > before, "a line")
    assert site.denials("/v1/events") == before + 1
    assert site.denials("/v1/stream/mine-1") == 0
