"""A server with something of every kind in it, most of it hostile: names and contents that would run as markup."""

from __future__ import annotations

import json
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
    found = fill_streams(client)
    for number in range(3):
        event = {"type": HOSTILE, "payload": {"number": number, "svg": SVG}}
        name = f"event-{number}" if number else f"event-{HOSTILE}"
        item = {"id": name, "partitions": [HOSTILE, "room-7"], "event": event}
        for _ in range(2 if number == 0 else 1):
            client.post("/v1/events", json={"events": [item]}).raise_for_status()
    found |= fill_jobs(client) | fill_ledger(client) | fill_deltas(client)
    return found


def fill_streams(client: httpx.Client) -> dict[str, str]:
    """Streams, one of them with forks and producers; and subscriptions of both kinds, one with a webhook that fails."""
    found = {"stream": f"orders/{HOSTILE}", "fork": f"fork/{SVG}", "subscription": HOSTILE, "hook": f"hook-{SVG}"}
    text, stream = {"Content-Type": "text/plain"}, f"/v1/stream/{quote(found['stream'], safe='')}"
    for path in (stream, f"/v1/stream/{LONG}", "/v1/stream/plain", f"/v1/stream/{quote('wakes/' + SVG, safe='')}"):
        client.put(path, headers=text).raise_for_status()
    client.put("/v1/stream/json", headers={"Content-Type": "application/json"}).raise_for_status()
    client.post("/v1/stream/json", json={"html": HOSTILE, "svg": SVG}).raise_for_status()
    control = "/v1/stream/__ds/subscriptions/"
    hook = {"type": "webhook", "webhook": {"url": f"http://127.0.0.1:1/hook?{quote(HOSTILE, safe='<>=/')}"}}
    pull = {"type": "pull-wake", "wake_stream": f"wakes/{SVG}", "description": HOSTILE, "pattern": "orders/**"}
    for name, body in ((found["hook"], hook | {"streams": ["json", found["stream"]]}), (found["subscription"], pull)):
        client.put(control + quote(name, safe=""), json=body).raise_for_status()
    for key in ("order-1", "order-1", HOSTILE):
        given = text | {"Idempotency-Key": key}
        client.post(stream, headers=given, content=HOSTILE + "\n" + SVG).raise_for_status()
    for name, seqs in (("till-3", 1), (HOSTILE, 3), ("<img src=x onerror=canary=5>", 2)):
        for seq in range(seqs):
            producer = text | {"Producer-Id": name, "Producer-Epoch": "1", "Producer-Seq": str(seq)}
            client.post(stream, headers=producer, content=SVG).raise_for_status()
    for fork, source in (("fork", "plain"), (found["fork"], found["stream"])):
        forked = text | {"Stream-Forked-From": f"/v1/stream/{quote(source, safe='')}"}
        client.put(f"/v1/stream/{quote(fork, safe='')}", headers=forked).raise_for_status()
    claim = {"worker": HOSTILE}
    client.post(f"{control}{quote(found['subscription'], safe='')}/claim", json=claim).raise_for_status()
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
    named = {"queue": f"q-{HOSTILE}"[:64], "idempotency_key": f"key-{HOSTILE}"}
    submit_job(client, **named, params={HOSTILE: SVG})
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
        if number == 2:
            operations = [
                {"createRelationship": {"resource": SVG, "relation": "<b>viewer</b>", "subject": f"user:{HOSTILE}"}}
            ]
        write = {"clientId": f"till-{HOSTILE}", "sequence": str(number + 1), "operations": operations}
        answer = client.post(f"{place}/vaults/{vault}/writes", json=write).raise_for_status().json()
        assert "success" in answer, answer
    return {"org": str(org), "vault": str(vault), "transaction": str(answer["success"]["txId"]["id"])}


def fill_deltas(client: httpx.Client) -> dict[str, str]:
    """A gateway with rows, one of them with a write that lost; and a gateway with a hostile name."""
    clock = int(time.time() * 1_000) - 60_000
    writes = (
        ("row-1", "phone", 0, {"title": HOSTILE, "state": "open"}),
        ("row-1", f"tablet-{HOSTILE}", 2, {"title": SVG}),
        ("row-1", "phone", 1, {"title": "too late", "state": "done"}),
        (f"row-{HOSTILE}", "phone", 3, {"title": SVG}),
    )
    for gateway in ("shop", f"gateway-{HOSTILE}"):
        for row, author, tick, values in writes:
            push_delta(client, gateway, row, author, str((clock + tick) << 16), values)
    return {"gateway": f"gateway-{HOSTILE}", "hostile_row": f"row-{HOSTILE}"}


def push_delta(client: httpx.Client, gateway: str, row: str, author: str, hlc: str, values: dict[str, Any]) -> str:
    """Push one write of a row; returns its id."""
    columns = [{"column": name, "value": value} for name, value in values.items()]
    delta: dict[str, Any] = {"op": "UPDATE" if columns else "DELETE", "table": "todos", "rowId": row}
    delta |= {"clientId": author, "columns": columns, "hlc": hlc}
    delta["deltaId"] = delta_id(delta)
    path = f"/v1/sync/{quote(gateway, safe='')}/push"
    body = json.dumps({"clientId": author, "deltas": [delta]})  # escaped, since a name may be no text of UTF-8
    client.post(path, content=body, headers={"Content-Type": "application/json"}).raise_for_status()
    return str(delta["deltaId"])
