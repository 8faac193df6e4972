"""The guide of jobs is true: its commands, run in their order against real servers, are answered as it shows."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.docs.terminal import Answers, Terminal, commands
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs/guide/jobs.md"
EXAMPLE = ROOT / "examples/jobs.py"

INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
CHANGING = {
    "job_id": r"job_[0-9a-f]{32}",
    "request_id": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "lease_token": r"[0-9a-f]{32}",
    "result_sha256": r"[0-9a-f]{64}",
    "sha256": r"[0-9a-f]{64}",
    "result_url": r"/v1/jobs/job_[0-9a-f]{32}/result",
    "created_utc": INSTANT,
    "run_at_utc": INSTANT,
    "finished_utc": INSTANT,
    "expires_utc": INSTANT,
    "lease_until_utc": INSTANT,
    "next_run_utc": INSTANT,
    "next_instant": INSTANT,
}


def test_commands_in_their_order(tmp_path: Path) -> None:
    typed = list(commands(GUIDE.read_text("utf-8")))
    assert len(typed) >= 50
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(tmp_path / "data"))
        terminal = Terminal(servers, tmp_path, server, CHANGING)
        for command in typed:
            terminal.type(command)


def test_it_begins_with_an_example_that_prints_what_is_shown(tmp_path: Path) -> None:
    [shown] = re.findall(r"prints\n\n```text\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```" in GUIDE.read_text("utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    with RunningServer(tmp_path / "data") as server:
        env = {**own, "SEMEL_URL": server.url}
        assert subprocess.check_output([sys.executable, EXAMPLE], env=env, text=True, timeout=60) == shown


def test_the_proof_in_python() -> None:
    [_, block] = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(GUIDE), "exec"), names)
    text = b'{"job_id":"job_1","ok":true,"result":{"note":"hello","value":42}}'
    plain = {"mode": "sha256", "sha256": hashlib.sha256(text).hexdigest()}
    signed = {**plain, "mode": "hmac", "sig": hmac.new(b"integrity-key", text, "sha256").hexdigest()}
    assert names["proof"]("job_1", {"value": 42, "note": "hello"}) == plain
    assert names["proof"]("job_1", {"value": 42, "note": "hello"}, b"integrity-key") == signed


@pytest.mark.parametrize(
    "shown",
    [
        "",
        '{"ok":true,"jobs":[{"job_id":"job_ID"}]}',
        '{"ok":1,...}',
        '{"ok":true,"jobs":[],...}',
        '{"ok":true,"jobs":[{"job_id":"job_ID"}],"job_id":"job_ID","defer_ms":0,...}',
        '{"ok":true,"jobs":[{"job_id":"job_ID"}],"job_id":"job_ID","defer_ms":0}',
        'HTTP/1.1 409 Conflict\n\n{"ok":true,...}',
    ],
)
def test_a_wrong_answer_is_noticed(shown: str) -> None:
    """The server gives two ids; a page that shows one for both is wrong."""
    one, two = "0" * 32, "1" * 32
    said = f'{{"ok":true,"jobs":[{{"job_id":"job_{one}"}}],"job_id":"job_{two}","defer_ms":0}}'
    assert not Answers(CHANGING).are_alike(shown.replace("ID", "a" * 32), said)
    right = said.replace(one, "a" * 32).replace(two, "b" * 32)
    assert Answers(CHANGING).are_alike(right, said)
    assert Answers(CHANGING).are_alike('{"ok":true,...}', said)
