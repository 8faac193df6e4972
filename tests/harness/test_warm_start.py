"""A server that was forked is the same server: its environment, output, exit codes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.harness.server import RunningServer, ServerFailedError
from tests.harness.together import at_once
from tests.harness.warm_start import WarmProcess, can_be_warm


def test_a_forked_server_has_its_own_environment_output_and_end(tmp_path: Path) -> None:
    first = RunningServer(tmp_path / "first", env={"SEMEL_MAX_BODY_BYTES": "1000"})
    second = RunningServer(tmp_path / "second")
    with first, second:
        for server, status in ((first, 413), (second, 201)):
            assert isinstance(server._process, WarmProcess)
            answer = httpx.put(f"{server.url}/v1/stream/s", content=b"x" * 2_000)
            assert answer.status_code == status
        assert first.pid != second.pid
        assert first.url in first.output.read_text()
        assert second.url not in first.output.read_text()
        environment = Path(f"/proc/{first.pid}/environ").read_bytes()
        assert b"TEST_RUN_MARK=" in environment  # the guardian ends it with the run
        assert second.stop() == 0
        first.kill()
    first.start()
    assert first.stop() == 0


def test_servers_that_are_started_side_by_side_are_each_their_own(tmp_path: Path) -> None:
    servers = [RunningServer(tmp_path / str(number)) for number in range(8)]
    at_once([server.start for server in servers])
    for server in servers:
        output = Path(f"/proc/{server.pid}/fd/1").readlink()
        assert output == server.output
    assert at_once([server.stop for server in servers]) == [0] * 8


def test_a_server_that_ends_by_itself_tells_its_code(tmp_path: Path) -> None:
    with pytest.raises(ServerFailedError, match="exited with code 1"):
        RunningServer(tmp_path / "data", env={"SEMEL_MAX_BODY_BYTES": "many"}).start()


def test_a_signal_is_told_as_popen_tells_it(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        process = server._process
        assert process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL == process.poll()
        process.kill()  # it is gone, and nothing else is hit
        server._process = None


def test_what_python_reads_at_its_start_is_started_as_users_start_it() -> None:
    assert can_be_warm(os.environ | {"SEMEL_STORE": "x"})
    assert not can_be_warm(os.environ | {"PYTHONPATH": "/elsewhere"})
    assert sys.platform == "linux"


def test_a_server_in_a_process_of_its_own_is_taken_apart_without_a_word(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data", env={"PYTHONWARNINGS": "default::ResourceWarning"})
    with server:
        assert not isinstance(server._process, WarmProcess)
        assert httpx.put(f"{server.url}/v1/stream/s", content=b"x").status_code == 201
        assert server.stop() == 0
    said = server.output.read_text()
    assert not [word for word in ("Traceback", "Exception ignored", "Warning:", "Fatal") if word in said], said
