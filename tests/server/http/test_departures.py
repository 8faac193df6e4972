"""A client that leaves is no fault of the server: nothing is logged as one, and nothing is counted as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.streams.wire import Wire, request

MIB = 1024 * 1024
PIPELINED = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    env = {"SEMEL_STORE": "memory:", "SEMEL_LOG_FORMAT": "json"}
    # Behind ten pipelined requests the server reads no further, so it notices a reset at its next idle event.
    env["SEMEL_STREAMS_LONG_POLL_MS"] = "1000"
    with RunningServer(tmp_path / "data", env=env) as running:
        httpx.put(running.url + "/v1/stream/large", headers={"Content-Type": "text/plain"}).raise_for_status()
        httpx.post(
            running.url + "/v1/stream/large", headers={"Content-Type": "text/plain"}, content=b"x" * MIB
        ).raise_for_status()
        yield running


def complaints(server: RunningServer) -> list[dict[str, Any]]:
    """Log lines of warnings and errors; one that is no JSON is a traceback."""
    lines = server.output.read_text().splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    assert not [line for line in lines if line.startswith("Traceback")], server.output_tail()
    return [line for line in logged if line["level"] not in ("debug", "info")]


def counted(server: RunningServer) -> dict[str, float]:
    figures: dict[str, float] = httpx.get(server.url + "/metrics").json()
    return figures


def faults_counted(server: RunningServer) -> dict[str, float]:
    return {name: value for name, value in counted(server).items() if "status=500" in name}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("live", ["", "&live=sse", "&live=long-poll"])
def test_a4_a_client_that_pipelines_large_reads_and_leaves_is_no_fault(
    server: RunningServer, how: str, live: str
) -> None:
    for _ in range(3):
        with Wire(server) as wire:
            wire.send(request("GET", f"/v1/stream/large?offset=-1{live}") * PIPELINED)
            if how == "reset":
                assert wire.status_or_end() == 200
                wire.reset()
    eventually(lambda: counted(server)["semel_http_connections"] <= 1, "the clients are gone")
    assert httpx.get(server.url + "/livez").status_code == 200
    assert complaints(server) == []
    assert faults_counted(server) == {}


def test_a4_writes_that_a_client_pipelined_and_left_are_no_fault(server: RunningServer) -> None:
    append = request("POST", "/v1/stream/large", b"Content-Type: text/plain", body=b"y")
    for _ in range(3):
        with Wire(server) as wire:
            wire.send(append * PIPELINED)
    eventually(lambda: counted(server)["semel_http_connections"] <= 1, "the clients are gone")
    assert complaints(server) == []
    assert faults_counted(server) == {}
