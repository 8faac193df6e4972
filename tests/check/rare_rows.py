"""Use of every surface that leaves rows and values which `filled` does not: for a check of every column."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from semel import Client
from semel.client import Relate, Unrelate
from semel.engine.clock import SystemWorld
from semel.store.open import open_store
from semel.store.protocol import AnyTable, Changes, Range, Row
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.subscriptions.tables import ENDED, MOVED, EndedRow, MovedRow
from semel.surfaces.streams.tables import STREAM
from tests.cli.command import Semel
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.harness.server import RunningServer
from tests.jobs.wire import PATH, Jobs

ENV = {"SEMEL_SWEEP_INTERVAL_MS": "3600000", "SEMEL_STREAMS_WEBHOOK_PRIVATE": "true"}
"""Nothing is swept, so that tombstones stay."""
TEXT = {"Content-Type": "text/plain"}


def fill_before_epoch(server: RunningServer) -> None:
    """Content of the first epoch."""
    with httpx.Client(base_url=server.url, timeout=30) as http:
        _ok(http.put("/v1/stream/old", headers=TEXT, content="old\n"))
        _push(http, "old-gateway", "a", _deltas("old", 1))


def raise_epoch(folder: Path) -> None:
    """Begin another epoch twice, as after two restores."""
    for _ in range(2):
        _run("epoch", "raise", "--data", str(folder), "--yes", "--json")


def fill_legacy(server: RunningServer) -> None:
    """Deltas whose ids are trusted; the server has `SEMEL_DELTAS_CHECK_IDS=false`."""
    with httpx.Client(base_url=server.url, timeout=30) as http:
        _push(http, "legacy", "a", _deltas("legacy", 4))


def leave_marks(folder: Path) -> None:
    """Rows that a running server deletes within a second, or has only with credentials."""
    with closing(open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        with store.read() as snapshot:
            stream = next(row for row in snapshot.range(Range(STREAM, "", (), 1_000)) if row.path == b"hooked")
        mark = MovedRow(stream.scope, stream.id, stream.tail)
        rows: dict[AnyTable, list[Row]] = {
            MOVED: [mark],
            ENDED: [EndedRow(b"a life of before", b"\x00short")],
        }
        tx = store.begin(())
        tx.flush(Changes(rows, {}, {}))
        tx.commit()


def create_tokens(folder: Path) -> None:
    """Tokens that were rotated and revoked; a server then asks for one, so this comes last."""
    place = ("--offline", "--data", str(folder), "--json")
    first = _run("token", "create", "one", "--role", "read", "--scope", "streams:a*", "--expires", "90d", *place)
    _run("token", "rotate", first["id"], "--overlap", "1h", *place)
    _run("token", "revoke", first["id"], "--yes", *place)


def fill_rest(server: RunningServer) -> None:
    """Use every surface once more."""
    with httpx.Client(base_url=server.url, timeout=30) as http:
        _streams(http)
        _events(http)
        _deltas_of_rules(http)
    with Client(server.url) as client:
        _ledger(client)
    jobs = Jobs(server)
    with jobs.http:
        _jobs(jobs)


def _streams(http: httpx.Client) -> None:
    _ok(http.post("/v1/stream/old", headers=TEXT, content="new\n"))
    _ok(http.put("/v1/stream/lives", headers=TEXT | {"Stream-TTL": "3600"}, content="a"))
    _ok(http.put("/v1/stream/ends", headers=TEXT | {"Stream-Expires-At": "2099-01-01T00:00:00Z"}, content="a"))
    _ok(http.put("/v1/stream/aged", headers=TEXT | {"Stream-Retention-Age": "3600"}, content="a"))
    produced = {"Producer-Id": "till", "Producer-Epoch": "3", "Producer-Seq": "0", "Stream-Closed": "true"}
    _ok(http.put("/v1/stream/done", headers=TEXT))
    keyed = {"Idempotency-Key": "last", "Stream-Seq": "0001"}
    _ok(http.post("/v1/stream/done", headers=TEXT | produced | keyed, content="end"))
    _ok(http.put("/v1/stream/buried", headers=TEXT, content="gone"))
    _ok(http.delete("/v1/stream/buried"))
    path = "/v1/stream/__ds/subscriptions"
    webhook = {"type": "webhook", "webhook": {"url": "http://127.0.0.1:1/hook"}, "description": "about"}
    _ok(http.put(f"{path}/hook", json={**webhook, "streams": ["hooked"]}))
    _ok(http.put("/v1/stream/hooked", headers=TEXT, content="a"))
    pull = {"type": "pull-wake", "wake_stream": "pulls"}
    _ok(http.put(f"{path}/pull", json={**pull, "streams": ["pulled"]}))
    _ok(http.put("/v1/stream/pulls", headers={"Content-Type": "application/json"}))
    _ok(http.put("/v1/stream/pulled", headers=TEXT, content="a"))
    _ok(http.put(f"{path}/short", json={**pull, "streams": ["done"]}))
    _ok(http.delete(f"{path}/short"))


def _events(http: httpx.Client) -> None:
    events = [{"id": f"rare-{n}", "partitions": ["rare"], "event": {"type": "t", "payload": n}} for n in range(4)]
    _ok(http.post("/v1/events", json={"events": events}))


def _deltas_of_rules(http: httpx.Client) -> None:
    _push(http, "old-gateway", "a", _deltas("new", 2))
    typed = [{"name": "title", "type": "string"}, {"name": "done", "type": "boolean"}]
    _ok(http.post("/v1/admin/schema/ruled", json={"table": "todos", "columns": typed}))
    bucket = {"name": "b", "tables": ["todos"], "filters": [{"column": "title", "op": "eq", "value": "x"}]}
    _ok(http.post("/v1/admin/sync-rules/ruled", json={"version": 1, "buckets": [bucket]}))
    _push(http, "ruled", "a", _deltas("ruled", 3))


def _deltas(row: str, at: int) -> list[Any]:
    return [delta("INSERT", columns(title="x", done=False), row=row, client="a", hlc=stamp(now_ms()) - 1_000 + at)]


def _ledger(client: Client) -> None:
    org = client.ledger.create_organization("rare", key="rare").place.org
    vault = client.ledger.place(org, client.ledger.create_vault(org, key="rare-vault").place.vault)
    vault.write([Relate("doc:1", "viewer", "user:ada")], client="rare")
    vault.write([Unrelate("doc:1", "viewer", "user:ada")], client="rare")


def _jobs(jobs: Jobs) -> None:
    http = jobs.http
    schedule = {"cron": "@daily", "kind": "tick", "params": {"n": 1}, "queue": "ticks", "time_zone": "Europe/Berlin"}
    _ok(http.put(f"{PATH}/schedules/nightly", json=schedule))
    jobs.submit("stepped", {"n": 1}, key="stepped", queue="steps", client={"node_id": "n"})
    claimed = jobs.post(f"{PATH}/claim", {"worker_id": "w", "claim_id": "c", "queues": ["steps"]})["jobs"][0]
    token = {"lease_token": claimed["lease_token"]}
    jobs.post(f"{PATH}/{claimed['job_id']}/steps", {**token, "step_key": "s", "result": {"n": 1}})
    jobs.post(f"{PATH}/{claimed['job_id']}/heartbeat", {**token, "progress": {"done": 1}})


def _run(*arguments: str) -> dict[str, Any]:
    done = Semel("http://127.0.0.1:1").here(*arguments)
    assert done.code == 0, done.err
    facts: dict[str, Any] = json.loads(done.out) if "--json" in arguments else {}
    return facts


def _push(http: httpx.Client, gateway: str, client: str, made: list[Any]) -> None:
    _ok(http.post(f"/v1/sync/{gateway}/push", json={"clientId": client, "deltas": made}))


def _ok(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code < 300, (answer.request.url, answer.status_code, answer.text)
    return answer
