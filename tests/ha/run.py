"""The clients and the verdict of failovers, over a Patroni cluster: faults of its members, one a round."""

from __future__ import annotations

import argparse
from typing import Any

from tests.failover.run import NODES, StreamsUnderFailovers
from tests.ha.cluster import Fault, Layout, PatroniCluster
from tests.harness.crash.run import CrashPlan
from tests.harness.crash.ways import Database


class StreamsUnderFaults(StreamsUnderFailovers):
    """Nothing is lost, doubled or answered otherwise, whichever member of the cluster fails."""

    order = tuple(Fault)

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """How nodes reach the leader, and which faults there are."""
        parser.add_argument("--layout", type=Layout, choices=list(Layout), default=Layout.DIRECT)
        parser.add_argument("--only", type=Fault, choices=list(Fault), default=None, help="this kind of round alone")

    def make_database(self, plan: CrashPlan) -> Database[Any]:
        """The cluster."""
        if plan.options.only is not None:
            self.order = (plan.options.only,)
        return PatroniCluster(plan.options.layout, NODES)
