"""What the store in memory promises less than the others: nothing outlives the process."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.harness.server import RunningServer


def test_a_new_process_knows_nothing(tmp_path: Path) -> None:
    job = {"kind": "k", "idempotency_key": "key"}
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:"}) as server:
        with httpx.Client(base_url=server.url) as client:
            assert client.put("/v1/stream/s", content=b"1", headers={"Content-Type": "text/plain"}).status_code == 201
            assert [client.post("/v1/jobs", json=job).json()["dedup"] for _ in range(2)] == [False, True]
        server.restart()
        with httpx.Client(base_url=server.url) as client:
            assert client.get("/v1/stream/s?offset=-1").status_code == 404
            assert client.post("/v1/jobs", json=job).json()["dedup"] is False
