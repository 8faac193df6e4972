"""A real server in a process of its own, for tests that see what a client sees or kill what a crash kills.

The server gets a free port of 127.0.0.1 and keeps it over restarts, so that a client may go on with the same
URL. Its output goes to one file beside the data folder; a start that fails raises with the end of that file.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from tests.harness.guardian import guard
from tests.harness.serve_with_faults import has_fault
from tests.harness.warm_start import ROOT, Process, can_be_warm, nursery

HOST = "127.0.0.1"
READY_SECONDS = 90.0
STOP_SECONDS = 60.0
PROBE_SECONDS = 10.0
TAIL_BYTES = 4_000
PORTS = range(10_000, 32_000)
"""Below those that the system gives to outgoing connections."""
PORT_SHARES = 8
"""Test processes that run at once have a share each."""
_turns = itertools.count(secrets.randbelow(len(PORTS)))


class ServerFailedError(Exception):
    """The server died, did not become ready, or did not stop, within the time it is given."""


class RunningServer:
    """`semel serve` on a data folder; a context manager that starts it and stops it.

    Variables of `tests.harness.serve_with_faults` in its environment give it their fault.
    """

    def __init__(
        self, data: Path, *, env: Mapping[str, str] | None = None, port: int | None = None, grpc: bool = False
    ) -> None:
        guard()
        self.data = data
        self.port = free_port() if port is None else port
        self.grpc_port = free_port() if grpc else 0
        """Where the ledger's gRPC listens; 0 is nowhere, so that servers side by side do not want the same port."""
        self.output = data.parent / f"{data.name}.stderr"
        # Settings of the developer's own shell must not reach the server under test.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        self._env = inherited | {"SEMEL_LEDGER_GRPC_PORT": str(self.grpc_port)} | dict(env or {})
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The base URL, without a final slash."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    def start(self, env: Mapping[str, str] = MappingProxyType({})) -> None:
        """Start the process, with these variables besides, and wait until /readyz answers 200."""
        process = self.launch(env)
        try:
            self._wait_until_ready(process)
        except BaseException:
            self.kill()
            raise

    def launch(self, env: Mapping[str, str]) -> Process:
        """Start the process, with these variables besides, and do not wait for it."""
        assert self._process is None, "the server is already running"
        self.data.mkdir(parents=True, exist_ok=True)
        arguments = ["serve", "--host", HOST, "--port", str(self.port), "--data", str(self.data)]
        variables = self._env | dict(env)
        with self.output.open("ab") as output:
            if can_be_warm(variables):
                self._process = nursery().start(arguments, variables, output.fileno())
            else:
                module = "semel"
                if has_fault(variables):
                    module = "tests.harness.serve_with_faults"
                    paths = filter(None, (variables.get("PYTHONPATH"), str(ROOT)))
                    variables["PYTHONPATH"] = os.pathsep.join(paths)
                command = [sys.executable, "-m", module, *arguments]
                quiet = subprocess.DEVNULL
                self._process = subprocess.Popen(command, env=variables, stdin=quiet, stdout=output, stderr=output)
        return self._process

    def wait_for_death(self, seconds: float) -> int | None:
        """The exit code of a server that ends by itself; None when it still lives after that time."""
        try:
            code = self._running().wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._process = None
        return code

    def stop(self) -> int:
        """Send SIGTERM, wait for the end, return the exit code; a hung one is killed and reported."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as hung:
            self.kill()
            raise ServerFailedError(self._report(f"still running {STOP_SECONDS} s after SIGTERM")) from hung
        self._process = None
        return code

    def kill(self) -> None:
        """Send SIGKILL, as a crash would, and wait for the end."""
        process = self._running()
        process.kill()
        process.wait(STOP_SECONDS)
        self._process = None

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port and data folder."""
        if self._process is not None:
            self.stop()
        self.start()

    def output_tail(self) -> str:
        """The end of what the server has printed so far."""
        if not self.output.exists():
            return ""
        return self.output.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def _running(self) -> Process:
        assert self._process is not None, "the server is not running"
        return self._process

    def _wait_until_ready(self, process: Process) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                raise ServerFailedError(self._report(f"exited with code {code} before it was ready"))
            if self._is_ready() and process.poll() is None:  # and not somebody else on its port
                return
            time.sleep(0.02)
        raise ServerFailedError(self._report(f"not ready after {READY_SECONDS} s"))

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PROBE_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _report(self, what: str) -> str:
        return f"server on {self.url}: {what}; the end of {self.output}:\n{self.output_tail()}"


def path_with(folder: Path) -> dict[str, str]:
    """The variable by which a server finds modules of a test, before those that this run finds by it."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))}


def free_port() -> int:
    """A port that was free a moment ago, and that neither an outgoing connection nor another test process will take.

    Nor this process, which may want more ports before anybody listens on the first: they are given in turn.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = PORTS[number % PORT_SHARES :: PORT_SHARES]
    for _ in range(1_000):
        port = share[next(_turns) % len(share)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise ServerFailedError("no port is free")
