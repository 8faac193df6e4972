"""What a node confirms is on disk, and on a named standby, whatever the settings of PostgreSQL become meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.store.open import open_store
from semel.store.protocol import Changes, CommitUnknownError, Lock, Store, StoreError
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import Semel
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer
from tests.harness.together import eventually

UNWRITTEN = {"wal_writer_delay": "10000"}
"""Milliseconds for which a commit that is not waited for is in the memory of PostgreSQL alone."""
TEXT = {"Content-Type": "text/plain"}
STREAM = "/v1/stream/s"
SECONDS = 60.0
_numbers = itertools.count(1)


@contextmanager
def node(folder: Path, url: str) -> Iterator[RunningServer]:
    """A server with an empty stream."""
    with RunningServer(folder / "data", env={"SEMEL_STORE": url, "SEMEL_SWEEP_INTERVAL_MS": "3600000"}) as server:
        httpx.put(server.url + STREAM, headers=TEXT, timeout=SECONDS).raise_for_status()
        yield server


def append(server: RunningServer, number: int) -> httpx.Response:
    headers = TEXT | {"Idempotency-Key": str(number)}
    return httpx.post(server.url + STREAM, content=f"{number}\n", headers=headers, timeout=SECONDS)


def reasons(server: RunningServer) -> list[str]:
    told: dict[str, Any] = httpx.get(server.url + "/readyz", timeout=SECONDS).json()
    return [one["reason"] for one in told.get("reasons", ())]


def fresh_role(cluster: Cluster, setting: str) -> str:
    """A role with a setting of its own."""
    role = f"role_{next(_numbers)}"
    cluster.execute(f"CREATE ROLE {role} LOGIN")
    cluster.execute(f"GRANT CREATE ON DATABASE postgres TO {role}")
    cluster.execute(f"ALTER ROLE {role} SET {setting}")
    return role


@pytest.mark.parametrize("switched", ["while the node runs", "for its role"])
def test_what_is_confirmed_survives_a_crash_though_synchronous_commit_is_off(switched: str, tmp_path: Path) -> None:
    with Cluster(settings=UNWRITTEN) as cluster:
        url = cluster.url
        if switched == "for its role":
            url = url.replace("semel@", f"{fresh_role(cluster, 'synchronous_commit = off')}@")
        with node(tmp_path, url) as server:
            append(server, 0).raise_for_status()
            if switched == "while the node runs":
                cluster.set("synchronous_commit", "off")
            for number in range(1, 6):
                append(server, number).raise_for_status()
            cluster.kill()
            cluster.start()
            eventually(lambda: httpx.get(server.url + STREAM).status_code == 200, "the node reads again")
            told = httpx.get(server.url + STREAM, timeout=SECONDS).text
            assert told == "".join(f"{number}\n" for number in range(6))
            retries = [append(server, number) for number in range(6)]
            assert [one.headers.get("Idempotency-Replayed") for one in retries] == ["true"] * 6
        checked = Semel("http://127.0.0.1:1").here("check", "--store", url)
        assert checked.code == 0, checked.out


def write(store: Store) -> None:
    tx = store.begin([Lock(b"one")])
    try:
        tx.flush(Changes({}, {}, {}))
        tx.commit()
    finally:
        tx.rollback()


@pytest.mark.parametrize("whose", ["server", "role", "session"])
def test_a_commit_waits_for_the_named_standby_though_synchronous_commit_is_local(whose: str) -> None:
    """Nothing is confirmed, and nothing but a confirmed commit is shown."""
    with Cluster() as cluster:
        url = f"{cluster.url}?patience_ms=1000"
        if whose == "role":
            url = url.replace("semel@", f"{fresh_role(cluster, 'synchronous_commit = local')}@")
        if whose == "session":
            url += "&options=-c%20synchronous_commit%3Dlocal"
        with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
            write(store)
            if whose == "server":
                cluster.set("synchronous_commit", "local")
            cluster.set("synchronous_standby_names", "standby")
            with pytest.raises((StoreError, CommitUnknownError)):
                write(store)
            cluster.set("synchronous_standby_names", "")
            write(store)


def test_a_node_takes_no_writes_while_postgresql_does_not_sync(tmp_path: Path) -> None:
    """Without fsync nothing that is confirmed is on disk. What was stored before is read and replayed."""
    with Cluster() as cluster, node(tmp_path, cluster.url) as server:
        first = append(server, 1)
        cluster.set("fsync", "off")
        eventually(lambda: reasons(server) == ["unsafe database"], "the node has noticed")
        for _ in range(2):
            refused = append(server, 2)
            assert (refused.status_code, refused.json()["code"]) == (503, "NOT_STORED")
            again = append(server, 1)
            assert (again.status_code, again.headers["Idempotency-Replayed"]) == (204, "true")
            assert again.headers["Stream-Next-Offset"] == first.headers["Stream-Next-Offset"]
        assert httpx.get(server.url + STREAM, timeout=SECONDS).text == "1\n"
        cluster.set("fsync", "on")
        eventually(lambda: reasons(server) == [], "the node is ready again")
        assert append(server, 2).status_code == 204
        assert httpx.get(server.url + STREAM, timeout=SECONDS).text == "1\n2\n"
