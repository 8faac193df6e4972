"""The doctor finds the running server by itself, tells the reasons of `/readyz`, and looks into every surface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.server.ops import server_process
from semel.server.ops.self_check import lock_holder
from semel.server.ops.surface_outlook import MOST, amount, span
from tests.cli.command import Semel
from tests.harness.guardian import guard
from tests.harness.server import RunningServer, free_port
from tests.harness.together import eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("surfaces")
    config = folder / "semel.toml"
    config.write_text("")
    with RunningServer(folder / "data", env={"SEMEL_CONFIG": str(config)}) as running:
        yield running


def checks(server: RunningServer, *args: str) -> list[dict[str, Any]]:
    run = Semel(server.url).here("doctor", "--data", str(server.data), "--json", *args)
    found: list[dict[str, Any]] = json.loads(run.out)["checks"]
    return found


def test_each_surface_is_counted_and_a_dead_letter_comes_with_its_error_and_advice(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url) as http:
        http.put("/v1/stream/orders", headers={"Content-Type": "application/json"}).raise_for_status()
        job = {"kind": "k", "params": {}, "idempotency_key": "the-key", "max_attempts": 1}
        http.post("/v1/jobs", json=job).raise_for_status()
        waiting = {check["name"]: check for check in checks(server)}
        assert waiting["streams"]["found"] == "1 stream, 0 subscriptions, 0 with a pending wake"
        assert waiting["jobs"]["found"].startswith("1 ready, 0 scheduled, 0 leased, 0 dead; the oldest is ready for ")
        assert waiting["events"]["found"] == "0 events committed"
        assert waiting["deltas"]["found"].startswith("0 gateways")
        assert "organization" in waiting["ledger"]["found"]
        (claimed,) = http.post("/v1/jobs/claim", json={"worker_id": "w"}).raise_for_status().json()["jobs"]
        report = {"lease_token": claimed["lease_token"], "error": {"code": "e", "message": "no paper"}}
        http.post(f"/v1/jobs/{claimed['job_id']}/fail", json=report).raise_for_status()
    problems = [check for check in checks(server) if check["name"] == "jobs" and not check["ok"]]
    assert len(problems) == 1
    assert problems[0]["found"].startswith("1 dead letter; the last is job_")
    assert "no paper" in problems[0]["found"]
    assert "semel jobs requeue" in problems[0]["advice"]


def test_the_reasons_of_a_server_that_is_not_ready(server: RunningServer) -> None:
    config = server.data.parent / "semel.toml"
    config.write_text(f"ready_free_bytes = {2**62}")
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, "it is not ready")
    (told,) = [check for check in checks(server) if check["name"] == "readiness"]
    assert not told["ok"]
    assert told["found"].startswith("the disk of the database has ")
    assert told["advice"].startswith("Free some disk space")
    config.write_text("")
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, "it is ready")


def test_the_folder_of_a_running_server_is_found_by_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server_process, "USUAL_FOLDERS", (Path("data"),))
    assert server_process.found_folder(tmp_path / "no processes") == (Path("data"), "")
    (tmp_path / "home").mkdir()
    command = [sys.executable, "-m", "semel", "serve", "--port", str(free_port()), "--ledger-grpc-port", "0"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [*command, "--data=elsewhere"], cwd=tmp_path / "home", env=variables, stdout=quiet, stderr=quiet
    )
    try:
        folder = tmp_path / "home" / "elsewhere"
        eventually(lambda: lock_holder(folder) == process.pid, "it holds the lock")
        places = tmp_path / "processes"
        places.mkdir()
        (places / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        assert server_process.found_folder(places) == (folder, f"found by process {process.pid}")
    finally:
        process.terminate()
        process.wait(60)


def test_numbers_and_spans_in_words() -> None:
    assert [amount(1, "stream"), amount(2, "stream"), amount(MOST, "stream")] == [
        "1 stream",
        "2 streams",
        "10,000 or more streams",
    ]
    assert [span(999), span(119_999), span(120_000), span(7_200_000), span(3 * 86_400_000)] == [
        "0 s",
        "119 s",
        "2 minutes",
        "2 hours",
        "3 days",
    ]
