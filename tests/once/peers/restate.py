"""A server of Restate, from the npm package that carries its program, for the kill schedule."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.events.insieme.packages import installed_node
from tests.harness.server import HOST, free_port

FOLDER = Path(__file__).parent
SERVER_PACKAGE = "restate-server " + str(
    json.loads((FOLDER / "package.json").read_text())["dependencies"]["@restatedev/restate-server"]
)
SECONDS = 60.0
MACHINES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def installed_restate() -> str:
    """The program, for this machine."""
    installed_node(FOLDER)
    kind = f"restate-server-{platform.system().lower()}-{MACHINES[platform.machine()]}"
    return str(FOLDER / "node_modules" / "@restatedev" / kind / "bin" / "restate-server")


def wait_for_listener(port: int) -> None:
    """Until a server listens there."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"no server listens on port {port}")


class RestateServer:
    """One server with a folder of its own; a context manager that starts it and ends it."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._ports = {name: free_port() for name in ("ingress", "admin", "node")}
        self.ingress = f"http://{HOST}:{self._ports['ingress']}"
        self._admin = f"http://{HOST}:{self._ports['admin']}"
        self._process: subprocess.Popen[bytes] | None = None

    def register(self, port: int) -> None:
        """Tell it where the application is; it may be told again."""
        facts = {"uri": f"http://{HOST}:{port}", "use_http_11": True, "force": True}
        httpx.post(f"{self._admin}/deployments", json=facts, timeout=SECONDS).raise_for_status()

    def __enter__(self) -> Self:
        env = {
            **os.environ,
            "DO_NOT_TRACK": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{self._ports['ingress']}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{self._ports['admin']}",
            "RESTATE_BIND_ADDRESS": f"{HOST}:{self._ports['node']}",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_LOG_FILTER": "warn",
        }
        words = [self._program, "--base-dir", self._folder.name, "--node-name", "bench"]
        self._process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in ("admin", "ingress"):
            wait_for_listener(self._ports[name])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(SECONDS)
        self._folder.cleanup()
