"""A server with something of every kind in it, most of it hostile: names and contents that would run as markup."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from tests.deltas.vectors import delta_id
from tests.harness.server import RunningServer
from tests.harness.tokens import token_file

ADMIN, READER = "the-admin-token", "the-reader-token"
HOSTILE = "<img src=x onerror=window.canary=1><script>window.canary=2</script>"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="window.canary=3"><a href="javascript:window.canary=4">x</a></svg>'
)
LONG = "a-name-without-a-break-" * 6


class ConsoleSite(NamedTuple):
    """A running server and a client with every right."""

    server: RunningServer
    client: httpx.Client

    @property
    def url(self) -> str:
        """The base URL."""
        return self.server.url


@contextmanager
def console_site(folder: Path, **env: str) -> Iterator[ConsoleSite]:
    """In development mode, unless `env` says otherwise."""
    with RunningServer(folder / "data", env=env) as server:
        headers = {"Authorization": f"Bearer {ADMIN}"} if "SEMEL_TOKENS" in env else {}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            yield ConsoleSite(server, client)


def tokens(folder: Path) -> str:
    """A token file with an administrator and a reader."""
    entries = {"ada": (ADMIN, ("admin",), ()), "bob": (READER, ("read",), ())}
    return str(token_file(folder, entries))


def submit_job(client: httpx.Client, kind: str = "send", **more: Any) -> dict[str, Any]:
    """A submitted job."""
    answer = client.post("/v1/jobs", json={"kind": kind, "params": {}} | more)
    answer.raise_for_status()
    return dict(answer.json())


def fill(client: httpx.Client) -> dict[str, str]:
    """Store something of every kind, hostile where the surface allows it; returns ids."""
    found = {"stream": f"orders/{HOSTILE}"}
    text, stream = {"Content-Type": "text/plain"}, f"/v1/stream/{quote(found['stream'], safe='')}"
    for path in (stream, f"/v1/stream/{LONG}", "/v1/stream/plain"):
        client.put(path, headers=text).raise_for_status()
    client.put("/v1/stream/json", headers={"Content-Type": "application/json"}).raise_for_status()
    client.post("/v1/stream/json", json={"html": HOSTILE, "svg": SVG}).raise_for_status()
    for _ in range(2):
        key = text | {"Idempotency-Key": "order-1"}
        client.post(stream, headers=key, content=HOSTILE + "\n" + SVG).raise_for_status()
    producer = text | {"Producer-Id": "till-3", "Producer-Epoch": "1", "Producer-Seq": "0"}
    client.post(stream, headers=producer, content=SVG).raise_for_status()
    forked = text | {"Stream-Forked-From": "/v1/stream/plain"}
    client.put("/v1/stream/fork", headers=forked).raise_for_status()
    for number in range(3):
        event = {"type": HOSTILE, "payload": {"number": number, "svg": SVG}}
        item = {"id": f"event-{number}", "partitions": [HOSTILE, "room-7"], "event": event}
        for _ in range(2 if number == 0 else 1):
            client.post("/v1/events", json={"events": [item]}).raise_for_status()
    found |= fill_jobs(client) | fill_ledger(client) | fill_deltas(client)
    return found


def fill_jobs(client: httpx.Client) -> dict[str, str]:
    """Jobs of every state, one of them dead after a refusal of its worker."""
    dead = submit_job(client, idempotency_key="invoice-4711", max_attempts=1, params={"to": HOSTILE, "svg": SVG})
    taken = client.post("/v1/jobs/claim", json={"worker_id": HOSTILE[:60], "wait_ms": 0}).json()
    lease = taken["jobs"][0] if "jobs" in taken else taken["job"]
    error = {"code": "REFUSED", "message": HOSTILE}
    report = {"lease_token": lease["lease_token"], "error": error}
    client.post(f"/v1/jobs/{dead['job_id']}/fail", json=report).raise_for_status()
    submit_job(client, idempotency_key="invoice-4711", max_attempts=1, params={"to": HOSTILE, "svg": SVG})
    for number in range(5):
        submit_job(client, queue="mail", idempotency_key=f"mail-{number}", params={"n": number})
    submit_job(client, kind="later", delay_ms=3_600_000)
    done = submit_job(client, kind="done", queue="quick")
    taken = client.post("/v1/jobs/claim", json={"worker_id": "w-2", "queues": ["quick"], "wait_ms": 0}).json()
    lease = taken["jobs"][0] if "jobs" in taken else taken["job"]
    report = {"lease_token": lease["lease_token"], "result": {"html": HOSTILE}}
    client.post(f"/v1/jobs/{done['job_id']}/complete", json=report).raise_for_status()
    return {"dead": dead["job_id"], "done": done["job_id"]}


def fill_ledger(client: httpx.Client) -> dict[str, str]:
    """An organization with a vault and three blocks."""
    org = client.post("/ledger/v1/orgs", json={"name": HOSTILE[:60]}).raise_for_status().json()["slug"]["slug"]
    place = f"/ledger/v1/orgs/{org}"
    vault = client.post(f"{place}/vaults", json={}).raise_for_status().json()["vault"]["slug"]
    answer: dict[str, Any] = {}
    for number in range(3):
        value = b64encode(f"{HOSTILE}{number}".encode()).decode()
        operations = [{"setEntity": {"key": f"account-{number}<b>", "value": value}}]
        write = {"clientId": "till-3", "sequence": str(number + 1), "operations": operations}
        answer = client.post(f"{place}/vaults/{vault}/writes", json=write).raise_for_status().json()
        assert "success" in answer, answer
    return {"org": str(org), "vault": str(vault), "transaction": str(answer["success"]["txId"]["id"])}


def fill_deltas(client: httpx.Client) -> dict[str, str]:
    """A gateway with rows, one of them changed twice."""
    clock = int(time.time() * 1_000) - 60_000
    for number, title in enumerate((HOSTILE, "second", SVG)):
        row = "row-1" if number < 2 else f"row-{HOSTILE}"
        delta: dict[str, Any] = {
            "op": "INSERT" if number != 1 else "UPDATE",
            "table": "todos",
            "rowId": row,
            "clientId": "phone",
            "columns": [{"column": "title", "value": title}],
            "hlc": str((clock + number) << 16),
        }
        delta["deltaId"] = delta_id(delta)
        answer = client.post("/v1/sync/shop/push", json={"clientId": "phone", "deltas": [delta]})
        answer.raise_for_status()
    return {"gateway": "shop"}
