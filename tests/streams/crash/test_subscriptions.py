"""Subscriptions under `kill -9`: no wake is lost, no ack is undone, and nothing is skipped.

A short run in every test run; `make crash SURFACE=subscriptions` kills as often as you like.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.crash.run import CrashPlan, check_lives
from tests.streams.crash.subscriptions import SubscriptionsUnderKills


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_wake_is_lost_and_no_ack_is_undone(tmp_path: Path, store: str) -> None:
    check_lives(SubscriptionsUnderKills, CrashPlan(tmp_path, 4, store, seed=3))
