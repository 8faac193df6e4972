"""A server with one write of every kind, and a client that looks them up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

from tests.deltas.vectors import delta_id
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

STORES = ("sqlite", "postgres")
DELTA: dict[str, Any] = {
    "op": "INSERT",
    "table": "todos",
    "rowId": "r1",
    "columns": [{"column": "title", "value": "milk"}],
}


def store_env(kind: str) -> dict[str, str]:
    """The setting of a store of its own."""
    return {} if kind == "sqlite" else {"SEMEL_STORE": fresh_url()}


class WriteSite:
    """A server, and what one caller of it does."""

    def __init__(self, server: RunningServer, token: str = "", prefix: str = "") -> None:
        self.server = server
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=server.url + prefix, headers=headers, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def sent(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request that must succeed."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        kind = {"content-type": "application/json"} | headers
        answer = self.client.request(method, path, content=content, headers=kind)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer

    def get(self, identity: str | bytes, place: str | None = None) -> dict[str, Any]:
        """The answer to a GET."""
        query = "" if place is None else f"?in={quote(place, safe='')}"
        answer = self.client.get(f"/v1/writes/{quote(identity, safe='').replace('.', '%2E')}{query}")
        assert answer.status_code == 200, answer.text
        facts: dict[str, Any] = answer.json()
        return facts

    def find(self, identity: str, place: str | None = None) -> dict[str, Any]:
        """The answer to a POST, which is that to a GET."""
        body = {"id": identity} if place is None else {"id": identity, "in": place}
        facts: dict[str, Any] = self.sent("POST", "/v1/writes/find", body).json()
        assert _steady(facts) == _steady(self.get(identity, place))
        return facts

    def one(self, identity: str, place: str | None = None) -> dict[str, Any]:
        """The only match, of a complete answer."""
        facts = self.find(identity, place)
        assert (facts["complete"], facts["hint"]) == (True, None), facts
        [write] = facts["writes"]
        found: dict[str, Any] = write
        return found

    def append(self, stream: str, key: str, body: bytes = b"hello") -> httpx.Response:
        """Append to a stream, which is created if need be."""
        self.sent("PUT", f"/v1/stream/{stream}", b"", content_type="text/plain")
        return self.sent("POST", f"/v1/stream/{stream}", body, content_type="text/plain", idempotency_key=key)

    def produce(self, stream: str, producer: str, seq: int) -> httpx.Response:
        """Append as a producer."""
        self.sent("PUT", f"/v1/stream/{stream}", b"", content_type="text/plain")
        named = {"producer_id": producer, "producer_epoch": "0", "producer_seq": str(seq)}
        return self.sent("POST", f"/v1/stream/{stream}", b"x", content_type="text/plain", **named)

    def submit_event(self, identity: str, partition: str = "p") -> dict[str, Any]:
        """Commit an event; the facts of its result."""
        events = [{"id": identity, "partitions": [partition], "event": {"type": "t"}}]
        result: dict[str, Any] = self.sent("POST", "/v1/events", {"events": events}).json()["results"][0]
        return result

    def submit_job(self, key: str, queue: str = "default") -> dict[str, Any]:
        """Submit a job."""
        job = {"kind": "k", "queue": queue, "idempotency_key": key, "params": {}}
        facts: dict[str, Any] = self.sent("POST", "/v1/jobs", job).json()
        return facts

    def make_vault(self) -> str:
        """An organization and a vault: the place, as it is written in look-ups."""
        org = self.sent("POST", "/ledger/v1/orgs", {"name": "o"}).json()["slug"]["slug"]
        vault = self.sent("POST", f"/ledger/v1/orgs/{org}/vaults", {}).json()["vault"]["slug"]
        return f"{org}/{vault}"

    def transact(self, place: str, key: str, client: str = "billing") -> dict[str, Any]:
        """Commit a transaction."""
        org, _, vault = place.partition("/")
        operations = [{"setEntity": {"key": "k", "value": "AA=="}}]
        body = {"clientId": client, "idempotencyKey": key, "operations": operations}
        path = f"/ledger/v1/orgs/{org}/vaults/{vault}/writes"
        facts: dict[str, Any] = self.sent("POST", path, body).json()["success"]
        return facts

    def push(self, gateway: str, client: str = "c", hlc: int = 1 << 16) -> tuple[str, int]:
        """Push a delta: its id and its time."""
        return self.push_all(gateway, [hlc], client)[0], hlc

    def push_all(self, gateway: str, hlcs: Sequence[int], client: str = "c") -> list[str]:
        """Push a delta of each time at once: their ids."""
        deltas = [DELTA | {"clientId": client, "hlc": str(hlc)} for hlc in hlcs]
        for delta in deltas:
            delta["deltaId"] = delta_id(delta)
        self.sent("POST", f"/v1/sync/{gateway}/push", {"clientId": client, "deltas": deltas, "lastSeenHlc": "0"})
        return [str(delta["deltaId"]) for delta in deltas]


def _steady(facts: dict[str, Any]) -> dict[str, Any]:
    """An answer without retries, whose count may rise between two requests."""
    return facts | {"writes": [write | {"retries": None} for write in facts["writes"]]}


@contextmanager
def write_site(folder: Path, kind: str, **env: str) -> Iterator[WriteSite]:
    """A server on a store, and its anonymous caller."""
    with RunningServer(folder / "data", env=store_env(kind) | env, grpc=True) as server, WriteSite(server) as site:
        yield site


def new_key() -> str:
    """A key that no other test has."""
    return str(uuid4())
