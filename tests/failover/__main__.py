"""`make failover`: a PostgreSQL that fails over under two nodes, twenty times, and what became of every append."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.failover.run import ORDER, FailoverRun


def main() -> None:
    """Run and print; exit code 1 unless all three lists are empty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()

    def report(done: int, what: str) -> None:
        print(f"failed over {done} of {asked.rounds}: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        outcome = FailoverRun(Path(folder), asked.rounds, asked.seed, report).run()
    print(f"{asked.rounds} rounds; {outcome.verdict}")
    _print_pauses("all", [seconds for _, seconds in outcome.pauses])
    for what in ORDER:
        _print_pauses(str(what), [seconds for one, seconds in outcome.pauses if one == what])
    for kind in ("lost", "doubled", "differing"):
        for name in getattr(outcome.verdict, kind)[:10]:
            print(f"  {kind}: {name}")
    sys.exit(0 if outcome.verdict.is_clean else 1)


def _print_pauses(what: str, seconds: Sequence[float]) -> None:
    if seconds:
        told = f"median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"
        print(f"nothing acknowledged, {what} ({len(seconds)}): {told}")


if __name__ == "__main__":
    main()
