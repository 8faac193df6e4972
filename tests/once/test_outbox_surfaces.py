"""Messages to every surface of a real Semel server: each write is there once, whatever becomes of sender and answer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.once import Flushed, Outbox
from tests.harness.server import RunningServer
from tests.once.losing import losing
from tests.once.sender import LIMITS
from tests.once.test_outbox_kills import killed_at


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server."""
    with RunningServer(tmp_path_factory.mktemp("surfaces") / "data") as running:
        yield running


class Surfaces:
    """What the messages of one test write to, on all five surfaces."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self._client = httpx.Client(base_url=server.url, timeout=30)
        self._name = name
        self._client.put(f"/v1/stream/{name}", headers={"Content-Type": "application/json"}).raise_for_status()
        org = self._client.post("/ledger/v1/orgs", json={"name": name}).json()["slug"]["slug"]
        vault = self._client.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
        self._vault = f"/ledger/v1/orgs/{org}/vaults/{vault}"

    def messages(self, url: str) -> list[dict[str, Any]]:
        """One for each surface; where the key stands is what `docs/once/outbox.md` says."""
        name = self._name
        delta: dict[str, Any] = {"op": "INSERT", "table": "todos", "rowId": "row-1", "clientId": "client-a"}
        delta |= {"columns": [{"column": "title", "value": "Buy milk"}], "hlc": "115998720000000000"}
        delta["deltaId"] = "c83a248d2431f229a3289cf8a2e5923396df8c9ea1b1ee585c5bd5f21d23a331"
        event = {"id": f"{name}-1", "partitions": [name], "event": {"type": "order.placed"}}
        entity = {"setEntity": {"key": "ada", "value": "MTAw", "condition": {"notExists": True}}}
        return [
            {"url": f"{url}/v1/stream/{name}", "json": {"tea": 3}, "key": f"{name}-append"},
            {"url": f"{url}/v1/events", "json": {"events": [event]}, "key": f"{name}-1"},
            {"url": f"{url}/v1/jobs", "json": {"kind": name, "params": {"order": 7}}, "key": f"{name}-job"},
            {
                "url": f"{url}{self._vault}/writes",
                "json": {"clientId": "till-3", "operations": [entity]},
                "key": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            },
            {
                "url": f"{url}/v1/sync/{name}/push",
                "json": {"clientId": "client-a", "deltas": [delta]},
                "key": f"{name}-d",
            },
        ]

    def found(self) -> dict[str, Any]:
        """What is there."""
        client, name = self._client, self._name
        return {
            "streams": client.get(f"/v1/stream/{name}?offset=-1").json(),
            "events": len(client.get(f"/v1/events?partition={name}&since=0").json()["events"]),
            "jobs": len(client.get(f"/v1/jobs?kind={name}").json()["jobs"]),
            "ledger": client.get(f"{self._vault}/entities/ada").json(),
            "deltas": len(client.get(f"/v1/sync/{name}/pull?since=0&clientId=b").json()["deltas"]),
        }

    def close(self) -> None:
        """Hang up."""
        self._client.close()


ONCE = {
    "streams": [{"tea": 3}],
    "events": 1,
    "jobs": 1,
    "ledger": {"value": "MTAw", "blockHeight": "1", "version": "1"},
    "deltas": 1,
}


def test_every_write_is_there_once_when_the_sender_dies_between_delivery_and_note(
    server: RunningServer, tmp_path: Path
) -> None:
    surfaces = Surfaces(server, "killed")
    messages = surfaces.messages(server.url)
    killed_at("delivered", str(tmp_path / "outbox.db"), messages)
    assert surfaces.found() == ONCE
    box = Outbox(tmp_path / "outbox.db", **(LIMITS | {"timeout": 20, "lease": 25}))
    assert box.flush_sync(25).delivered == len(messages)
    box.close()
    assert surfaces.found() == ONCE
    surfaces.close()


def test_every_write_is_there_once_when_its_first_answer_is_lost(server: RunningServer, tmp_path: Path) -> None:
    surfaces = Surfaces(server, "lost")
    with losing(server.url) as (url, lost):
        box = Outbox(tmp_path / "outbox.db", longest_wait=0.05)
        for message in surfaces.messages(url):
            box.post(**message)
        assert box.flush_sync(25) == Flushed(5, 5, 0, 0)
        box.close()
    assert sorted(lost) == [200, 200, 200, 200, 204]
    assert surfaces.found() == ONCE
    surfaces.close()


def test_a_key_that_stands_for_another_write_is_poison_at_once(server: RunningServer, tmp_path: Path) -> None:
    surfaces = Surfaces(server, "mismatch")
    stream, _, job, ledger, _ = surfaces.messages(server.url)
    box = Outbox(tmp_path / "first.db")
    other = Outbox(tmp_path / "second.db")
    for message in (stream, job, ledger):
        box.post(**message)
    other.post(**(stream | {"json": {"tea": 4}}))
    other.post(**(job | {"json": {"kind": "mismatch", "params": {"order": 8}}}))
    operation = {"setEntity": {"key": "bob", "value": "MTAw"}}
    other.post(**(ledger | {"json": {"clientId": "till-3", "operations": [operation]}}))
    assert box.flush_sync(25).delivered == 3
    assert other.flush_sync(25) == Flushed(0, 0, 3, 0)
    assert [one.status for one in other.messages()] == [409, 409, 409]
    surfaces.close()
    box.close()
    other.close()
