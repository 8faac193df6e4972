"""Without `semel[otel]` clients and server work, and who asks for traces is told what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.server import HOST, RunningServer, free_port

SECONDS = 120
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
"""
"""As if the extra were not installed."""
CLIENT = """
import asyncio
from semel.client import AsyncClient, Client, ClientTelemetry
from semel.client.errors import ConfigurationError

with Client(sys.argv[1]) as client:
    client.streams.create("s", content_type="application/json")
    client.streams.append("s", {"n": 1}, key="k")

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        return (await client.streams.append("s", {"n": 1}, key="k")).replayed

print(asyncio.run(main()))
try:
    ClientTelemetry()
except ConfigurationError as error:
    print(error)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
SERVER = """
from semel.cli import run
sys.argv[0] = "semel"
run()
"""


def start(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program without the extra."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")} | variables
    command = [sys.executable, "-c", BLOCKED + program, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


class BareServer(RunningServer):
    """A server without the extra."""

    def launch(self, env: object = None) -> subprocess.Popen[bytes]:
        """As `RunningServer.launch`, in an interpreter of its own."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", BLOCKED + SERVER, "serve", "--host", HOST, "--port", str(self.port)]
        with self.output.open("ab") as output:
            self._process = process = subprocess.Popen(
                [*command, "--data", str(self.data)], env=self._env, stdout=output, stderr=output
            )
        return process


def test_clients_and_server_work_without_the_extra(tmp_path: Path) -> None:
    with BareServer(tmp_path / "data") as server:
        done = start(CLIENT, server.url)
    told = "Telemetry needs OpenTelemetry: pip install 'semel[otel]'."
    assert done.stdout.splitlines() == ["True", told, "[]"], done.stderr


def test_a_server_that_is_asked_for_traces_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    arguments = ("serve", "--port", str(free_port()), "--data", str(tmp_path / "data"))
    done = start(SERVER, *arguments, SEMEL_OTEL="true", SEMEL_LEDGER_GRPC_PORT="0")
    assert done.returncode == 1, done.stderr
    assert "otel needs OpenTelemetry: pip install 'semel[otel]', or set otel to false." in done.stderr
    assert not list((tmp_path / "data").glob("*.db"))


def test_a_server_without_traces_does_not_import_the_extra(tmp_path: Path) -> None:
    """Nor do clients."""
    program = "import sys\nimport semel.server.process, semel.client.client\n"
    program += "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout == "[]\n", done.stderr
