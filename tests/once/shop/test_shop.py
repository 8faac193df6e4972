"""A shop whose parts are killed: one order, one charge, one shipment, one event and one bill for each request."""

from __future__ import annotations

from pathlib import Path

from tests.once.shop.run import kill_parts


def test_each_order_is_there_once_whatever_is_killed(tmp_path: Path) -> None:
    verdict = kill_parts(tmp_path, kills=10, seed=7)
    assert verdict.is_right, verdict
    assert verdict.kills["everything"] == 1
