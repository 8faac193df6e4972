"""Retries that are answered from a receipt are counted, on every surface, wire and store, and survive a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from websockets.sync.client import connect

from semel.server.writes.retry_table import CLOCK_SKEW_MS
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST
from tests.harness.together import eventually
from tests.harness.tokens import token_file
from tests.server.writes.write_site import DELTA, STORES, WriteSite, new_key, write_site


@pytest.fixture(scope="module", params=STORES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriteSite]:
    with write_site(tmp_path_factory.mktemp("retries"), request.param) as made:
        yield made


def retries(site: WriteSite, identity: str, place: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = site.one(identity, place)["retries"]
    return found


def expect(site: WriteSite, identity: str, count: int, place: str | None = None) -> dict[str, Any]:
    """Wait until that many retries are told; then they are told again after they were stored."""
    eventually(lambda: retries(site, identity, place)["count"] == count, f"{count} retries of {identity}")
    found = retries(site, identity, place)
    assert len(found["last"]) == min(count, 16)
    assert all(one["address"] == HOST for one in found["last"])
    assert [one["at"] for one in found["last"]] == sorted(one["at"] for one in found["last"])
    return found


def test_a_first_attempt_is_no_retry(site: WriteSite) -> None:
    key = new_key()
    site.append("s", key)
    assert retries(site, key) == {"count": 0, "last": []}


def test_retries_of_an_append_are_counted(site: WriteSite) -> None:
    key = new_key()
    for _ in range(21):
        site.append("s", key)
    expect(site, key, 20)


def test_retries_of_a_producer_are_counted(site: WriteSite) -> None:
    name = new_key()
    for _ in range(3):
        site.produce("made", name, 0)
    expect(site, name, 2)


def test_retries_of_an_event_are_counted_over_http_and_websocket(site: WriteSite) -> None:
    name = new_key()
    site.submit_event(name)
    site.submit_event(name)
    event = {"id": name, "partitions": ["p"], "event": {"type": "t"}}
    with connect(site.server.url.replace("http", "ws") + "/v1/events") as socket:
        hello = {"type": "connect", "protocol_version": "1.0", "msg_id": "1", "timestamp": 1}
        socket.send(json.dumps(hello | {"payload": {"token": "t", "client_id": "default"}}))
        assert json.loads(socket.recv())["type"] == "connected"
        sent = {"type": "submit_events", "protocol_version": "1.0", "msg_id": "2", "timestamp": 2}
        socket.send(json.dumps(sent | {"payload": {"events": [event]}}))
        assert json.loads(socket.recv())["type"] == "submit_events_result"
    expect(site, name, 2)


def test_retries_of_a_job_are_counted(site: WriteSite) -> None:
    key = new_key()
    jobs = [site.submit_job(key) for _ in range(4)]
    batch = {"jobs": [{"kind": "k", "queue": "default", "idempotency_key": key, "params": {}}]}
    site.sent("POST", "/v1/jobs/batch", batch)
    for identity in (jobs[0]["job_id"], jobs[0]["request_id"]):
        expect(site, identity, 4)


def test_retries_of_a_transaction_are_counted_over_http_and_grpc(site: WriteSite) -> None:
    place, key = site.make_vault(), new_key()
    first = site.transact(place, key)
    site.transact(place, key)
    org, _, vault = place.partition("/")
    operations = [{"setEntity": {"key": "k", "value": "AA=="}}]
    one = {"clientId": "billing", "idempotencyKey": key, "operations": operations}
    site.sent("POST", f"/ledger/v1/orgs/{org}/vaults/{vault}/writes:bulk", {"transactions": [one]})
    message = pb.WriteRequest()
    message.organization.slug, message.vault.slug = int(org), int(vault)
    message.client_id.id, message.idempotency_key = "billing", bytes.fromhex(key.replace("-", ""))
    entity = message.operations.add().set_entity
    entity.key, entity.value = "k", b"\0"
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        call: Any = channel.unary_unary(
            "/ledger.v1.WriteService/Write", response_deserializer=pb.WriteResponse.FromString
        )
        answer = call(message.SerializeToString(), timeout=60)
    assert answer.success.tx_id.id.hex() == site.one(key)["effect"]["tx_id"]
    expect(site, first["txId"]["id"], 3)


def test_retries_of_a_delta_are_counted(site: WriteSite) -> None:
    gateway = f"g-{new_key()}"
    delta, hlc = site.push(gateway)
    site.push(gateway)
    assert site.push(gateway, hlc=2 << 16)[0] != delta
    expect(site, f"{delta}@{hlc}", 1, gateway)
    assert DELTA["table"] == site.one(delta, gateway)["effect"]["table"]


def test_only_the_known_deltas_of_a_push_are_retries(site: WriteSite) -> None:
    gateway = f"g-{new_key()}"
    hlcs = [(number + 1) << 16 for number in range(600)]  # a push of this size is decided in parts
    known = site.push_all(gateway, hlcs[:300:100])
    pushed = site.push_all(gateway, hlcs)
    for place, delta in enumerate(pushed[:301:50]):
        expect(site, f"{delta}@{hlcs[place * 50]}", int(delta in known), gateway)


@pytest.mark.parametrize("kind", STORES)
def test_a_restart_keeps_the_counts(tmp_path: Path, kind: str) -> None:
    with write_site(tmp_path, kind) as site:
        for _ in range(4):
            site.append("s", "k")
        site.server.restart()
        assert retries(site, "k")["count"] == 3
        site.append("s", "k")
        assert retries(site, "k")["count"] == 4
        eventually(lambda: stored(site) >= 1, "the retry is stored")
        site.server.kill()
        site.server.start()
        assert retries(site, "k")["count"] == 4


def stored(site: WriteSite) -> float:
    """The soft commits of the server so far."""
    text = httpx.get(site.server.url + "/metrics", headers={"accept": "text/plain"}).text
    return float(next(line for line in text.splitlines() if 'commits_total{kind="soft"}' in line).split()[-1])


def test_the_principal_of_a_retry_is_told(tmp_path: Path) -> None:
    tokens = token_file(tmp_path, {"ada": ("the-token-of-ada", ["read", "write"], [])})
    with (
        write_site(tmp_path, "sqlite", SEMEL_TOKENS=str(tokens)) as made,
        WriteSite(made.server, "the-token-of-ada") as site,
    ):
        site.sent("PUT", "/v1/stream/s", b"", content_type="text/plain")
        for _ in range(40):
            site.sent("POST", "/v1/stream/s", b"hello", content_type="text/plain", idempotency_key="k")
        found = expect(site, "k", 39)
        assert {one["principal"] for one in found["last"]} == {"client:ada"}


def test_nodes_add_their_counts(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "data", 2, env={"SEMEL_STORE": fresh_url()})
    with nodes, WriteSite(nodes.each[0]) as one, WriteSite(nodes.each[1]) as other:
        for site in (one, one, other, other):
            site.append("s", "k")
        for site in (one, other):
            expect(site, "k", 3)


def test_the_retries_of_a_stream_that_was_deleted_are_not_told_of_its_successor(site: WriteSite) -> None:
    for _ in range(2):
        site.append("again", "same-key")
    eventually(lambda: retries(site, "same-key", "again")["count"] == 1, "the retry is counted")
    time.sleep(CLOCK_SKEW_MS / 1_000 + 0.1)
    site.sent("DELETE", "/v1/stream/again")
    site.append("again", "same-key")
    assert retries(site, "same-key", "again") == {"count": 0, "last": []}
