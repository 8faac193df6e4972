"""SIGHUP reads the configuration file again: some settings change at once, and the others are named."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.server.reload import RELOADED
from semel.server.settings_loader import setting_fields
from tests.harness.server import RunningServer
from tests.harness.together import eventually


class Configured:
    """A server with a configuration file, and what it logs."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "semel.toml"
        self.write(log_level="info")
        self.server = RunningServer(folder / "data", env={"SEMEL_CONFIG": str(self.file)})

    def write(self, **values: Any) -> None:
        self.file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))

    def logged(self) -> list[dict[str, Any]]:
        lines = self.server.output.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def reload(self) -> list[dict[str, Any]]:
        """Send SIGHUP, and wait for the last line that it causes; the lines since."""
        before = len(self.logged())
        os.kill(self.server.pid, signal.SIGHUP)
        eventually(lambda: any("no token file" in one["message"] for one in self.logged()[before:]), "it has reloaded")
        return self.logged()[before:]


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    made = Configured(tmp_path)
    with made.server:
        yield made


def named(lines: list[dict[str, Any]], part: str) -> list[str]:
    return [name for line in lines if part in line["message"] for name in line["settings"]]


def test_some_settings_change_at_once_and_the_others_need_a_restart(configured: Configured) -> None:
    configured.write(
        log_level="info", queue_writes=1, http_max_connections=1, port=1, batch_writes=7, quota_connections=9
    )
    lines = configured.reload()
    assert named(lines, "settings have changed") == ["http_max_connections", "quota_connections", "queue_writes"]
    assert named(lines, "need a restart") == ["batch_writes"], "the port is a flag, which the file does not override"
    url = configured.server.url
    with httpx.Client(base_url=url) as first, httpx.Client(base_url=url) as second:
        assert first.get("/livez").status_code == 200
        assert second.get("/livez").status_code == 503, "the limit of connections is in force"
    configured.write(log_level="info", batch_writes=7)
    lines = configured.reload()
    assert named(lines, "settings have changed") == ["http_max_connections", "quota_connections", "queue_writes"]
    assert named(lines, "need a restart") == ["batch_writes"]
    with httpx.Client(base_url=url) as first, httpx.Client(base_url=url) as second:
        assert [one.get("/livez").status_code for one in (first, second)] == [200, 200]


def test_the_log_level_changes_both_ways(configured: Configured) -> None:
    configured.write(log_level="debug")
    configured.reload()
    configured.write(log_level="warning")
    before = len(configured.logged())
    os.kill(configured.server.pid, signal.SIGHUP)
    eventually(lambda: bool(named(configured.logged()[before:], "settings have changed")), "the change is told")
    configured.write(log_level="info")
    assert any("settings have changed" in line["message"] for line in configured.reload())


def test_an_invalid_file_changes_nothing(configured: Configured) -> None:
    configured.write(log_level="info", queue_writes=1, prot=5)
    lines = configured.reload()
    assert any("the settings are invalid" in line["message"] and "port" in line["why"] for line in lines)
    assert named(lines, "settings have changed") == []
    configured.file.unlink()
    assert any("the settings are invalid" in line["message"] for line in configured.reload())


def test_every_name_is_a_setting() -> None:
    assert set(RELOADED) <= {one.name for one in setting_fields()}
