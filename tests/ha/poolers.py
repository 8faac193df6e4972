"""PgBouncer beside each node, and the program of `deploy/` that points it at the leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ha import deployed, programs
from tests.ha.members import DatabaseMember, Member
from tests.harness.server import HOST, free_port

ADMIN = "pgbouncer"


class Pooler:
    """One PgBouncer with its follower."""

    def __init__(self, folder: Path, name: str, passwords: Mapping[str, str], values: Mapping[str, str]) -> None:
        self.port = free_port()
        self._values = values
        self._passwords = passwords
        self._pooler = Member(folder, name)
        self._follower = Member(folder, f"{name}-follower")
        self.members = [self._pooler, self._follower]

    def start(self, databases: Sequence[DatabaseMember], database: str) -> None:
        """Start both; which server leads is found out by the follower."""
        pooler, at = self._pooler, self._pooler.folder
        leader = pooler.write("leader.ini", deployed.LEADER.read_text())
        users = "".join(f'"{name}" "{password}"\n' for name, password in self._passwords.items())
        values = {
            "listen_port": str(self.port),
            "unix_socket_dir": str(at),
            "auth_file": str(pooler.write("userlist.txt", users)),
            "logfile": str(at / "pgbouncer.log"),
            "pidfile": str(at / "pgbouncer.pid"),
            "server_tls_sslmode": "disable",
            "server_tls_ca_file": "",
        }
        config = pooler.write("pgbouncer.ini", deployed.pgbouncer(values | dict(self._values), leader))
        pooler.run(programs.pgbouncer(config), {})
        members = [f"--member={HOST}:{one.port}={one.api}" for one in databases]
        options = [f"--file={leader}", f"--pid-file={at / 'pgbouncer.pid'}", f"--database={database}"]
        self._follower.run([programs.PYTHON, str(self._reachable()), *options, *members], {})

    def _reachable(self) -> Path:
        """The follower, where the account can read it."""
        return self._follower.write(deployed.FOLLOWER.name, deployed.FOLLOWER.read_text())
