"""What a test run starts ends with it, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import family_of, is_there
from tests.harness.together import eventually

ROOT = Path(__file__).parents[2]
RUN = """
import sys, time
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
def test_that_is_ended_in_the_middle():
    from tests.harness.postgres.shared import fresh_url, shared_cluster
    from tests.harness.server import RunningServer

    server = RunningServer(Path({folder!r}) / "data", env={{"SEMEL_STORE": fresh_url()}})
    server.start()
    Path({folder!r}, "started").write_text(f"{{server.pid}} {{shared_cluster()._process.pid}}")
    time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("workers", [(), ("--numprocesses", "1")])
def test_f5_servers_and_postgresql_end_when_their_run_is_ended(
    tmp_path: Path, number: signal.Signals, workers: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    test = folder / "test_run.py"
    test.write_text(RUN.format(folder=str(folder)))
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(ROOT), *workers, "-p", "tests.conftest"]
    command += ["-c", str(ROOT / "pyproject.toml"), str(test)]
    with (folder / "output").open("wb") as output:
        run = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually((folder / "started").exists, "the server and the database run", 90)
        eventually(lambda: len((folder / "started").read_text().split()) == 2, "their ids are written", 5)
        started = [pid for one in (folder / "started").read_text().split() for pid in family_of(int(one))]
        assert all(map(is_there, started[:2]))
    finally:
        os.kill(run.pid, number)
        run.wait(60)
    eventually(lambda: not any(map(is_there, started)), "everything that the run has started is gone", 60)
