"""Three members of etcd and three of Patroni on loopback, and what is done to them, one fault a round.

Commits wait for a standby (`synchronous_mode_strict`), so that a standby which takes over has every write that was
acknowledged. `attach` returns when the cluster is whole again: a leader, two standbys that stream from it, one of them
named in etcd as the one that may take over. Only then may the next fault come.
"""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Self

import psycopg

from tests.ha import programs
from tests.ha.members import TTL_SECONDS, DatabaseMember, EtcdMember, Member
from tests.ha.poolers import ADMIN, Pooler
from tests.harness.account import finish, own_folder
from tests.harness.server import HOST

SCOPE = "semel"
DATABASE = "semel"
USER = "semel"
MEMBERS = 3
PATIENCE_MS = 20_000
"""Longer than a failover takes, so that callers wait and are not refused."""
WHOLE_SECONDS = 180.0
ELECTION_SECONDS = 90.0
FROZEN_SECONDS = (TTL_SECONDS + 1.0, TTL_SECONDS + 6.0)
ORPHANED_SECONDS = (2.0, 6.0)
ETCD_SECONDS = (TTL_SECONDS - 4.0, TTL_SECONDS + 2.0)
"""For how long a member of etcd is away: about as long as the leader key lives without being renewed."""


class Layout(Enum):
    """How nodes reach the leader."""

    DIRECT = "direct"
    """Every member of the cluster is in the URL, and libpq finds the one that accepts writes."""
    PGBOUNCER = "pgbouncer"
    """Each node has a PgBouncer beside it, whose database follows the leader."""


class Fault(Enum):
    """What happens in a round."""

    SWITCHOVER = "switchover"
    """An operator moves the leader: `patronictl switchover`."""
    KILL = "leader killed"
    """Patroni and PostgreSQL of the leader, by SIGKILL; started again when another one leads."""
    FREEZE = "leader frozen"
    """Patroni and PostgreSQL of the leader stand still for longer than the TTL, then go on."""
    ORPHAN = "leader orphaned"
    """Patroni of the leader is killed and PostgreSQL goes on, beside its successor, until Patroni is started again."""
    ETCD = "etcd member killed"
    """One member of etcd, every second time its leader; started again."""

    def __str__(self) -> str:
        return self.value


class PatroniCluster:
    """A context manager that starts everything, and leaves nothing."""

    def __init__(self, layout: Layout, nodes: int, pooler_values: Mapping[str, str] | None = None) -> None:
        self._folder = own_folder("semel-ha-")
        self._password = {name: secrets.token_hex(16) for name in ("superuser", "replication", "rewind", USER, ADMIN)}
        environment = {
            f"PATRONI_{name.upper()}_PASSWORD": self._password[name] for name in ("superuser", "replication", "rewind")
        }
        self.etcd = [EtcdMember(self._folder, f"etcd{number}") for number in range(1, MEMBERS + 1)]
        self.databases = [DatabaseMember(self._folder, f"db{number}", environment) for number in range(1, MEMBERS + 1)]
        users = {USER: self._password[USER], ADMIN: self._password[ADMIN]}
        self.poolers = [
            Pooler(self._folder, f"pgbouncer{number}", users, pooler_values or {})
            for number in range(1, nodes + 1)
            if layout is Layout.PGBOUNCER
        ]
        self._nodes = nodes
        self._etcd_rounds = 0

    @property
    def urls(self) -> Sequence[str]:
        """For `semel serve --store`, one for each node."""
        everywhere = ",".join(f"{HOST}:{one.port}" for one in self.databases)
        direct = [f"{everywhere}/{DATABASE}?target_session_attrs=read-write&load_balance_hosts=random&"] * self._nodes
        places = [f"{HOST}:{one.port}/{DATABASE}?" for one in self.poolers] or direct
        return [f"postgresql://{USER}:{self._password[USER]}@{place}patience_ms={PATIENCE_MS}" for place in places]

    @property
    def running(self) -> Self:
        """Starts everything, and removes it."""
        return self

    def fail_over(self, what: Fault, chance: random.Random) -> None:
        """Let it happen; returns when a leader is there again, which need not be whole."""
        match what:
            case Fault.SWITCHOVER:
                self._switch_over()
            case Fault.KILL:
                old = self.leader()
                old.kill()
                self._wait_for_another(old)
            case Fault.FREEZE:
                self._freeze(chance.uniform(*FROZEN_SECONDS))
            case Fault.ORPHAN:
                old = self.leader()
                old.orphan()
                self._wait_for_another(old)
                time.sleep(chance.uniform(*ORPHANED_SECONDS))
            case Fault.ETCD:
                self._kill_etcd(chance)

    def attach(self) -> None:
        """Start what does not run, and wait until the cluster is whole."""
        for one in self.databases:
            if not one.is_started:
                one.start(self.etcd)
        self._until(self._is_whole, "The cluster did not become whole", WHOLE_SECONDS)

    def leader(self) -> DatabaseMember:
        """The member that leads."""
        found: list[DatabaseMember] = []

        def is_one() -> bool:
            found[:] = [one for one in self.databases if one.leads]
            return len(found) == 1

        self._until(is_one, "No member leads", ELECTION_SECONDS)
        return found[0]

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """One statement as the superuser, on the leader."""
        with psycopg.connect(
            host=HOST,
            port=self.leader().port,
            user="postgres",
            password=self._password["superuser"],
            dbname=database,
            autocommit=True,
            connect_timeout=int(ELECTION_SECONDS),
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _start(self) -> None:
        for member in self.etcd:
            member.start(self.etcd)
        self._until(lambda: all(one.is_healthy for one in self.etcd), "etcd did not start", WHOLE_SECONDS)
        self.attach()
        self.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{self._password[USER]}'")
        self.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")
        for pooler in self.poolers:
            pooler.start(self.databases, DATABASE)

    def _switch_over(self) -> None:
        old = self.leader()
        command = programs.patroni("--config-file", str(old.config), "switchover", SCOPE, program="patronictl")
        finish([*command, "--leader", old.name, "--force"], env=programs.environment())
        self._wait_for_another(old)

    def _freeze(self, seconds: float) -> None:
        old = self.leader()
        began = time.monotonic()
        old.freeze()
        try:
            self._wait_for_another(old)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
        finally:
            old.thaw()

    def _kill_etcd(self, chance: random.Random) -> None:
        self._etcd_rounds += 1
        leading = [one for one in self.etcd if one.leads]
        others = [one for one in self.etcd if one not in leading]
        member = chance.choice(leading if leading and self._etcd_rounds % 2 else others)
        member.kill()
        time.sleep(chance.uniform(*ETCD_SECONDS))
        member.start(self.etcd)

    def _wait_for_another(self, old: DatabaseMember) -> None:
        others = [one for one in self.databases if one is not old]
        self._until(lambda: any(one.leads for one in others), f"No member followed {old.name}", ELECTION_SECONDS)

    def _is_whole(self) -> bool:
        """As Patroni tells it: one leader, and standbys that have its timeline, one of them synchronous."""
        leading = [one for one in self.databases if one.leads]
        if len(leading) != 1 or not all(one.is_healthy for one in self.etcd):
            return False
        told = leading[0].cluster()
        roles = sorted(str(one["role"]) for one in told)
        states = {one["state"] for one in told}
        timelines = {one.get("timeline") for one in told}
        return (
            roles == ["leader", "replica", "sync_standby"]
            and states <= {"running", "streaming"}
            and len(timelines) == 1
            and all(one.get("lag", 0) == 0 or one["role"] == "replica" for one in told)
        )

    def _until(self, check: Callable[[], bool], otherwise: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not check():
            if time.monotonic() > deadline:
                tails = "\n".join(one.tail() for one in self._members())
                raise TimeoutError(f"{otherwise} in {seconds} s.\n{tails}")
            time.sleep(0.1)

    def _members(self) -> Sequence[Member]:
        return [*self.etcd, *self.databases, *(one for pooler in self.poolers for one in pooler.members)]

    def _remove(self) -> None:
        for member in self._members():
            member.end()
        shutil.rmtree(self._folder, ignore_errors=True)
