"""examples/ledger_check.sh: what it says of a real server, and of one that is wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.scripted import Line, scripted
from tests.harness.server import RunningServer

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "ledger_check.sh"
TOKEN = 'quo"te\\d-token'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("check") / "data", env={"SEMEL_TOKEN_ACTIVE": TOKEN}) as running:
        yield running


def check(url: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    command = ["sh", str(SCRIPT), url]
    return subprocess.run(command, env=own | env, capture_output=True, text=True, timeout=60, check=False)


def test_a_server_passes_again_and_again(server: RunningServer) -> None:
    for _ in range(2):
        run = check(server.url, SEMEL_TOKEN=TOKEN)
        assert (run.returncode, run.stderr) == (0, ""), run.stdout
        assert "FAIL" not in run.stdout
        assert run.stdout.count("ok   ") == 15


def test_a_wrong_token_fails_and_is_not_shown(server: RunningServer) -> None:
    run = check(server.url, SEMEL_TOKEN="wrong-token")
    assert (run.returncode, "FAIL an organization is made: wanted '200', got '401'" in run.stdout) == (1, True)
    assert "wrong-token" not in run.stdout + run.stderr


def test_a_server_that_carries_everything_out_fails() -> None:
    body = b'{"success":{"txId":{"id":"AAAA"},"blockHeight":"7","assignedSequence":"7"}}'
    with scripted(Line(200, {}, body)) as wrong:
        run = check(wrong.url)
    assert run.returncode == 1
    assert "FAIL nine repetitions get the same id and height: wanted '9', got '0'" in run.stdout
    assert "FAIL another payload under the sequence is refused" in run.stdout


def test_nobody_there() -> None:
    run = check("http://127.0.0.1:1")
    assert (run.returncode, run.stdout.splitlines()[-1]) == (2, "FAIL nobody answers at http://127.0.0.1:1")
