"""A real synchronous standby that hangs, receives nothing, or does not replay: the lag in metrics, and `/readyz`.

A standby that stands still stays connected, so its number says nothing: only the confirmed position tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.store.postgres.standby import SILENT_SECONDS, STALL_SECONDS, StallWatch, StandbyFacts
from tests.failover.pair import Pair
from tests.harness.server import RunningServer
from tests.harness.together import eventually

TEXT = {"Content-Type": "text/plain"}
LAG_SECONDS, LAG_BYTES = "semel_store_replica_lag_seconds", "semel_store_replica_lag_bytes"


class StandbySite:
    """A server over a primary whose commits wait for a standby."""

    def __init__(self, pair: Pair, server: RunningServer) -> None:
        self.pair = pair
        self.url = server.url
        self._caller = ThreadPoolExecutor(1)
        httpx.put(f"{self.url}/v1/stream/s", headers=TEXT).raise_for_status()

    def write(self) -> httpx.Response:
        """One append, which may wait for long."""
        return httpx.post(f"{self.url}/v1/stream/s", content=b"x" * 1_000, headers=TEXT, timeout=120)

    def begin_write(self) -> Future[httpx.Response]:
        """The same in a thread."""
        return self._caller.submit(self.write)

    def reasons(self) -> list[str]:
        """Why it is not ready."""
        answer = httpx.get(f"{self.url}/readyz", timeout=60)
        found = [one["reason"] for one in answer.json().get("reasons", [])]
        assert (answer.status_code == 200) is (found == [])
        return found

    def metric(self, name: str) -> float:
        """One metric."""
        return float(httpx.get(f"{self.url}/metrics", timeout=60).json()[name])

    def settles(self) -> None:
        """Wait until nothing is wrong."""
        eventually(lambda: self.reasons() == [], "it is ready")
        eventually(lambda: self.lag() == (0, 0), "the standby has caught up, in bytes and in time")

    def lag(self) -> tuple[float, float]:
        """Bytes and seconds, of one look: the primary also writes by itself."""
        found = httpx.get(f"{self.url}/metrics", timeout=60).json()
        return float(found[LAG_BYTES]), float(found[LAG_SECONDS])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbySite]:
    folder: Path = tmp_path_factory.mktemp("standby")
    with Pair(1) as pair, RunningServer(folder / "data", env={"SEMEL_STORE": pair.primary.url}) as server:
        yield StandbySite(pair, server)


def test_a_standby_that_keeps_up_has_no_lag_and_is_ready(site: StandbySite) -> None:
    assert site.write().status_code == 204
    site.settles()
    assert site.metric("semel_store_replicas") == 1


def test_a_standby_that_hangs_is_a_lag_and_not_ready_until_it_goes_on(site: StandbySite) -> None:
    site.settles()
    site.pair.standby.pause()
    try:
        waiting = site.begin_write()
        eventually(lambda: "standby stalled" in site.reasons(), "a write would hang, and that is told")
        assert site.pair.primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)]
        assert site.metric(LAG_BYTES) > 1_000
        eventually(lambda: site.metric(LAG_SECONDS) > 2, "the lag grows although the standby is silent")
        assert not waiting.done() or waiting.result().status_code == 503
    finally:
        site.pair.standby.resume()
    waiting.result(120)
    site.settles()
    assert site.write().status_code == 204


def test_a_paused_replay_is_a_lag_and_ready_while_commits_do_not_wait_for_it(site: StandbySite) -> None:
    site.settles()
    site.pair.standby.execute("SELECT pg_wal_replay_pause()")
    try:
        assert site.write().status_code == 204, "it is on the disk of the standby, which is what a commit waits for"
        eventually(lambda: site.metric(LAG_BYTES) > 1_000, "what is not applied is a lag")
        eventually(lambda: site.metric(LAG_SECONDS) > STALL_SECONDS, "and the lag grows")
        assert site.reasons() == []
    finally:
        site.pair.standby.execute("SELECT pg_wal_replay_resume()")
    site.settles()


def test_a_paused_replay_is_not_ready_where_commits_wait_for_it(site: StandbySite) -> None:
    site.settles()
    site.pair.primary.set("synchronous_commit", "remote_apply")
    site.pair.standby.execute("SELECT pg_wal_replay_pause()")
    try:
        waiting = site.begin_write()
        eventually(lambda: "standby stalled" in site.reasons(), "a write would hang, and that is told")
    finally:
        site.pair.standby.execute("SELECT pg_wal_replay_resume()")
        site.pair.primary.set("synchronous_commit", "on")
    waiting.result(120)
    site.settles()


# ---- The rule alone ----


def facts(written: int, progress: str, names: str = "a") -> StandbyFacts:
    return StandbyFacts(names, "on", 2, 2, 2, written, progress)


@pytest.mark.parametrize(
    ("looks", "is_flaw"),
    [
        ([(0, facts(100, "100 0")), (60, facts(100, "100 0"))], False),  # nothing new is written
        ([(0, facts(100, "100 0")), (60, facts(200, "100 0"))], True),
        ([(0, facts(200, "100 0")), (STALL_SECONDS - 0.1, facts(200, "100 0"))], False),
        ([(0, facts(200, "100 0")), (STALL_SECONDS, facts(200, "100 0"))], True),
        ([(0, facts(200, "100 0")), (60, facts(300, "150 0"))], False),  # it moves
        ([(0, facts(200, "200 0,100 0")), (60, facts(300, "300 0,100 0"))], False),  # one of two is enough
        ([(0, facts(200, "200 0,100 0", "2 (a, b)")), (60, facts(300, "300 0,100 0", "2 (a, b)"))], True),
        ([(0, facts(200, "100 0", "")), (60, facts(200, "100 0", ""))], False),
        ([(0, facts(200, "")), (60, facts(200, ""))], False),  # missing, which is told otherwise
        ([(0, facts(100, f"100 {SILENT_SECONDS - 1}"))], False),
        ([(0, facts(100, f"100 {SILENT_SECONDS}"))], True),
    ],
)
def test_standbys_that_stand_still(looks: list[tuple[float, Any]], is_flaw: bool) -> None:
    watch = StallWatch()
    told = [watch.flaw(look, at) for at, look in looks]
    assert bool(told[-1]) is is_flaw
