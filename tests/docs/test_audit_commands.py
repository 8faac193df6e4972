"""The commands of `docs/operating/audit.md`, typed on a log with a burst of refused credentials, raise its alert."""

from __future__ import annotations

import json
from pathlib import Path

from docs.site.stage import DOCS
from tests.docs.page_shell import PageShell
from tests.docs.terminal import commands

TYPED = list(commands((DOCS / "operating/audit.md").read_text("utf-8")))
SHOWN = "/var/lib/semel"


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
    assert [one.line for one in TYPED if not one.line.startswith("semel audit watch")] == []
