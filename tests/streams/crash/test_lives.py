"""A life that is to end at a point either ends there, or is counted as a miss that fails its run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.harness import lives
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Kills
from tests.harness.lives import PointLives
from tests.harness.server import RunningServer


def test_f1_a_point_that_no_server_died_at_is_a_miss_and_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No server has come as far as an answer of its own writes when it is ended here.
    monkeypatch.setattr(lives, "POINTS", ("answered",))
    monkeypatch.setattr(lives, "POINT_SECONDS", (0.0, 0.0))
    seen, verdict = PointLives(random.Random(1), (1,)), Verdict()
    server = RunningServer(tmp_path / "data")
    seen.end_next(server)
    Kills([server], random.Random(1), seen, (0.0, 0.0)).judge(verdict)
    assert verdict.faults == ["no server died at ['answered']: nothing was shown about that"]


def test_a_run_that_has_shown_nothing_has_failed() -> None:
    verdict = Verdict()
    verdict.count("appends", 3)
    verdict.require_shown(["appends", "interrupted"])
    assert verdict.faults == ["interrupted: none, so the run has shown nothing about them"]
