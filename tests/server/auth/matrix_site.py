"""One server with things of each kind, callers with every role and reach, and one call of every operation."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from semel.server.openapi.operation import HttpOperation
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file

ROLES = ("read", "write", "work", "admin", "read, write", "read, work")
"""What a token may have; the last two are for operations that need both."""
REACHES = ("all", "own", "foreign")
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
NAMES = {
    "getEvent": {"id": "own-e1"},
    **{f"{call}Schedule": {"name": "own-nightly"} for call in ("get", "put", "delete")},
}
"""Names of things that share the name of their parameter with others."""
WRITE = {"operations": [{"setEntity": {"key": "k", "value": "AA=="}}]}
SHA = "00" * 32


class MatrixCaller(NamedTuple):
    """A token with one role and one reach; without a role it is no token, or one that the server does not know."""

    name: str
    token: str
    role: str = ""
    reach: str = ""


BODIES: dict[str, Any] = {
    "createToken": {"name": "x", "sha256": "not a hash"},
    "rotateToken": {"sha256": "not a hash"},
    "putSubscription": {"type": "pull-wake", "streams": ["own-s"], "wake_stream": "own-wake"},
    "addSubscriptionStreams": {"streams": ["own-s"]},
    "claimWake": {"worker": "w"},
    "submitEvents": {"events": [{"id": "own-e2", "partitions": ["own-p"], "event": {"type": "t"}}]},
    "createGroup": {"partitions": ["own-p"]},
    "resetGroup": {"start": "beginning", "reset_id": "r"},
    "fetchEvents": {"member": "m", "fetch_id": "f"},
    "ackEvents": {"lease": "x", "committed_ids": [1]},
    "nackEvents": {"lease": "x", "committed_ids": [1]},
    "extendLease": {"lease": "x"},
    "putSnapshot": {"sum": 1},
    "submitJob": {"kind": "k", "queue": "own-q"},
    "submitJobs": {"jobs": [{"kind": "k", "queue": "own-q"}]},
    "lookupJob": {"idempotency_key": "own-key"},
    "claimJobs": {"worker_id": "w", "queues": ["own-q"], "wait_ms": 0, "lease_ms": 1_000},
    "releaseKey": {"idempotency_key": "own-key", "principal": "boss"},
    "putQueue": {"max_inflight": 3},
    "putSchedule": {"cron": "@daily", "kind": "k", "queue": "own-q"},
    "meshSubmit": {"kind": "k", "idempotency_key": "own-mesh", "params": {}},
    "meshPull": {"worker_id": "w", "limit": 1},
    "makeOrg": {"name": "more"},
    "makeVault": {},
    "changeOrg": {"ttlSeconds": 86_400},
    "changeVault": {"status": "VAULT_STATUS_ACTIVE"},
    "push": {"deltas": []},
    "saveSchema": {"table": "todos", "columns": [{"name": "title", "type": "string"}]},
    "saveSyncRules": {"version": 1, "buckets": []},
    "forgetClients": {"clients": ["c"]},
}
"""The bodies of operations; `{}` for one that is not here."""
QUERIES = {
    "readStream": "?offset=-1",
    "readEvents": "?partition=own-p",
    "listJobs": "?queue=own-q",
    "pull": "?clientId=c&since=0",
    "orgWatchBlocks": "?from=1",
    "vaultWatchBlocks": "?from=1",
}


class MatrixAnswer(NamedTuple):
    """A status, and the body of an answer that ends."""

    status: int
    body: bytes


class MatrixSite:
    """The server, its callers, and the names that operations are called with."""

    def __init__(self, server: RunningServer, callers: list[MatrixCaller], known: dict[str, str]) -> None:
        self.server = server
        self.callers = callers
        self.known = known
        self.client = httpx.Client(base_url=server.url, timeout=60)

    def ask(self, one: HttpOperation, method: str, caller: MatrixCaller) -> MatrixAnswer:
        """What a caller is answered."""
        known = self.known | NAMES.get(one.id, {})
        path = re.sub(r"\{([^}]*)\}", lambda found: known.get(found[1], "own-x"), one.path)
        base = one.id.removesuffix("Unversioned")
        headers = {"Authorization": f"Bearer {caller.token}"} if caller.token else {}
        headers |= WEBSOCKET if one.is_websocket and one.id != "readEvents" else {}
        content = None
        if one.body is not None:
            is_content = "Stream" in one.id and "Subscription" not in one.id
            headers["Content-Type"] = "text/plain" if is_content else "application/json"
            body = BODIES.get(base, {}) | ({"clientId": caller.name} if base == "push" else {})
            if "rite" in one.id and "/ledger" in one.path:
                body = self._write(one.id, caller)
            content = json.dumps(body)
        with self.client.stream(method, path + QUERIES.get(base, ""), headers=headers, content=content) as answer:
            is_endless = answer.status_code == 101 or "watch" in path
            return MatrixAnswer(answer.status_code, b"" if is_endless else answer.read())

    def _write(self, operation: str, caller: MatrixCaller) -> dict[str, Any]:
        given = {"clientId": caller.name or "c", "idempotencyKey": str(uuid4()), **WRITE}
        if operation.endswith("Many"):
            return {"transactions": [given]}
        return given | {"operations": [{"operations": WRITE["operations"]}]} if operation.endswith("Batch") else given


@contextmanager
def matrix_site(folder: Path) -> Iterator[MatrixSite]:
    """The server, filled by an administrator."""
    boss = MatrixCaller("boss", secrets.token_hex(16), "admin", "all")
    named = [
        MatrixCaller(f"{role.replace(', ', '-')}-{reach}", secrets.token_hex(16), role, reach)
        for role in ROLES
        for reach in REACHES
    ]
    reaches = {"all": [], "own": ["*:own*"], "foreign": ["*:foreign*"]}
    entries = {one.name: (one.token, one.role.split(", "), reaches[one.reach]) for one in (boss, *named)}
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKENS": str(token_file(folder, entries))}
    with RunningServer(folder / "data", env=env, grpc=True) as server:
        known = _fill(server.url, boss.token)
        # A ledger gives numbers to its places, so that scopes can name them only now.
        scopes = [*reaches["own"], *(f"ledger:{known[name]}" for name in ("org", "other_org"))]
        entries |= {one.name: (one.token, one.role.split(", "), scopes) for one in named if one.reach == "own"}
        token_file(folder, entries)
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: "SIGHUP" in server.output.read_text(), "the tokens are read")
        callers = [MatrixCaller("none", ""), MatrixCaller("unknown", "not-known"), *named]
        site = MatrixSite(server, callers, known)
        yield site
        site.client.close()


def _fill(url: str, token: str) -> dict[str, str]:
    with httpx.Client(base_url=url, timeout=30, headers={"Authorization": f"Bearer {token}"}) as client:

        def sent(method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
            answer = client.request(method, path, content=json.dumps(body), headers={"Content-Type": kind})
            assert answer.is_success, (method, path, answer.status_code, answer.text)
            return answer.json() if answer.content else None

        sent("PUT", "/v1/stream/own-s", [1], "text/plain")
        sent("PUT", "/v1/stream/__ds/subscriptions/own-sub", BODIES["putSubscription"])
        sent("POST", "/v1/events", {"events": [{"id": "own-e1", "partitions": ["own-p"], "event": {"type": "t"}}]})
        sent("PUT", "/v1/events/groups/own-g", {"partitions": ["own-p"]})
        sent("PUT", "/v1/events/snapshots/own-p/1", {"sum": 1})
        later = {"delay_ms": 86_400_000, "idempotency_key": "own-key"}  # so that no caller claims it
        job = sent("POST", "/v1/jobs", {"kind": "k", "queue": "own-q", **later})
        sent("PUT", "/v1/jobs/queues/own-q", {"max_inflight": 3})
        sent("PUT", "/v1/jobs/schedules/own-nightly", BODIES["putSchedule"])
        places: dict[str, str] = {}
        for name in ("", "other_"):  # one for each wire: calls of the matrix delete them
            org = sent("POST", "/ledger/v1/orgs", {"name": "shop"})["slug"]["slug"]
            vault = sent("POST", f"/ledger/v1/orgs/{org}/vaults", {})["vault"]["slug"]
            for place in (f"orgs/{org}", f"orgs/{org}/vaults/{vault}"):
                sent("POST", f"/ledger/v1/{place}/writes", {"clientId": "boss", "sequence": 1, **WRITE})
            places |= {f"{name}org": org, f"{name}vault": vault}
        sent("POST", "/v1/admin/schema/own-gw", BODIES["saveSchema"])
    return {
        "name": "own-s",
        "id": "own-sub",
        "stream": "own-s",
        "group": "own-g",
        "partition": "own-p",
        "committed_id": "1",
        "job_id": job["job_id"],
        "queue": "own-q",
        **places,
        "key": "k",
        "clientId": "boss",
        "height": "1",
        "txId": "00" * 16,
        "gateway": "own-gw",
        "token_id": "0" * 16,
    }
