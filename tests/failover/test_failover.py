"""A short failover run in every test run, one of each sort; `make nightly NAME=failover` does twenty."""

from __future__ import annotations

from pathlib import Path

from tests.failover.pair import Pair
from tests.failover.run import NODES, ORDER, FailoverRun

ROUNDS = 4  # with the standby behind, with answers lost, one that hangs, and one that outlasts the nodes' patience


def test_nothing_is_lost_doubled_or_answered_otherwise(tmp_path: Path) -> None:
    outcome = FailoverRun(tmp_path, Pair(NODES), ORDER, ROUNDS, seed=7).run()
    assert outcome.verdict.is_clean, str(outcome.verdict)
    assert outcome.verdict.retried > 0, "no append was ever interrupted: the run has shown nothing"
