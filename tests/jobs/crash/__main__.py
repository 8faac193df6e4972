"""Kill servers and workers under a load of jobs, again and again, and check every key, every lease and every end.

    python -m tests.jobs.crash --kills 100 --store sqlite

Every other death of a server is its own, at a named point of the commit path. Exit code 1 if a key has two jobs, an
acknowledged job is missing, a job ended twice or otherwise than was told, or a dead token was taken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.jobs.crash.run import CrashRun, Plan


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()

    def report(done: int) -> None:
        print(f"\rkilled {done} of {asked.kills}", end="", file=sys.stderr, flush=True)

    plan = Plan(asked.store, asked.kills, nodes=2 if asked.store == "postgres" else 1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        verdict = CrashRun(Path(folder), plan, asked.seed, report).run()
    print(f"\n{asked.kills} kills on {asked.store} in {time.monotonic() - began:.0f} s: {verdict}")
    print(f"{verdict.jobs / max(1, asked.kills):.1f} jobs a kill")
    for fault in verdict.faults:
        print(f"  {fault}")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
