"""`make crash SURFACE=forks`: kills inside of forks, deletes and their clean-up, and what is left of them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.harness.postgres.shared import fresh_url
from tests.streams.forks.run import ForksRun


def main() -> None:
    """Run and print; exit code 1 unless nothing is at fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()

    def report(done: int) -> None:
        print(f"\rkilled {done} of {asked.kills}", end="", file=sys.stderr, flush=True)

    store = fresh_url() if asked.store == "postgres" else ""
    with tempfile.TemporaryDirectory() as folder:
        verdict = ForksRun(Path(folder), asked.kills, asked.seed, report, store).run()
    print(f"\n{asked.kills} kills on {asked.store}; {verdict}")
    for point in verdict.missed:
        print(f"  no life died at {point}")
    sys.exit(0 if verdict.is_clean else 1)


if __name__ == "__main__":
    main()
