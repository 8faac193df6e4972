"""A server with a principal for each case, and how the tests ask it on each wire."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx

from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually

SURFACES = ("streams", "events", "jobs", "ledger", "deltas")
LIVE = ("sse", "poll", "events", "wait", "claim", "blocks", "watch", "socket", "sync")
OTHER = "other"
_ROLES = '["read", "write", "work", "admin"]'


def token_of(name: str) -> str:
    return f"the-token-of-{name}"


def file_text(quotas: Mapping[str, Mapping[str, int]]) -> str:
    """A token file with these principals and their limits."""
    lines = []
    for name, limits in quotas.items():
        digest = hashlib.sha256(token_of(name).encode()).hexdigest()
        lines += ["[[token]]", f'name = "{name}"', f'sha256 = "{digest}"', f"roles = {_ROLES}"]
        if limits:
            lines += ["[[quota]]", f'name = "{name}"', *(f"{limit} = {value}" for limit, value in limits.items())]
    return "\n".join(lines) + "\n"


def auth(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(name)}"}


class Site(NamedTuple):
    """A server under test."""

    server: RunningServer
    file: Path

    def client(self, name: str) -> httpx.Client:
        """A client of a principal."""
        return httpx.Client(base_url=self.server.url, headers=auth(name), timeout=60)

    def metrics(self) -> str:
        """The metrics, as text."""
        return httpx.get(f"{self.server.url}/metrics", headers={"Accept": "text/plain"} | auth(OTHER)).text

    def refusals(self, quota: str) -> float:
        """The count of refusals at a quota."""
        (line,) = [one for one in self.metrics().splitlines() if f'semel_quota_refusals_total{{quota="{quota}"' in one]
        return float(line.split()[-1])

    def readers(self) -> int:
        """Live readers that wait for a commit."""
        (line,) = [one for one in self.metrics().splitlines() if one.startswith("semel_live_readers ")]
        return int(float(line.split()[-1]))

    def audit(self) -> list[dict[str, Any]]:
        """The lines about quotas in the audit log."""
        text = (self.server.data / "logs" / "audit.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == "QUOTA_EXCEEDED"]

    def hang_up(self, text: str) -> None:
        """Write the token file with other quotas, and let the server read it again."""
        self.file.write_text(text)
        before = self._readings()
        os.kill(self.server.pid, signal.SIGHUP)
        eventually(lambda: self._readings() > before, "the quotas are read again")

    def _readings(self) -> int:
        """How often other quotas were read; lines about settings and tokens come before they are in force."""
        return len(
            re.findall("SIGHUP: (quotas have changed|a quota of the token file)", self.server.output.read_text())
        )

    def grpc(self, name: str, path: str = "/ledger.v1.AdminService/ListOrganizations", message: bytes = b"") -> str:
        """The status of a call on a connection of its own."""
        with self.channel() as channel:
            return call(channel, name, path, message)

    def channel(self) -> Any:
        """A connection for calls."""
        alone = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(f"{HOST}:{self.server.grpc_port}", options=alone)


def call(channel: Any, name: str, path: str, message: bytes = b"") -> str:
    """The status of a call."""
    asked: Any = channel.unary_unary(path)
    try:
        asked(message, metadata=[("x-api-key", token_of(name))], timeout=60, wait_for_ready=True)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


@contextmanager
def served(folder: Path, quotas: Mapping[str, Mapping[str, int]], **env: str) -> Iterator[Site]:
    """A server with these principals, and a stream, a job and an organization to ask for."""
    file = folder / "tokens.toml"
    file.write_text(file_text({OTHER: {}, **quotas}))
    given = {"SEMEL_TOKENS": str(file), "SEMEL_LOG_FORMAT": "json", "SEMEL_STORE": "memory:"} | env
    with RunningServer(folder / "data", env=given, grpc=True) as server:
        site = Site(server, file)
        with site.client(OTHER) as client:
            client.put("/v1/stream/s", headers={"Content-Type": "text/plain"}).raise_for_status()
        yield site
