"""The files of `deploy/patroni` and `deploy/pgbouncer`: their keys are those of the programs, their values keep writes.

`make nightly NAME=ha` starts a cluster from these files, with other addresses, folders and times.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from semel.store.postgres.address import PgAddress
from tests.ha import deployed

CHECKED = {deployed.PATRONI, deployed.ETCD, deployed.PGBOUNCER, deployed.LEADER, deployed.FOLLOWER}
FOLLOW_SECONDS = 60.0

# Keys that Patroni 3.0, etcd 3.4 and PgBouncer 1.18 know, of those that the files have.
PATRONI_KEYS: Mapping[str, Any] = {
    "scope": str,
    "name": str,
    "restapi": {"listen": str, "connect_address": str},
    "etcd": {"hosts": list},
    "bootstrap": {
        "dcs": {
            "ttl": int,
            "loop_wait": int,
            "retry_timeout": int,
            "synchronous_mode": bool,
            "synchronous_mode_strict": bool,
            "postgresql": {"use_pg_rewind": bool, "use_slots": bool, "parameters": dict},
        },
        "initdb": list,
    },
    "postgresql": {
        "listen": str,
        "connect_address": str,
        "data_dir": str,
        "bin_dir": str,
        "pgpass": str,
        "authentication": {
            "superuser": {"username": str},
            "replication": {"username": str},
            "rewind": {"username": str},
        },
        "parameters": dict,
        "pg_hba": list,
    },
    "watchdog": {"mode": str, "device": str, "safety_margin": int},
}
POSTGRES_PARAMETERS = {
    "synchronous_commit",
    "max_connections",
    "max_wal_size",
    "wal_log_hints",
    "wal_sender_timeout",
    "wal_receiver_timeout",
    "wal_retrieve_retry_interval",
    "hot_standby",
    "unix_socket_directories",
    "password_encryption",
}
ETCD_KEYS = {
    "ETCD_NAME",
    "ETCD_DATA_DIR",
    "ETCD_LISTEN_PEER_URLS",
    "ETCD_LISTEN_CLIENT_URLS",
    "ETCD_INITIAL_ADVERTISE_PEER_URLS",
    "ETCD_ADVERTISE_CLIENT_URLS",
    "ETCD_INITIAL_CLUSTER",
    "ETCD_INITIAL_CLUSTER_STATE",
    "ETCD_INITIAL_CLUSTER_TOKEN",
    "ETCD_ENABLE_V2",
    "ETCD_HEARTBEAT_INTERVAL",
    "ETCD_ELECTION_TIMEOUT",
    "ETCD_AUTO_COMPACTION_MODE",
    "ETCD_AUTO_COMPACTION_RETENTION",
}
PGBOUNCER_KEYS = {
    "listen_addr",
    "listen_port",
    "unix_socket_dir",
    "auth_type",
    "auth_file",
    "admin_users",
    "logfile",
    "pidfile",
    "pool_mode",
    "server_reset_query",
    "default_pool_size",
    "max_client_conn",
    "server_fast_close",
    "server_login_retry",
    "server_connect_timeout",
    "query_wait_timeout",
    "tcp_keepalive",
    "tcp_keepidle",
    "tcp_keepintvl",
    "tcp_keepcnt",
    "tcp_user_timeout",
    "server_tls_sslmode",
    "server_tls_ca_file",
}


def told(text: str | None = None) -> Any:
    return yaml.safe_load(deployed.PATRONI.read_text() if text is None else text)


def unknown(values: Any, keys: Any, path: str = "") -> list[str]:
    """Where a file differs from the keys and kinds that its program knows."""
    if not isinstance(keys, Mapping):
        return [] if isinstance(values, keys) else [path]
    return [
        found
        for name, value in values.items()
        for found in (unknown(value, keys[name], f"{path}.{name}") if name in keys else [f"{path}.{name}"])
    ]


def test_every_file_is_checked_here() -> None:
    listed = ["git", "ls-files", "deploy/patroni", "deploy/pgbouncer"]
    root = deployed.DEPLOY.parent
    known = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {root / name for name in known} == CHECKED


def test_patroni_knows_every_key() -> None:
    assert unknown(told(), PATRONI_KEYS) == []
    parameters = told()["bootstrap"]["dcs"]["postgresql"]["parameters"] | told()["postgresql"]["parameters"]
    assert parameters.keys() <= POSTGRES_PARAMETERS


def test_a_key_that_patroni_does_not_know_is_noticed() -> None:
    wrong = told(deployed.PATRONI.read_text().replace("synchronous_mode_strict", "strict_synchronous_mode"))
    assert unknown(wrong, PATRONI_KEYS) == [".bootstrap.dcs.strict_synchronous_mode"]


def test_a_commit_waits_for_a_standby_and_only_such_a_standby_is_promoted() -> None:
    dcs = told()["bootstrap"]["dcs"]
    assert (dcs["synchronous_mode"], dcs["synchronous_mode_strict"]) == (True, True)
    assert dcs["postgresql"]["parameters"]["synchronous_commit"] == "on"
    assert dcs["ttl"] >= dcs["loop_wait"] + 2 * dcs["retry_timeout"]


def test_no_password_is_in_a_file_and_none_crosses_the_network_in_clear() -> None:
    postgres = told()["postgresql"]
    assert all(role.keys() == {"username"} for role in postgres["authentication"].values())
    methods = {(rule.split()[0], rule.split()[-1]) for rule in postgres["pg_hba"]}
    assert methods == {("local", "peer"), ("hostssl", "scram-sha-256")}
    section = deployed.ini(deployed.PGBOUNCER)["pgbouncer"]
    assert (section["auth_type"], section["server_tls_sslmode"]) == ("scram-sha-256", "verify-full")
    assert section["listen_addr"] == "127.0.0.1"


def test_etcd_knows_every_key_and_the_members_are_those_of_patroni() -> None:
    variables = deployed.etcd({})
    assert variables.keys() == ETCD_KEYS
    peers = dict(one.split("=") for one in variables["ETCD_INITIAL_CLUSTER"].split(","))
    hosts = [peer.removeprefix("http://").replace(":2380", ":2379") for peer in peers.values()]
    assert hosts == told()["etcd"]["hosts"]
    assert int(variables["ETCD_ELECTION_TIMEOUT"]) >= 10 * int(variables["ETCD_HEARTBEAT_INTERVAL"])


def test_pgbouncer_knows_every_key_and_has_the_mode_that_works() -> None:
    section = deployed.ini(deployed.PGBOUNCER)["pgbouncer"]
    assert {name for name in section if not name.startswith(deployed.INCLUDE)} == PGBOUNCER_KEYS
    assert (section["pool_mode"], section["server_fast_close"]) == ("session", "1")
    defaults = PgAddress("")
    assert int(section["default_pool_size"]) >= defaults.lanes + defaults.readers + 3
    assert float(section["query_wait_timeout"]) <= defaults.patience
    assert [*deployed.ini(deployed.LEADER)["databases"]] == ["semel"]
    assert any(name == f"{deployed.INCLUDE} /etc/pgbouncer/leader.ini" for name in section)


def test_a_run_replaces_values_and_adds_none(tmp_path: Path) -> None:
    assert told(deployed.patroni({"bootstrap.dcs.ttl": 10}))["bootstrap"]["dcs"]["ttl"] == 10
    assert deployed.etcd({"ETCD_NAME": "x"})["ETCD_NAME"] == "x"
    made = tmp_path / "pgbouncer.ini"
    made.write_text(deployed.pgbouncer({"listen_port": "1"}, tmp_path / "leader.ini"))
    section = deployed.ini(made)["pgbouncer"]
    assert (section["listen_port"], section["pool_mode"]) == ("1", "session")
    assert f"{deployed.INCLUDE} {tmp_path / 'leader.ini'}" in section
    for add in (
        lambda: deployed.patroni({"bootstrap.dcs.tll": 10}),
        lambda: deployed.etcd({"ETCD_NAMES": "x"}),
        lambda: deployed.pgbouncer({"poolmode": "x"}, tmp_path),
    ):
        with pytest.raises(KeyError):
            add()


# The program that points PgBouncer at the leader


def follower() -> ModuleType:
    spec = importlib.util.spec_from_file_location("follow_leader", deployed.FOLLOWER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["follow_leader"] = module
    spec.loader.exec_module(module)
    return module


class Members(ThreadingHTTPServer):
    """The REST API of two members under one address: /db1/primary and /db2/primary."""

    leader = "db1"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Members)
        self.send_response(200 if self.path == f"/{server.leader}/primary" else 503)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Not in the output of the tests."""


@pytest.fixture
def members() -> Iterator[Members]:
    with Members(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def hangups() -> Iterator[list[int]]:
    """The signals that this process is sent as if it were PgBouncer."""
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    try:
        yield heard
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_follower_points_pgbouncer_at_each_leader_and_tells_it(members: Members, tmp_path: Path) -> None:
    file, pid_file = tmp_path / "leader.ini", tmp_path / "pid"
    pid_file.write_text(f"{os.getpid()}\n")
    told_of = [f"--member=10.0.0.{number}:543{number}={members.url}/db{number}" for number in (1, 2)]
    command = [sys.executable, str(deployed.FOLLOWER), f"--file={file}", f"--pid-file={pid_file}", *told_of]
    with hangups() as heard, subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            for count, leader in enumerate(("db1", "db2"), 1):
                members.leader = leader
                deadline = time.monotonic() + FOLLOW_SECONDS
                while len(heard) < count:
                    assert time.monotonic() < deadline, leader
                    time.sleep(0.02)
                databases = deployed.ini(file)["databases"]
                assert dict(databases) == {"semel": f"host=10.0.0.{count} port=543{count} dbname=semel"}
        finally:
            process.kill()
    assert sorted(tmp_path.iterdir()) == [file, pid_file]


def test_a_pgbouncer_that_does_not_run_is_no_failure(tmp_path: Path) -> None:
    program = follower()
    assert program.reload(tmp_path / "none") is False
    for text in ("", "none", "99999999"):
        (tmp_path / "pid").write_text(text)
        assert program.reload(tmp_path / "pid") is False


def test_a_member_that_does_not_answer_does_not_lead(members: Members) -> None:
    program = follower()
    assert program.leads(program.member(f"h:1={members.url}/db1"))
    assert not program.leads(program.member(f"h:1={members.url}/db2"))
    assert not program.leads(program.member("h:1=http://127.0.0.1:1"))
    for wrong in ("h=http://x", "h:1", "h:x=http://x", ":1=http://x", "h:1=ftp://x"):
        with pytest.raises(Exception, match="HOST:PORT=URL"):
            program.member(wrong)
