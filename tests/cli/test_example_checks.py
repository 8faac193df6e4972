"""examples/jobs_check.sh and ledger_check.sh: what they say of a real server, and of one that is wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.scripted import Line, scripted
from tests.harness.server import RunningServer

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TOKEN = 'quo"te\\d-token'


class Script(NamedTuple):
    """A script, how much it looks at, and what it says of what is wrong."""

    checks: int
    unknown: str
    forgetful: bytes
    """The answer of a server that carries everything out again."""
    complaints: tuple[str, ...]


SCRIPTS = {
    "jobs": Script(
        14,
        "FAIL the first submission is answered: wanted '200', got '403'",
        b'{"ok":true,"job_id":"job_1","request_id":"r","dedup":false,"status":"accepted"}',
        (
            "FAIL nine repetitions are in progress, with the same job and request: wanted '9', got '0'",
            "FAIL another payload under the key is refused: wanted '409', got '200'",
        ),
    ),
    "ledger": Script(
        15,
        "FAIL an organization is made: wanted '200', got '401'",
        b'{"success":{"txId":{"id":"AAAA"},"blockHeight":"7","assignedSequence":"7"}}',
        (
            "FAIL nine repetitions get the same id and height: wanted '9', got '0'",
            "FAIL another payload under the sequence is refused",
        ),
    ),
}
EACH = pytest.mark.parametrize("name", SCRIPTS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("check") / "data", env={"SEMEL_TOKEN_ACTIVE": TOKEN}) as running:
        yield running


def check(name: str, url: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "AUDIT"))}
    command = ["sh", str(EXAMPLES / f"{name}_check.sh"), url]
    return subprocess.run(command, env=own | env, capture_output=True, text=True, timeout=60, check=False)


@EACH
def test_a_server_passes_again_and_again(server: RunningServer, name: str) -> None:
    audit = {"AUDIT": str(server.data / "logs" / "audit-important.jsonl")} if name == "jobs" else {}
    for _ in range(2):
        run = check(name, server.url, SEMEL_TOKEN=TOKEN, **audit)
        assert (run.returncode, run.stderr, "FAIL" in run.stdout) == (0, "", False), run.stdout
        assert run.stdout.count("ok   ") == SCRIPTS[name].checks
        assert name != "jobs" or "ok   the audit file has the collision" in run.stdout


@EACH
def test_a_wrong_token_fails_and_is_not_shown(server: RunningServer, name: str) -> None:
    run = check(name, server.url, SEMEL_TOKEN="wrong-token")
    assert (run.returncode, SCRIPTS[name].unknown in run.stdout) == (1, True)
    assert "wrong-token" not in run.stdout + run.stderr


@EACH
def test_a_server_that_repeats_what_was_done_fails(name: str) -> None:
    with scripted(Line(200, {}, SCRIPTS[name].forgetful)) as wrong:
        run = check(name, wrong.url)
    assert run.returncode == 1
    assert [one for one in SCRIPTS[name].complaints if one not in run.stdout] == []


@EACH
def test_nobody_there(name: str) -> None:
    run = check(name, "http://127.0.0.1:1")
    assert (run.returncode, run.stdout.splitlines()[-1]) == (2, "FAIL nobody answers at http://127.0.0.1:1")
