"""The real Litestream beside a server, with the settings of `deploy/litestream`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.guardian import guard
from tests.harness.warm_start import ROOT

PROGRAM = Path(sys.executable).with_name("litestream")
SETTINGS = ROOT / "deploy" / "litestream" / "litestream.yml"
SECONDS = 60


class Litestream:
    """`litestream replicate` of one data folder into another folder; it is killed at the end of the block."""

    def __init__(self, data: Path, folder: Path) -> None:
        guard()
        folder.mkdir(exist_ok=True)
        self.database = data / "semel.db"
        self._replicas = folder / "replicas"
        self._starts = 0
        self.output = folder / "output"
        self._socket = folder / "socket"
        self._env = {
            **os.environ,
            "SEMEL_DATA": str(data),
            "LITESTREAM_SOCKET": str(self._socket),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with an empty replica, and wait until it has copied all that there is."""
        self._socket.unlink(missing_ok=True)
        self._starts += 1
        # It may take up an older replica, or its own notes, behind commits that it has missed: a damaged copy.
        self._env["LITESTREAM_REPLICA"] = str(self._replicas / str(self._starts))
        self._run("reset", "-config", str(SETTINGS), str(self.database))
        with self.output.open("ab") as output:
            command = [str(PROGRAM), "replicate", "-config", str(SETTINGS)]
            self._process = subprocess.Popen(command, env=self._env, stdout=output, stderr=output)
        deadline = time.monotonic() + SECONDS
        while not self._socket.exists():
            assert self._process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.sync()

    def sync(self) -> None:
        """Return when every commit of before is in the replica."""
        self._run("sync", "-wait", "-timeout", str(SECONDS), "-socket", str(self._socket), str(self.database))

    def kill(self) -> None:
        """Send SIGKILL, as a lost machine would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(SECONDS)
        self._process = None

    def restore(self, data: Path) -> None:
        """Make a data folder of what the replica has."""
        data.mkdir()
        self._run("restore", "-config", str(SETTINGS), "-o", str(data / "semel.db"), str(self.database))

    def _run(self, *words: str) -> None:
        run = subprocess.run([PROGRAM, *words], env=self._env, capture_output=True, timeout=SECONDS, check=False)
        assert run.returncode == 0, run.stdout + run.stderr

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
