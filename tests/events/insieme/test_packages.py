"""Packages of Node.js are installed by one test process at a time, also where several want them at once."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.events.insieme.packages import installed_node

CALLERS = 4


def test_callers_at_once_install_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package-lock.json").write_text("{}")
    runs: list[float] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        runs.append(time.monotonic())
        (tmp_path / "node_modules").mkdir()  # fails where another one is installing
        time.sleep(0.1)
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr("tests.events.insieme.packages.subprocess.run", run)
    with ThreadPoolExecutor(CALLERS) as pool:
        found = set(pool.map(lambda _: installed_node(tmp_path), range(CALLERS)))
    assert len(found) == 1
    assert len(runs) == 1
