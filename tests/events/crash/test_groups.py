"""Consumer groups under `kill -9`: no event is lost, and none is delivered after its ack was answered.

A short run in every test run; `make crash SURFACE=groups` kills as often as you like.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.events.crash.groups import GroupCrashRun


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_event_is_lost_and_none_comes_again_after_its_ack(tmp_path: Path, store: str) -> None:
    run = GroupCrashRun(tmp_path, store, kills=2, crashes=3, seed=5)
    faults = run.run()
    assert not faults, "\n".join(faults[:20])
    assert run.committed
    assert run.retries > 0, "no call was ever interrupted: the run has shown nothing"
