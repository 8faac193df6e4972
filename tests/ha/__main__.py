"""`make nightly NAME=ha`: faults of a Patroni cluster under two nodes with load, in rounds; every append is judged."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.failover.report import lines
from tests.failover.run import NODES, FailoverRun
from tests.ha.cluster import Fault, Layout, PatroniCluster

ORDER = tuple(Fault)


def main() -> None:
    """Run and print; exit code 1 unless every list is empty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", type=Layout, choices=list(Layout), default=Layout.DIRECT)
    parser.add_argument("--only", type=Fault, choices=list(Fault), default=None, help="this kind of round alone")
    asked = parser.parse_args()
    order = ORDER if asked.only is None else (asked.only,)
    began = time.monotonic()

    def report(done: int, what: str) -> None:
        print(f"{done} of {asked.rounds}, {time.monotonic() - began:.0f} s: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        cluster = PatroniCluster(asked.layout, NODES)
        outcome = FailoverRun(Path(folder), cluster, order, asked.rounds, asked.seed, report).run()
    print(f"layout {asked.layout.value}, {time.monotonic() - began:.0f} s")
    print("\n".join(lines(outcome, ORDER)))
    sys.exit(0 if outcome.verdict.is_clean else 1)


if __name__ == "__main__":
    main()
