"""`make nightly NAME=failover`: a PostgreSQL fails over under two nodes, twenty times, and every append is judged."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.failover.pair import Pair
from tests.failover.report import lines
from tests.failover.run import NODES, ORDER, FailoverRun


def main() -> None:
    """Run and print; exit code 1 unless every list is empty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()

    def report(done: int, what: str) -> None:
        print(f"failed over {done} of {asked.rounds}: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        outcome = FailoverRun(Path(folder), Pair(NODES), ORDER, asked.rounds, asked.seed, report).run()
    print("\n".join(lines(outcome, ORDER)))
    sys.exit(0 if outcome.verdict.is_clean else 1)


if __name__ == "__main__":
    main()
