"""A shop whose parts are killed: one order, one charge, one shipment, one event and one bill for each request."""

from __future__ import annotations

from pathlib import Path

from tests.harness.crash.run import CrashPlan, check_lives
from tests.once.shop.run import ShopUnderKills


def test_each_order_is_there_once_whatever_is_killed(tmp_path: Path) -> None:
    """The tenth kill is one of everything."""
    check_lives(ShopUnderKills, CrashPlan(tmp_path, kills=10, seed=7))
