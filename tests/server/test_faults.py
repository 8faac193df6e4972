"""A disk that fails under a real server: what callers hear, how the process ends, and what a fresh start finds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.harness.server import HOST, READY_SECONDS, STOP_SECONDS, RunningServer, free_port

JSON = {"Content-Type": "application/json"}


class FaultyServer:
    """The real server on a file system whose faults are switched by a file beside the data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._fault = folder / "fault"
        environment = os.environ | {"SEMEL_FAULT_FILE": str(self._fault)}
        command = [sys.executable, "-m", "tests.server.faulty_main", "serve", "--port", str(self.port)]
        command += ["--store", f"sqlite:{folder / 'data'}?vfs=faulty"]
        with (folder / "stderr").open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            assert time.monotonic() < deadline, (folder / "stderr").read_text()
            time.sleep(0.05)

    def break_disk(self, kind: str) -> None:
        """From now on every such operation fails."""
        self._fault.write_text(kind)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(self.url + "/readyz").status_code == 200
        except httpx.TransportError:
            return False


@pytest.mark.parametrize("kind", ["sync", "write"])
def test_a_commit_that_fails_is_unknown_and_a_fresh_start_knows(tmp_path: Path, kind: str) -> None:
    """`sync` is a failing fsync, `write` a full disk."""
    server = FaultyServer(tmp_path)
    stream = "/v1/stream/s"
    httpx.put(server.url + stream, headers=JSON).raise_for_status()
    httpx.post(server.url + stream, json="before", headers=JSON | {"Idempotency-Key": "1"}).raise_for_status()
    server.break_disk(kind)
    broken = httpx.post(server.url + stream, json="during", headers=JSON | {"Idempotency-Key": "2"})
    assert (broken.status_code, broken.json()["code"]) == (503, "OUTCOME_UNKNOWN")
    assert broken.json()["retry"] == "same_key"
    assert server.process.wait(STOP_SECONDS) == 1

    with RunningServer(tmp_path / "data") as fresh:
        again = httpx.post(fresh.url + stream, json="during", headers=JSON | {"Idempotency-Key": "2"})
        assert again.status_code == 204
        first = httpx.post(fresh.url + stream, json="before", headers=JSON | {"Idempotency-Key": "1"})
        assert first.headers["Idempotency-Replayed"] == "true"
        assert httpx.get(fresh.url + stream).json() == ["before", "during"]
