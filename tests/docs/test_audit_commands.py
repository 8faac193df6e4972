"""The commands of `docs/operating/audit.md`, typed on the log of a real server, say what the page shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import httpx
import pytest

from docs.site.stage import DOCS
from tests.docs.page_shell import PageShell
from tests.docs.terminal import commands
from tests.harness.server import RunningServer

TYPED = list(commands((DOCS / "operating/audit.md").read_text("utf-8")))
SHOWN = "/var/lib/semel"
TOKEN = "the-token"


def form(text: str) -> str:
    """What is said, without its numbers."""
    return re.sub(r"\d[\d,]*", "N", text.replace("log.N", "log")).replace("audit.jsonl.N", "audit.jsonl").strip()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a server that stopped, with lines in both files of its log."""
    folder = tmp_path / "data"
    with RunningServer(folder, env={"SEMEL_TOKEN_ACTIVE": TOKEN}) as server:
        good = {"Authorization": f"Bearer {TOKEN}"}
        for _ in range(5):
            assert httpx.get(f"{server.url}/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
        for cents in (1, 2):
            job = {"kind": "charge", "idempotency_key": "order-1", "params": {"cents": cents}}
            httpx.post(f"{server.url}/v1/jobs", json=job, headers=good)
    return folder


def test_a_whole_log_and_one_that_was_changed_are_told_as_shown(data: Path) -> None:
    whole, bad = (one for one in TYPED if one.line.startswith("semel audit verify"))
    shell = PageShell(data.parent, "http://127.0.0.1:1")
    verify = shlex.split(whole.line.replace(SHOWN, str(data)))[1:]
    run = shell.semel.here(*verify)
    assert (run.code, form(run.out)) == (0, form(whole.shown))
    log = data / "logs/audit.jsonl"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    lines[1] = lines[1].replace("AUTH_FAILURE", "AUTH_FAILURF")
    log.write_text("".join(lines), "utf-8")
    assert whole.line == bad.line
    run = shell.semel.here(*verify)
    assert (run.code, form(run.out)) == (1, form(bad.shown))


def test_each_watch_raises_an_alert(tmp_path: Path) -> None:
    """150 refused credentials from one address of another machine, in one second."""
    failed = {"ts": "2026-11-15T18:17:34.036Z", "event": "AUTH_FAILURE", "details": {"remote_addr": "192.0.2.7"}}
    logs = tmp_path / "data/logs"
    logs.mkdir(parents=True)
    (logs / "audit.jsonl").write_text(f"{json.dumps(failed)}\n" * 150)
    shell = PageShell(tmp_path, "http://127.0.0.1:1")
    shell.put_in[SHOWN] = str(tmp_path / "data")
    lines = [one.line for one in TYPED if one.line.startswith("semel audit watch")]
    assert len(lines) == 3
    for line in lines:
        (logs / "alerts.jsonl").unlink(missing_ok=True)
        (shell.type if "--once" in line else shell.watch)(line, "BURST_AUTH_FAILURE")
        assert (logs / "alerts.jsonl").exists() is ("--dry-run" not in line)


def test_these_are_all_commands_of_the_page() -> None:
    beginnings = ("semel audit verify", "semel audit watch")
    assert [one.line for one in TYPED if not one.line.startswith(beginnings)] == []
