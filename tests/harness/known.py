"""Requests whose repetition must get the first answer again, on every surface that knows keys, ids or sequences."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx

from tests.deltas.vectors import columns, delta, now_ms, stamp

COMPARED = ("stream-next-offset", "content-type")
"""Header fields that are part of an answer; those of replays differ from the first answer's."""
REPLAYED = ("idempotency-replayed", "events-replayed")
_LEDGER_KEY = base64.b64encode(bytes(range(16))).decode()


class KnownRequest(NamedTuple):
    """A write that a client may send again, byte for byte."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str


class KnownAnswer(NamedTuple):
    """The answer to its repetition."""

    status: int
    headers: Mapping[str, str]
    body: str


def send(http: httpx.Client, request: KnownRequest) -> KnownAnswer:
    """Send it, and keep what counts of the answer."""
    method, path, headers, body = request
    answer = http.request(method, path, headers=dict(headers), content=body.encode())
    kept = {name: answer.headers[name] for name in (*COMPARED, *REPLAYED) if name in answer.headers}
    return KnownAnswer(answer.status_code, kept, answer.text)


def known_requests(http: httpx.Client) -> list[KnownRequest]:
    """One or more writes for each surface; makes what they need."""
    text, json = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}
    http.put("/v1/stream/known", headers=text).raise_for_status()
    org = http.post("/ledger/v1/orgs", json={"name": "known"}).json()["slug"]["slug"]
    vault = http.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
    writes = f"/ledger/v1/orgs/{org}/vaults/{vault}/writes"
    event = {"id": "known", "partitions": ["known"], "event": {"type": "t", "payload": 1}}
    entity = {"operations": [{"setEntity": {"key": "a", "value": "MQ=="}}]}
    changed = delta("INSERT", columns(title="known"), row="known", client="known", hlc=stamp(now_ms()))
    made: list[tuple[str, dict[str, str], Any]] = [
        ("/v1/events", json, {"events": [event]}),
        ("/v1/jobs", json, {"kind": "known", "params": {"n": 1}, "idempotency_key": "known", "queue": "known"}),
        (writes, json, {"clientId": "counted", "sequence": "1", **entity}),
        (writes, json, {"clientId": "keyed", "idempotencyKey": _LEDGER_KEY, **entity}),
        ("/v1/sync/known/push", json, {"clientId": "known", "deltas": [changed]}),
    ]
    appended = KnownRequest("POST", "/v1/stream/known", text | {"Idempotency-Key": "known"}, "once\n")
    produced = {"Producer-Id": "till", "Producer-Epoch": "0", "Producer-Seq": "0"}
    dumped = [KnownRequest("POST", path, headers, _json(body)) for path, headers, body in made]
    return [appended, appended._replace(headers=text | produced, body="produced\n"), *dumped]


def _json(body: Any) -> str:
    return httpx.Request("POST", "http://x", json=body).content.decode()
