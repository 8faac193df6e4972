"""`/readyz` has a reason for each thing that makes a server unfit for writes; on real servers where possible."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from semel.kernel.clock import HOLD_MS
from semel.server.ops import health_watch
from semel.server.ops.health_watch import HealthLook, HealthWatch
from semel.server.ops.self_check import judge_sqlite, sqlite_flaw
from semel.server.settings import ServerSettings
from semel.server.settings_loader import make_settings
from semel.store.postgres.standby import StandbyFacts, standby_flaw
from semel.store.protocol import StoreError, StoreHealth
from semel.store.sqlite.data_folder import FULL_BYTES
from semel.store.sqlite.schema import OLDEST_LIBRARY
from tests.engine.toy import ToyWorld
from tests.harness.postgres.cluster import Cluster
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually

NOW = 1_709_164_800_000


def readiness(server: RunningServer) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{server.url}/readyz", timeout=60)
    return answer.status_code, answer.json()


def becomes(server: RunningServer, reason: str | None) -> dict[str, Any]:
    """Wait until the server is not ready for this reason alone, or ready; what it says then."""

    def is_so() -> bool:
        status, facts = readiness(server)
        names = [one["reason"] for one in facts.get("reasons", [])]
        return (status, names) == ((200, []) if reason is None else (503, [reason]))

    eventually(is_so, f"readiness is {reason or 'ready'}")
    return readiness(server)[1]


def test_a_disk_with_too_little_room(tmp_path: Path) -> None:
    config = tmp_path / "semel.toml"
    config.write_text("")
    with RunningServer(tmp_path / "data", env={"SEMEL_CONFIG": str(config)}) as server:
        config.write_text(f"ready_free_bytes = {2**62}")
        os.kill(server.pid, signal.SIGHUP)
        facts = becomes(server, "disk full")
        assert facts["reason"] == "disk full"
        (reason,) = facts["reasons"]
        assert reason["found"].startswith("the disk of the database has ")
        assert str(server.data) not in str(facts), "no path is told to a caller without a credential"
        assert reason["advice"].startswith("Free some disk space")
        assert httpx.get(f"{server.url}/livez").status_code == 200
        created = httpx.put(f"{server.url}/v1/stream/s", headers={"Content-Type": "application/json"})
        assert created.status_code == 201, "it is advice for a load balancer, and refuses nothing"
        config.write_text("")
        os.kill(server.pid, signal.SIGHUP)
        assert becomes(server, None) == {"status": "ready"}


def test_a_clock_that_jumps_ahead_and_back(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    with RunningServer(tmp_path / "data", env={"SEMEL_CLOCK_FILE": str(clock)}) as server:
        becomes(server, None)
        clock.write_text("7200000")
        facts = becomes(server, "clock jumped")
        assert "jumped ahead by 7" in facts["reasons"][0]["found"]
        clock.write_text("0")
        becomes(server, None)


def test_a_clock_that_disagrees_with_the_database(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    env = {"SEMEL_CLOCK_FILE": str(clock), "SEMEL_STORE": fresh_url(), "SEMEL_READY_CLOCK_MS": "60000"}
    with RunningServer(tmp_path / "data", env=env) as server:
        clock.write_text("-90000")  # not before it has been ready once: its first look may come at once
        facts = becomes(server, "clocks disagree")
        assert "behind that of the database" in facts["reasons"][0]["found"]


def test_a_synchronous_standby_that_is_not_there(tmp_path: Path) -> None:
    def alter(cluster: Cluster, names: str) -> None:
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            connection.execute("SELECT pg_reload_conf()")

    with Cluster() as cluster, RunningServer(tmp_path / "data", env={"SEMEL_STORE": cluster.url}) as server:
        becomes(server, None)
        alter(cluster, "missing")
        facts = becomes(server, "standby missing")
        assert "commits wait for 1 synchronous standby, and 0 are connected" in facts["reasons"][0]["found"]
        alter(cluster, "")
        becomes(server, None)


@pytest.mark.parametrize(
    ("facts", "is_flaw"),
    [
        (StandbyFacts("", "on", 0, 0, 0), False),
        (StandbyFacts("a", "on", 0, 0, 0), True),
        (StandbyFacts("a", "on", 1, 1, 1), False),
        (StandbyFacts("a", "on", 1, 1, 0), True),
        (StandbyFacts("a", "on", 1, 0, 0), False),
        (StandbyFacts("FIRST 2 (a, b, c)", "on", 2, 2, 1), True),
        (StandbyFacts("ANY 2 (a, b, c)", "on", 2, 2, 2), False),
        (StandbyFacts(" 2 (a, b)", "on", 1, 0, 0), True),
    ],
)
def test_standbys_by_what_a_user_may_see(facts: StandbyFacts, is_flaw: bool) -> None:
    assert bool(standby_flaw(facts)) is is_flaw


class Look:
    """A watch over made-up surroundings."""

    def __init__(self, folder: Path | None = None, library: str = "", **settings: Any) -> None:
        self.world = ToyWorld(NOW)
        self.health: StoreHealth | None = StoreHealth()
        made: ServerSettings = make_settings(**settings)
        self._watch = HealthWatch(HealthLook(lambda: made, folder, self.world, self._store, library))

    def reasons(self) -> list[str]:
        return [reason.reason for reason in self._watch.look()]

    def _store(self) -> StoreHealth:
        if self.health is None:
            raise StoreError("away")
        return self.health


def test_all_reasons_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(tmp_path, "SQLite 3.40.1 can lose committed data", ready_free_bytes=2 * FULL_BYTES)
    monkeypatch.setattr(health_watch, "free_bytes", lambda folder: 2 * FULL_BYTES - 1)
    look.health = StoreHealth(NOW + 60_001, "commits are lost", "commits wait")
    told = ["unsafe library", "disk full", "clocks disagree", "unsafe database", "standby missing"]
    assert look.reasons() == told
    monkeypatch.setattr(health_watch, "free_bytes", lambda folder: 2 * FULL_BYTES)
    look.health = StoreHealth(NOW + 60_000)
    assert look.reasons() == ["unsafe library"]
    look.health = None
    assert look.reasons() == ["unsafe library"], "a store that is away is told by the engine"


def test_a_disk_that_is_gone(tmp_path: Path) -> None:
    assert Look(tmp_path / "gone").reasons() == ["disk away"]
    assert Look(tmp_path / "gone", ready_free_bytes=0).reasons() == ["disk away"]


def test_a_disk_that_takes_no_writes_is_told_whatever_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Look(tmp_path, ready_free_bytes=0)
    monkeypatch.setattr(health_watch, "free_bytes", lambda folder: FULL_BYTES - 1)
    assert look.reasons() == ["disk full"]
    monkeypatch.setattr(health_watch, "free_bytes", lambda folder: FULL_BYTES)
    assert look.reasons() == []


def test_a_jump_that_the_clock_keeps_is_accepted_after_ten_minutes() -> None:
    look = Look()
    assert look.reasons() == []
    look.world.wall += 3_600_000
    assert look.reasons() == ["clock jumped"]
    look.world.pass_ms(HOLD_MS)
    assert look.reasons() == []


def test_clocks_can_be_ignored() -> None:
    look = Look(ready_clock_ms=0)
    look.health = StoreHealth(NOW + 3_600_000)
    assert look.reasons() == []


def test_the_bundled_sqlite_is_a_good_one() -> None:
    assert sqlite_flaw() == ""
    assert not judge_sqlite("3.51.2", OLDEST_LIBRARY).is_ok
