"""Subscriptions under `kill -9`: no wake is lost, no ack is undone, and nothing is skipped.

A short run in every test run; `make crash SURFACE=subscriptions` kills as often as you like.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.streams.crash.subscriptions import SubscriptionCrashRun


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_wake_is_lost_and_no_ack_is_undone(tmp_path: Path, store: str) -> None:
    run = SubscriptionCrashRun(tmp_path, store, kills=3, crashes=3, seed=3)
    faults = run.run()
    assert not faults, "\n".join(faults[:20])
    assert run.appended
    assert run.retries > 0, "no call was ever interrupted: the run has shown nothing"
    assert all(record.wakes for record in run.records.values())
