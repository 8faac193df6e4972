"""What each operation of the access matrix is called with: names, bodies and queries."""

from __future__ import annotations

from typing import Any

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
BODIES: dict[str, Any] = {
    "findWrite": {"id": "own-key"},
    "createToken": {"name": "x", "sha256": "not a hash"},
    "rotateToken": {"sha256": "not a hash"},
    "putSubscription": {"type": "pull-wake", "streams": ["own-s"], "wake_stream": "own-wake"},
    "addSubscriptionStreams": {"streams": ["own-s"]},
    "claimWake": {"worker": "w"},
    "submitEvents": {"events": [{"id": "own-e2", "partitions": ["own-p"], "event": {"type": "t"}}]},
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
    "listProducers": "?stream=own-s",
    "listRows": "?table=todos",
    "listRowEntries": "?table=todos&row=row-1",
    "readEvents": "?partition=own-p",
    "listJobs": "?queue=own-q",
    "pull": "?clientId=c&since=0",
    "orgWatchBlocks": "?from=1",
    "vaultWatchBlocks": "?from=1",
}
