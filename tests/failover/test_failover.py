"""A short failover run in every test run, `make nightly NAME=failover` does twenty."""

from __future__ import annotations

from pathlib import Path

from tests.failover.pair import Manner, Round
from tests.failover.run import StreamsUnderFailovers
from tests.harness.crash.run import POSTGRES, CrashPlan, check_lives


class StreamsUnderTwoFailovers(StreamsUnderFailovers):
    """One round with the standby behind, and one with answers lost; outages that outlast the nodes are nightly."""

    order = (Round(Manner.KILL, is_behind=True), Round(Manner.HANG, is_mute=True))


def test_nothing_is_lost_doubled_or_answered_otherwise(tmp_path: Path) -> None:
    check_lives(StreamsUnderTwoFailovers, CrashPlan(tmp_path, 2, POSTGRES, seed=7))
