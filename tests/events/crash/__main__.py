"""Kill a server under a load of events, again and again, and check every acknowledged id.

    python -m tests.events.crash --kills 100 --store sqlite

Every other death is the server's own, at a named point of the commit path. Exit code 1 if anything was lost, doubled,
reused or told otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.events.model.cast import writing_cast
from tests.events.model.simulation import Plan, Simulation

SECONDS_A_KILL = 0.6


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()

    def report(done: int) -> None:
        print(f"\rkilled {done} of {asked.kills}", end="", file=sys.stderr, flush=True)

    crashes = asked.kills // 2
    plan = Plan(asked.store, asked.kills * SECONDS_A_KILL, kills=asked.kills - crashes, crashes=crashes)
    with tempfile.TemporaryDirectory() as folder:
        verdict = Simulation(Path(folder), plan, asked.seed, writing_cast, report).run()
    print(f"\n{asked.kills} kills on {asked.store}: {verdict}")
    for fault in verdict.faults:
        print(f"  {fault}")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
