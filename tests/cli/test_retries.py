"""What an append does when the server is not there, goes away at the worst moment, or asks for patience."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest

from tests.cli.command import SECONDS, Semel
from tests.cli.scripted import Line, scripted
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually

STORED = Line(204, {"Stream-Next-Offset": "0000000000000000_0000000000000001"})
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_retry_after_is_honoured() -> None:
    wait = Line(503, {"Retry-After": "1"})
    with scripted(wait, STORED) as server:
        start = time.monotonic()
        assert Semel(server.url).here("streams", "append", "s", "text", "--type", "text/plain").code == 0
    assert time.monotonic() - start > 1


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.parametrize(("point", "replayed"), [("flushed", False), ("committed", True)])
def test_a_server_killed_in_mid_append_stores_it_once(data: Path, point: str, replayed: bool) -> None:
    """Before the commit the retry stores it; after the commit, with the answer lost, the retry is a replay."""
    with RunningServer(data) as calm:
        semel = Semel(calm.url)
        semel.here("streams", "create", "s", "--type", "application/json")
    crash = {"SEMEL_CRASH_POINT": point, "SEMEL_CRASH_ONE_IN": "1"}
    doomed = RunningServer(data, port=calm.port, env=crash)
    doomed.start()
    run = semel.start("streams", "append", "s", "1", "--json", "--retries", "20")
    try:
        wait_until_nobody_listens(calm.port)
    finally:
        doomed.kill()
    with calm:
        out, err = run.communicate(timeout=SECONDS)
        assert run.returncode == 0, err
        assert json.loads(out)["replayed"] is replayed
        assert semel.here("streams", "read", "s").out == "1\n"


def wait_until_nobody_listens(port: int) -> None:
    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) != 0

    eventually(is_gone, "the server crashes")
