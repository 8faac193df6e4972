"""The processes of a cluster: members of etcd, and of Patroni with their PostgreSQL, each in a folder of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.ha import deployed, programs
from tests.harness.account import own, spawn
from tests.harness.processes import family_of, halt_all, kill_all, send_all
from tests.harness.server import HOST, free_port

ASK_SECONDS = 2.0
TAIL_BYTES = 3_000
TTL_SECONDS = 10
"""A leader that was silent for this time is replaced; everything else that waits is a part of it."""
SHORT: dict[str, Any] = {
    "bootstrap.dcs.ttl": TTL_SECONDS,
    "bootstrap.dcs.loop_wait": 2,
    "bootstrap.dcs.retry_timeout": 4,
    "bootstrap.dcs.postgresql.parameters.wal_sender_timeout": "5s",
    "bootstrap.dcs.postgresql.parameters.wal_receiver_timeout": "5s",
}


class Member:
    """A program that is started, frozen and killed, and whose output is kept."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir(mode=0o755)
        own(self.folder)
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        """Whether it was started, and not ended by us."""
        return self._process is not None

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it."""
        assert self._process is None, f"{self.name} is already running"
        with self.log.open("ab") as log:
            self._process = spawn(command, log, {**programs.environment(), **env})

    def roots(self) -> list[int]:
        """The processes that all of it descends from."""
        assert self._process is not None, f"{self.name} does not run"
        return [self._process.pid]

    def kill(self) -> None:
        """All of it at once, without warning."""
        kill_all(self.roots())
        self._collect()

    def end(self) -> None:
        """Kill it if it runs."""
        if self.is_started:
            self.kill()

    def tail(self) -> str:
        """The end of its output."""
        told = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return f"--- {self.name}\n{told}"

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        """A file of its own folder."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        own(path)
        return path

    def _collect(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None


class EtcdMember(Member):
    """One of three that hold the leader key."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.port = free_port()
        self.peer_port = free_port()

    @property
    def url(self) -> str:
        """Where clients ask it."""
        return f"http://{HOST}:{self.port}"

    @property
    def peer(self) -> str:
        """Where the other members reach it."""
        return f"http://{HOST}:{self.peer_port}"

    def start(self, members: Sequence[EtcdMember]) -> None:
        """Start it for the first time, or again with what it has on disk."""
        values = {
            "ETCD_NAME": self.name,
            "ETCD_DATA_DIR": str(self.folder / "data"),
            "ETCD_LISTEN_PEER_URLS": self.peer,
            "ETCD_LISTEN_CLIENT_URLS": self.url,
            "ETCD_INITIAL_ADVERTISE_PEER_URLS": self.peer,
            "ETCD_ADVERTISE_CLIENT_URLS": self.url,
            "ETCD_INITIAL_CLUSTER": ",".join(f"{one.name}={one.peer}" for one in members),
        }
        self.run(programs.etcd(), deployed.etcd(values))

    def status(self) -> Mapping[str, Any]:
        """What it says of itself and of its leader; nothing if it does not answer."""
        try:
            answer = httpx.post(f"{self.url}/v3/maintenance/status", json={}, timeout=ASK_SECONDS)
        except httpx.TransportError:
            return {}
        told: Mapping[str, Any] = answer.json() if answer.is_success else {}
        return told

    @property
    def is_healthy(self) -> bool:
        """Whether it knows a leader."""
        return int(self.status().get("leader", 0)) != 0

    @property
    def leads(self) -> bool:
        """Whether it is the leader of etcd."""
        told = self.status()
        return bool(told) and told.get("leader") == told["header"]["member_id"]


class DatabaseMember(Member):
    """Patroni and the PostgreSQL that it runs: one machine, as far as a kill or a freeze goes."""

    def __init__(self, folder: Path, name: str, secrets: Mapping[str, str]) -> None:
        super().__init__(folder, name)
        self.port = free_port()
        self.api_port = free_port()
        self.data = self.folder / "data"
        self._secrets = secrets
        self.config = self.folder / "patroni.yml"

    @property
    def api(self) -> str:
        """Where Patroni answers."""
        return f"http://{HOST}:{self.api_port}"

    def start(self, etcd: Sequence[EtcdMember]) -> None:
        """Start Patroni, which starts PostgreSQL: as the first leader, or as a standby of the leader there is."""
        values = SHORT | {
            "name": self.name,
            "restapi.listen": f"{HOST}:{self.api_port}",
            "restapi.connect_address": f"{HOST}:{self.api_port}",
            "etcd.hosts": [f"{HOST}:{one.port}" for one in etcd],
            "postgresql.listen": f"{HOST}:{self.port}",
            "postgresql.connect_address": f"{HOST}:{self.port}",
            "postgresql.data_dir": str(self.data),
            "postgresql.bin_dir": str(programs.postgres_programs()),
            "postgresql.pgpass": str(self.folder / "pgpass"),
            "postgresql.parameters.unix_socket_directories": str(self.folder),
            "postgresql.pg_hba": [
                "local all all trust",
                f"host all all {HOST}/32 scram-sha-256",
                f"host replication replicator {HOST}/32 scram-sha-256",
            ],
            "watchdog.mode": "off",
        }
        self.write("patroni.yml", deployed.patroni(values))
        self.run(programs.patroni(str(self.config)), self._secrets)

    def roots(self) -> list[int]:
        """Patroni, and PostgreSQL, which is no child of it."""
        return [*super().roots(), *self._postmaster()]

    def orphan(self) -> None:
        """Kill Patroni alone; PostgreSQL goes on, and nobody tells it that it leads no more."""
        kill_all(super().roots())
        self._collect()

    def end(self) -> None:
        """Kill whatever of it runs."""
        if self.is_started:
            self.kill()
        kill_all(self._postmaster())

    def freeze(self) -> None:
        """Every process stands still: a machine that hangs."""
        halt_all(self.roots())

    def thaw(self) -> None:
        """And goes on, as if no time had passed; PostgreSQL first, so that Patroni does not hurry ahead of it."""
        send_all([pid for root in reversed(self.roots()) for pid in family_of(root)], signal.SIGCONT)

    @property
    def leads(self) -> bool:
        """Whether it says that it holds the leader key and accepts writes."""
        try:
            return httpx.get(f"{self.api}/primary", timeout=ASK_SECONDS).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def cluster(self) -> Sequence[Mapping[str, Any]]:
        """The members, as this one knows them; none if it does not answer."""
        try:
            told = httpx.get(f"{self.api}/cluster", timeout=ASK_SECONDS).json()
        except (httpx.TransportError, ValueError):
            return []
        members: Sequence[Mapping[str, Any]] = told.get("members", [])
        return members

    def _postmaster(self) -> list[int]:
        """The file outlives a killed server, so its number may be another process's: one that works elsewhere."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            return [pid] if Path(f"/proc/{pid}/cwd").readlink() == self.data else []
        except (OSError, ValueError, IndexError):
            return []
