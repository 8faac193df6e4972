"""The ledger: transactions of 1,000 operations and of 16 MiB over both wires, lists, batch reads, proofs, blocks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import orjson

from semel.server.ledger.proto import ledger_pb2 as pb
from tests.law.case import PATIENCE_SECONDS, Case, Make, Request
from tests.law.rig import WatchedServer

VALUE = b"\xff" * 1_000_000
Operations = list[tuple[str, bytes]]
Vault = tuple[str, int, int]


def vault_of(server: WatchedServer) -> Vault:
    """A new vault: its path, organization and number."""
    url = f"{server.url}/ledger/v1"
    org = httpx.post(f"{url}/orgs", json={"name": "law"}).json()["slug"]["slug"]
    vault = httpx.post(f"{url}/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
    return f"{url}/orgs/{org}/vaults/{vault}", int(org), int(vault)


def write_body(operations: Operations, sequence: int, *, proof: bool = False) -> bytes:
    """A transaction as JSON."""
    told = [{"setEntity": {"key": key, "value": b64encode(value).decode()}} for key, value in operations]
    return orjson.dumps({"clientId": "law", "sequence": str(sequence), "operations": told, "includeTxProof": proof})


def post(url: str, body: bytes) -> httpx.Response:
    """The answer, which is a success."""
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(url, content=body, headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text[:500]
    return answer


def by_http(operations: Operations) -> Make:
    """Write over HTTP, with a proof."""

    def make(server: WatchedServer) -> Request:
        place, _, _ = vault_of(server)
        body = write_body(operations, 1, proof=True)

        def request() -> int:
            post(f"{place}/writes", body)
            return len(body)

        return request

    return make


def call(server: WatchedServer, service: str, method: str, request: Any, answer: Any) -> Any:
    """One call over gRPC."""
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=sizes) as channel:
        ask = channel.unary_unary(
            f"/ledger.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return ask(request, timeout=PATIENCE_SECONDS)


def by_grpc(operations: Operations) -> Make:
    """Write over gRPC, with a proof."""

    def make(server: WatchedServer) -> Request:
        _, org, vault = vault_of(server)
        asked = pb.WriteRequest(include_tx_proof=True, sequence=1)
        asked.organization.slug, asked.vault.slug, asked.client_id.id = org, vault, "law"
        for key, value in operations:
            asked.operations.add().set_entity.MergeFrom(pb.SetEntity(key=key, value=value))

        def request() -> int:
            answer = call(server, "WriteService", "Write", asked, pb.WriteResponse)
            assert answer.HasField("success"), answer
            return int(asked.ByteSize())

        return request

    return make


def reading(operations: Operations, ask: Callable[[str], httpx.Response], times: int = 1) -> Make:
    """Read over HTTP what was written."""

    def make(server: WatchedServer) -> Request:
        place, _, _ = vault_of(server)
        for turn in range(times):
            post(f"{place}/writes", write_body(operations, turn + 1))

        def request() -> int:
            answer = ask(place)
            assert answer.status_code == 200, answer.text[:500]
            return len(answer.content)

        return request

    return make


def listing_by_grpc(operations: Operations) -> Make:
    """A page of entities over gRPC."""

    def make(server: WatchedServer) -> Request:
        place, org, vault = vault_of(server)
        post(f"{place}/writes", write_body(operations, 1))
        asked = pb.ListEntitiesRequest(limit=1_000)
        asked.organization.slug, asked.vault.slug = org, vault

        def request() -> int:
            answer = call(server, "ReadService", "ListEntities", asked, pb.ListEntitiesResponse)
            assert answer.entities
            return int(answer.ByteSize())

        return request

    return make


def get(path: str, **query: str) -> Callable[[str], httpx.Response]:
    """A GET below a vault."""
    return lambda place: httpx.get(place + path, params=query, timeout=PATIENCE_SECONDS)


def batch_read(keys: list[str]) -> Callable[[str], httpx.Response]:
    """Many keys at once."""
    return lambda place: post(f"{place}/entities:batchRead", orjson.dumps({"keys": keys}))


MANY: Operations = [(f"{number:0>1000}", b"v" * 1_000) for number in range(1_000)]
SMALL: Operations = [(f"k{number}", b"v") for number in range(1_000)]
LARGE: Operations = [(f"k{number}", VALUE) for number in range(11)]
GRPC_LARGE: Operations = [(f"k{number}", VALUE) for number in range(15)]
KEYS = [key for key, _ in MANY]
OPERATIONS, PAYLOAD = "1,000 operations", "message of 16 MiB"

CASES = [
    Case("ledger, HTTP", OPERATIONS, "keys and values of 1,000 bytes", by_http(MANY), is_quick=True),
    Case("ledger, HTTP", OPERATIONS, "small ones", by_http(SMALL)),
    Case("ledger, HTTP", PAYLOAD, "11 values of 1 MB", by_http(LARGE)),
    Case("ledger, gRPC", OPERATIONS, "keys and values of 1,000 bytes", by_grpc(MANY), is_quick=True),
    Case("ledger, gRPC", OPERATIONS, "small ones", by_grpc(SMALL)),
    Case("ledger, gRPC", PAYLOAD, "15 values of 1 MB", by_grpc(GRPC_LARGE)),
    Case(
        "ledger, HTTP", "list of 1,000 entities", "values of 1,000 bytes", reading(MANY, get("/entities", limit="1000"))
    ),
    Case("ledger, gRPC", "list of 1,000 entities", "values of 1,000 bytes", listing_by_grpc(MANY)),
    Case("ledger, HTTP", "1,000 keys of a batch", "values of 1,000 bytes", reading(MANY, batch_read(KEYS))),
    Case("ledger, HTTP", "proof of a key", "one of 1,000", reading(MANY, get(f"/entities/{KEYS[5]}", proof="true"))),
    Case(
        "ledger, HTTP",
        "blocks of 2 MiB",
        "1,000 operations each",
        reading(SMALL, get("/blocks", **{"from": "1", "to": "20"}), 20),
    ),
    Case("ledger, HTTP", "blocks of 2 MiB", "one of 11 MB", reading(LARGE, get("/blocks", **{"from": "1", "to": "1"}))),
]
