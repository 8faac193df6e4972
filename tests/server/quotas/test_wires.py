"""Each quota on each wire: the refusal has the shape of its surface, nothing is stored, and others are served."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from semel.server.quotas.accounts import LATE_SECONDS, PROMPT_REFUSALS
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.events.wire import Peer, fresh
from tests.harness.server import HOST
from tests.harness.together import eventually
from tests.server.quotas.site import LIVE, OTHER, SURFACES, Site, call, served
from tests.surfaces.test_shell import of_deltas, of_jobs, problem

READS = {
    "streams": "/v1/stream/s",
    "events": "/v1/events?partition=p&client_id={}",
    "jobs": "/v1/jobs",
    "ledger": "/ledger/v1/orgs",
    "deltas": "/sync/g/pull?since=0&clientId={}",
    "server": "/metrics",
}
WRITES = {
    "streams": "/v1/stream/s",
    "events": "/v1/events?client_id={}",
    "jobs": "/v1/jobs",
    "ledger": "/ledger/v1/orgs",
    "deltas": "/sync/g/push",
}
SHAPES: dict[str, tuple[Callable[[httpx.Response, str], None], str]] = {
    "streams": (problem, "QUOTA_EXCEEDED"),
    "events": (problem, "quota_exceeded"),
    "jobs": (of_jobs, "quota_exceeded"),
    "ledger": (problem, "RESOURCE_EXHAUSTED"),
    "deltas": (of_deltas, "QUOTA_EXCEEDED"),
    "server": (problem, "QUOTA_EXCEEDED"),
}
MANY = 200
"""More requests than any machine answers while a bucket of one token a second is never empty."""

PRINCIPALS = (
    {f"rate-{surface}": {"requests_per_second": 1} for surface in READS}
    | {f"bytes-{surface}": {"body_bytes_per_second": 100} for surface in WRITES}
    | {f"live-{kind}": {"live_readers": 1} for kind in LIVE}
    | {f"line-{wire}": {"connections": 1} for wire in ("http", "events", "deltas", "grpc")}
    | {
        "rate-grpc": {"requests_per_second": 1},
        "bytes-grpc": {"body_bytes_per_second": 100},
        "rate-paced": {"requests_per_second": 4},
        "bytes-chunked": {"body_bytes_per_second": 100},
        "shaped": {"requests_per_second": 20},
        "again": {"requests_per_second": 1},
        "late": {"requests_per_second": 1},
        "rate-stream": {"requests_per_second": 4, "live_readers": 1},
    }
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("quotas")
    with served(folder, PRINCIPALS) as site:
        yield site


def refused(answer: httpx.Response, surface: str, quota: str) -> None:
    """The refusal of a quota, in the shape of the surface."""
    shape, code = SHAPES[surface]
    assert answer.status_code == 429, answer.text
    shape(answer, code)
    assert int(answer.headers["retry-after"]) >= 1
    assert quota in answer.text or surface == "ledger", answer.text


def first_refusal(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The first answer with 429."""
    return next(answer for answer in (ask() for _ in range(MANY)) if answer.status_code == 429)


@pytest.mark.parametrize("surface", READS)
def test_requests_beyond_the_rate_get_429_in_the_shape_of_the_surface(site: Site, surface: str) -> None:
    name = f"rate-{surface}"
    before = site.refusals("requests_per_second")
    with site.client(name) as client:
        answer = first_refusal(lambda: client.get(READS[surface].format(name)))
    refused(answer, surface, "requests_per_second")
    assert site.refusals("requests_per_second") > before
    with site.client(OTHER) as client:
        assert [client.get(READS[surface].format(OTHER)).status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("surface", WRITES)
def test_a_body_is_charged_and_the_next_request_is_refused_until_its_debt_is_paid(site: Site, surface: str) -> None:
    name = f"bytes-{surface}"
    with site.client(name) as client:
        path = WRITES[surface].format(name)
        first = client.post(path, content=b'"%s"' % (b"x" * 5_000), headers={"Content-Type": "application/json"})
        assert first.status_code != 429
        refused(client.get(READS[surface].format(name)), surface, "body_bytes_per_second")


def test_a_body_of_unknown_length_is_charged_as_it_arrives(site: Site) -> None:
    with site.client("bytes-chunked") as client:
        chunks = (b"x" * 50_000 for _ in range(4))
        answer = client.post("/v1/stream/s", content=chunks, headers={"Content-Type": "text/plain"})
        assert answer.status_code == 204
        refused(client.get("/v1/stream/s"), "streams", "body_bytes_per_second")


def test_appends_of_a_known_shape_are_counted_and_a_refused_one_stores_nothing(site: Site) -> None:
    with site.client(OTHER) as client:
        client.put("/v1/stream/shaped", headers={"Content-Type": "text/plain"}).raise_for_status()
    codes = []
    with socket.create_connection((HOST, site.server.port)) as line:
        for number in range(400):  # in one piece each, as a head has to come that is known by its bytes
            line.sendall(
                b"POST /v1/stream/shaped HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer the-token-of-shaped\r\n"
                b"Content-Type: text/plain\r\nContent-Length: 1\r\nIdempotency-Key: key-%06d\r\n\r\nx" % number
            )
            answer = line.recv(65_536)
            codes.append(int(answer[9:12]))
            if codes[-1] == 429:
                break
    assert codes[-1] == 429, "the shapes were not counted"
    with site.client(OTHER) as client:
        assert client.get("/v1/stream/shaped").content == b"x" * codes.count(204)


def test_the_same_key_is_stored_after_the_advised_time(site: Site) -> None:
    def append(client: httpx.Client, number: int) -> httpx.Response:
        headers = {"Content-Type": "text/plain", "Idempotency-Key": f"again-{number}"}
        return client.post("/v1/stream/s", content=b"again", headers=headers)

    with site.client("again") as client:
        numbers = itertools.count()
        answer = first_refusal(lambda: append(client, next(numbers)))
        number = next(numbers) - 1
        assert answer.headers["retry-after"] == "1"
        eventually(lambda: append(client, number).status_code == 204, "the same request is taken later")


def test_a_principal_that_floods_gets_its_refusals_late(site: Site) -> None:
    with site.client("late") as client:
        answers = [client.get("/v1/stream/s") for _ in range(PROMPT_REFUSALS + 5)]
    late = [answer.elapsed.total_seconds() for answer in answers if answer.status_code == 429]
    assert max(late) >= LATE_SECONDS


def test_a_connection_beyond_the_quota_is_refused_and_closed_until_another_ends(site: Site) -> None:
    with site.client("line-http") as first:
        assert first.get("/v1/stream/s").status_code == 200
        with site.client("line-http") as second:
            answer = second.get("/v1/stream/s")
            refused(answer, "streams", "connections")
            assert answer.headers["connection"] == "close"
            assert first.get("/v1/stream/s").status_code == 200
    with site.client("line-http") as third:
        eventually(lambda: third.get("/v1/stream/s").status_code == 200, "the first connection has ended")


def joined(site: Site, name: str, peer: Peer) -> dict[str, Any]:
    """The answer to a handshake of events."""
    return peer.ask("connect", {"token": f"the-token-of-{name}", "client_id": name, "instance": fresh()})


def test_a_websocket_of_events_beyond_the_quota_gets_an_error_and_is_closed(site: Site) -> None:
    name = "line-events"
    with Peer(site.server.port) as first:
        assert joined(site, name, first)["type"] == "connected"
        with Peer(site.server.port) as second:
            second.send("connect", {"token": f"the-token-of-{name}", "client_id": name})
            ending = second.ending()
            assert (ending.error, ending.code) == ("quota_exceeded", 1013)

    def is_open() -> bool:
        with Peer(site.server.port) as third:
            return bool(joined(site, name, third)["type"] == "connected")

    eventually(is_open, "the first connection has ended")


def test_a_websocket_of_deltas_beyond_the_quota_gets_429(site: Site) -> None:
    with ExitStack() as stack:
        assert shaken(site, "line-deltas", stack) == 101
        assert shaken(site, "line-deltas", stack) == 429

    def is_open() -> bool:
        with ExitStack() as stack:
            return shaken(site, "line-deltas", stack) == 101

    eventually(is_open, "the first connection has ended")


def shaken(site: Site, name: str, stack: ExitStack) -> int:
    """The status of a handshake of deltas; the connection stays open with the stack."""
    url = f"ws://{HOST}:{site.server.port}/sync/g/ws?token=the-token-of-{name}"
    try:
        stack.enter_context(connect(url, open_timeout=60, close_timeout=60, proxy=None))
    except InvalidStatus as refused:
        return refused.response.status_code
    return 101


def test_a_message_of_a_websocket_beyond_the_rate_waits_and_is_answered(site: Site) -> None:
    with Peer(site.server.port) as peer:
        assert joined(site, "rate-paced", peer)["type"] == "connected"
        for _ in range(9):
            peer.send("heartbeat")
        assert [peer.answer()["type"] for _ in range(9)] == ["heartbeat_ack"] * 9
    assert 'quota="requests_per_second"' in site.metrics()


STREAMED = {
    "sse": ("/v1/stream/s?live=sse&offset=now", "streams"),
    "events": ("/v1/events?partition=p&client_id=live-events", "events"),
    "blocks": ("/ledger/v1/orgs/{org}/vaults/{vault}/blocks:watch?from=1", "ledger"),
}


def vault_in(site: Site) -> tuple[int, int]:
    """A new organization and a vault in it."""
    with site.client(OTHER) as client:
        org = client.post("/ledger/v1/orgs", json={"name": "o"}).json()["slug"]["slug"]
        vault = client.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
        return int(org), int(vault)


@pytest.mark.parametrize("kind", STREAMED)
def test_an_event_stream_beyond_the_quota_gets_429_until_another_ends(site: Site, kind: str) -> None:
    path, surface = STREAMED[kind]
    if kind == "blocks":
        org, vault = vault_in(site)
        path = path.format(org=org, vault=vault)
    headers = {"Accept": "text/event-stream"}
    with site.client(f"live-{kind}") as client:
        with client.stream("GET", path, headers=headers) as first:
            assert first.status_code == 200, first.read()
            refused(client.get(path, headers=headers), surface, "live_readers")

        def is_open() -> bool:
            with client.stream("GET", path, headers=headers) as later:
                return later.status_code == 200

        eventually(is_open, "the first stream has ended")


POLLS = {
    "poll": ("GET", "/v1/stream/s?live=long-poll&offset=now", None, "streams"),
    "wait": ("GET", "/v1/jobs/{job}?wait_ms=20000", None, "jobs"),
    "claim": ("POST", "/v1/jobs/claim", {"worker_id": "w", "queues": ["empty"], "wait_ms": 20_000}, "jobs"),
}


@pytest.mark.parametrize("kind", POLLS)
def test_a_long_poll_beyond_the_quota_gets_429(site: Site, kind: str) -> None:
    method, path, body, surface = POLLS[kind]
    if kind == "wait":
        with site.client(OTHER) as client:
            path = path.format(job=client.post("/v1/jobs", json={"kind": "k", "params": {}}).json()["job_id"])
    with site.client(f"live-{kind}") as client, client.stream("GET", "/v1/stream/s?live=sse&offset=now"):
        refused(client.request(method, path, json=body), surface, "live_readers")


def test_a_submission_that_waits_is_stored_and_answered_at_once_beyond_the_quota(site: Site) -> None:
    with site.client("live-wait") as client, client.stream("GET", "/v1/stream/s?live=sse&offset=now"):
        answer = client.post("/v1/jobs", json={"kind": "k", "params": {}, "wait_ms": 20_000}, timeout=15)
        assert answer.status_code == 200
        assert answer.json()["job_id"]


def live_socket(site: Site, kind: str, name: str, stack: ExitStack) -> int:
    """The status of a live connection, which goes on with the stack."""
    if kind == "socket":
        return shaken(site, name, stack)
    peer = stack.enter_context(Peer(site.server.port))
    assert joined(site, name, peer)["type"] == "connected"
    answer = peer.ask("sync", {"partitions": ["p"], "since_committed_id": 0, "subscription_partitions": ["p"]})
    is_refused = answer["type"] == "error" and answer["payload"]["code"] == "quota_exceeded"
    assert is_refused or answer["type"] == "sync_response", answer
    return 429 if is_refused else 101


@pytest.mark.parametrize("kind", ["socket", "sync"])
def test_a_live_websocket_beyond_the_quota_is_refused(site: Site, kind: str) -> None:
    with ExitStack() as stack:
        assert [live_socket(site, kind, f"live-{kind}", stack) for _ in range(2)] == [101, 429]


LIST = "/ledger.v1.AdminService/ListOrganizations"
CREATE = "/ledger.v1.AdminService/CreateOrganization"


def test_calls_of_grpc_beyond_the_rate_are_resource_exhausted(site: Site) -> None:
    with site.channel() as channel:
        assert "RESOURCE_EXHAUSTED" in (call(channel, "rate-grpc", LIST) for _ in range(MANY))
        assert call(channel, OTHER, LIST) == "OK"


def test_messages_of_grpc_are_charged(site: Site) -> None:
    with site.channel() as channel:
        name = b"\x0a\xff\x02" + b"x" * 383
        assert call(channel, "bytes-grpc", CREATE, name) in ("OK", "INVALID_ARGUMENT")
        assert call(channel, "bytes-grpc", LIST) == "RESOURCE_EXHAUSTED"


def test_a_connection_of_grpc_beyond_the_quota_is_refused(site: Site) -> None:
    with site.channel() as first:
        assert call(first, "line-grpc", LIST) == "OK"
        assert site.grpc("line-grpc") == "RESOURCE_EXHAUSTED"
        assert call(first, "line-grpc", LIST) == "OK"
    eventually(lambda: site.grpc("line-grpc") == "OK", "the first connection has ended")


def test_a_watch_of_grpc_beyond_the_quota_is_refused(site: Site) -> None:
    org, vault = vault_in(site)
    asked = pb.WatchBlocksRequest(
        organization=pb.OrganizationSlug(slug=org), vault=pb.VaultSlug(slug=vault), start_height=1
    ).SerializeToString()
    key = [("x-api-key", "the-token-of-live-watch")]
    with site.channel() as channel:
        watch: Any = channel.unary_stream("/ledger.v1.ReadService/WatchBlocks")
        first = watch(asked, metadata=key, timeout=60, wait_for_ready=True)
        first.initial_metadata()
        with pytest.raises(grpc.RpcError) as refusal:
            next(watch(asked, metadata=key, timeout=60))
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()


def test_transactions_of_a_stream_of_grpc_beyond_the_rate_wait_and_are_committed(site: Site) -> None:
    org, _ = vault_in(site)
    key = [("x-api-key", "the-token-of-rate-stream")]

    def writes() -> Iterator[bytes]:
        for sequence in range(1, 9):
            put = pb.Operation(set_entity=pb.SetEntity(key=f"k{sequence}", value=b"v"))
            yield pb.WriteRequest(
                organization=pb.OrganizationSlug(slug=org),
                client_id=pb.ClientId(id="rate-stream"),
                sequence=sequence,
                operations=[put],
            ).SerializeToString()

    with site.channel() as channel:
        stream: Any = channel.stream_stream("/ledger.v1.WriteService/StreamWrites")
        verdicts = [pb.WriteVerdict.FromString(one) for one in stream(writes(), metadata=key, timeout=60)]
    assert [one.WhichOneof("result") for one in verdicts] == ["success"] * 8, verdicts


def test_a_refusal_is_written_to_the_audit_log_with_its_principal_and_quota(site: Site) -> None:
    with site.client("line-http") as first, site.client("line-http") as second:
        eventually(lambda: first.get("/v1/stream/s").status_code == 200, "no other connection is open")
        assert second.get("/v1/stream/s").status_code == 429

    def is_told() -> bool:
        return any(
            (line["details"]["reason"], line["details"]["principal"]) == ("connections", "client:line-http")
            for line in site.audit()
        )

    eventually(is_told, "the line is in the file")


@pytest.mark.parametrize("surface", SURFACES)
def test_the_tables_have_every_surface(surface: str) -> None:
    assert surface in READS
    assert surface in WRITES
