"""Looks at servers that are measured: whether one listens, and what one has committed."""

from __future__ import annotations

import socket
import time

import httpx

STREAM = "/v1/stream/bench"


def committed(url: str) -> tuple[float, float]:
    """Writes so far, and batches that were synced to disk."""
    metrics = httpx.get(f"{url}/metrics").json()
    return metrics["semel_engine_writes_total"], metrics.get("semel_engine_commits_total{kind=durable}", 0.0)


def wait_for_listener(port: int) -> None:
    """Until a server listens there."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the bare host did not start")
