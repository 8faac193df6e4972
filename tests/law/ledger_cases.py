"""The ledger: transactions of 1,000 operations and of 16 MiB over both wires, lists, batch reads, proofs, blocks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import orjson

from semel.surfaces.ledger.proto import ledger_pb2 as pb
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


def by_http(operations: Operations, call: str = "writes") -> Make:
    """Write over HTTP, with a proof."""

    def make(server: WatchedServer) -> Request:
        place, _, _ = vault_of(server)
        body = write_body(operations, 1, proof=True)
        if call == "batches":
            facts = orjson.loads(body)
            facts["operations"] = [{"operations": facts["operations"]}]
            facts["includeTxProofs"] = facts.pop("includeTxProof")
            body = orjson.dumps(facts)

        def request() -> int:
            post(f"{place}/{call}", body)
            return len(body)

        return request

    return make


def call(server: WatchedServer, service: str, method: str, request: Any, answer: Any, *, packs: bool = False) -> Any:
    """One call over gRPC."""
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    packing = grpc.Compression.Gzip if packs else grpc.Compression.NoCompression
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=sizes, compression=packing) as channel:
        ask = channel.unary_unary(
            f"/ledger.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return ask(request, timeout=PATIENCE_SECONDS)


def by_grpc(operations: Operations, *, packs: bool = False, in_groups: bool = False) -> Make:
    """Write over gRPC, with a proof."""

    def make(server: WatchedServer) -> Request:
        _, org, vault = vault_of(server)
        told = [pb.Operation(set_entity=pb.SetEntity(key=key, value=value)) for key, value in operations]
        asked: Any = pb.WriteRequest(include_tx_proof=True, sequence=1, operations=told)
        method, kind = "Write", pb.WriteResponse  # type: Any, Any
        if in_groups:
            groups = [pb.BatchWriteOperation(operations=told)]
            asked = pb.BatchWriteRequest(include_tx_proofs=True, sequence=1, operations=groups)
            method, kind = "BatchWrite", pb.BatchWriteResponse
        asked.organization.slug, asked.vault.slug, asked.client_id.id = org, vault, "law"

        def request() -> int:
            answer = call(server, "WriteService", method, asked, kind, packs=packs)
            assert answer.HasField("success"), answer
            return int(asked.ByteSize())

        return request

    return make


def reading(operations: Operations, ask: Callable[[str], httpx.Response], times: int = 1) -> Make:
    """Read over HTTP what was written, on a fresh process."""

    def make(server: WatchedServer) -> Request:
        place, _, _ = vault_of(server)
        for turn in range(times):
            post(f"{place}/writes", write_body(operations, turn + 1))
        server.restart()

        def request() -> int:
            answer = ask(place)
            assert answer.status_code == 200, answer.text[:500]
            return len(answer.content)

        return request

    return make


def reading_by_grpc(operations: Operations, method: str, times: int = 1, **fields: Any) -> Make:
    """The same over gRPC."""
    asks, answers = getattr(pb, f"{method}Request"), getattr(pb, f"{method}Response")

    def make(server: WatchedServer) -> Request:
        place, org, vault = vault_of(server)
        for turn in range(times):
            post(f"{place}/writes", write_body(operations, turn + 1))
        server.restart()
        asked = asks(**fields)
        asked.organization.slug, asked.vault.slug = org, vault
        return lambda: int(call(server, "ReadService", method, asked, answers).ByteSize())

    return make


def relationships(count: int) -> Make:
    """A transaction of relationships, as long as they may be."""

    def make(server: WatchedServer) -> Request:
        place, _, _ = vault_of(server)
        told = [
            {"createRelationship": {"resource": f"r:{number:0>500}", "relation": "r" * 64, "subject": f"s:{'s' * 500}"}}
            for number in range(count)
        ]
        body = orjson.dumps({"clientId": "law", "sequence": "1", "operations": told, "includeTxProof": True})

        def request() -> int:
            post(f"{place}/writes", body)
            return len(body)

        return request

    return make


def chain(headers: int, *, over_grpc: bool = False) -> Make:
    """The headers from one block to another."""

    def make(server: WatchedServer) -> Request:
        place, org, vault = vault_of(server)
        with httpx.Client(timeout=PATIENCE_SECONDS) as client, ThreadPoolExecutor(16) as pool:

            def write(number: int) -> None:
                facts = {"clientId": f"c{number}", "sequence": "1", "operations": [{"deleteEntity": {"key": "k"}}]}
                client.post(f"{place}/writes", json=facts).raise_for_status()

            list(pool.map(write, range(headers + 1)))
        server.restart()
        query = {"trustedHeight": "1"}

        def request() -> int:
            answer = httpx.get(f"{place}/blocks/{headers + 1}/proof", params=query, timeout=PATIENCE_SECONDS)
            assert answer.status_code == 200, answer.text[:500]
            return len(answer.content)

        def request_by_grpc() -> int:
            asked = pb.VerifiedReadRequest(key="k", include_chain_proof=True, trusted_height=1)
            asked.organization.slug, asked.vault.slug = org, vault
            answer = call(server, "ReadService", "VerifiedRead", asked, pb.VerifiedReadResponse)
            assert len(answer.chain_proof.headers) == headers
            return int(answer.ByteSize())

        return request_by_grpc if over_grpc else request

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

THREE: Operations = [(f"k{number}", VALUE) for number in range(3)]
ONE: Operations = [("k", VALUE)]
HTTP, GRPC = "ledger, HTTP", "ledger, gRPC"
LISTED, BLOCKS, READ = "list of 1,000 entities", "blocks of 2 MiB", "1,000 keys of a batch"
LONG_KEYS = "keys and values of 1,000 bytes"
TEN = {"start_height": 1, "end_height": 20}

CASES = [
    Case(HTTP, OPERATIONS, LONG_KEYS, by_http(MANY), is_quick=True),
    Case(HTTP, OPERATIONS, "small ones", by_http(SMALL)),
    Case(HTTP, OPERATIONS, "relationships", relationships(1_000)),
    Case(HTTP, PAYLOAD, "11 values of 1 MB", by_http(LARGE)),
    Case(HTTP, PAYLOAD, "a batch of 11 values of 1 MB", by_http(LARGE, "batches")),
    Case(GRPC, OPERATIONS, LONG_KEYS, by_grpc(MANY), is_quick=True),
    Case(GRPC, OPERATIONS, "small ones", by_grpc(SMALL)),
    Case(GRPC, OPERATIONS, "small ones, compressed", by_grpc(SMALL, packs=True)),
    Case(GRPC, PAYLOAD, "15 values of 1 MB", by_grpc(GRPC_LARGE)),
    Case(GRPC, PAYLOAD, "15 values of 1 MB, compressed", by_grpc(GRPC_LARGE, packs=True)),
    Case(GRPC, PAYLOAD, "a batch of 15 values of 1 MB", by_grpc(GRPC_LARGE, in_groups=True)),
    Case(HTTP, LISTED, "values of 1,000 bytes", reading(MANY, get("/entities", limit="1000"))),
    Case(HTTP, LISTED, "values of 1 MB", reading(LARGE, get("/entities", limit="1000"))),
    Case(GRPC, LISTED, "values of 1,000 bytes", reading_by_grpc(MANY, "ListEntities", limit=1_000)),
    Case(GRPC, LISTED, "values of 1 MB", reading_by_grpc(LARGE, "ListEntities", limit=1_000)),
    Case(HTTP, READ, "values of 1,000 bytes", reading(MANY, batch_read(KEYS))),
    Case(HTTP, READ, "3 values of 1 MB", reading(THREE, batch_read([key for key, _ in THREE]))),
    Case(GRPC, READ, "values of 1,000 bytes", reading_by_grpc(MANY, "BatchRead", keys=KEYS)),
    Case(GRPC, READ, "3 values of 1 MB", reading_by_grpc(THREE, "BatchRead", keys=[key for key, _ in THREE])),
    Case(HTTP, "proof of a key", "one of 1,000", reading(MANY, get(f"/entities/{KEYS[5]}", proof="true"))),
    Case(HTTP, "proof of a key", "a value of 1 MB", reading(ONE, get("/entities/k", proof="true"))),
    Case(HTTP, BLOCKS, "1,000 operations each", reading(SMALL, get("/blocks", **{"from": "1", "to": "20"}), 20)),
    Case(HTTP, BLOCKS, "one of 11 MB", reading(LARGE, get("/blocks", **{"from": "1", "to": "1"}))),
    Case(GRPC, BLOCKS, "1,000 operations each", reading_by_grpc(SMALL, "GetBlockRange", 20, **TEN)),
    Case(GRPC, BLOCKS, "one of 11 MB", reading_by_grpc(LARGE, "GetBlock", height=1)),
    Case(HTTP, "chain proof of 10,000 headers", "small blocks", chain(10_000)),
    Case(GRPC, "chain proof of 10,000 headers", "small blocks", chain(10_000, over_grpc=True)),
]
