"""A life that is to end at a point either ends there, or is counted as a miss that fails its run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.harness import lives
from tests.harness.lives import PointLives
from tests.harness.server import RunningServer
from tests.streams.crash.verdict import Verdict


def test_f1_a_point_that_no_server_died_at_is_a_miss_and_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No server has come as far as an answer of its own writes when it is ended here.
    monkeypatch.setattr(lives, "POINTS", ("answered",))
    monkeypatch.setattr(lives, "POINT_SECONDS", (0.0, 0.0))
    seen = PointLives(random.Random(1), (1,))
    seen.end_next(RunningServer(tmp_path / "data"))
    assert seen.missed == ["answered"]
    assert not Verdict(missed=seen.missed).is_clean
