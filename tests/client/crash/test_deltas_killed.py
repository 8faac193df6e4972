"""A replica whose process is killed again and again: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from pathlib import Path

from tests.client.crash.run import live
from tests.client.names import fresh
from tests.harness.server import RunningServer

LIVES = 5


def test_nothing_is_lost_and_nothing_happens_twice(server: RunningServer, tmp_path: Path) -> None:
    verdict = live(tmp_path, server.url, fresh("gw"), LIVES, seed=7)
    assert verdict.made > LIVES
    assert (verdict.lost, verdict.doubled, verdict.wrong) == ([], [], [])
