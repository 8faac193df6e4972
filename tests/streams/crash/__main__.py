"""`make crash`: a hundred kills of a real server under load, and what became of every append."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.harness.postgres.shared import fresh_url
from tests.streams.crash.run import CrashRun


def main() -> None:
    """Run and print; exit code 1 unless all lists are empty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()

    def report(done: int) -> None:
        print(f"\rkilled {done} of {asked.kills}", end="", file=sys.stderr, flush=True)

    store = fresh_url() if asked.store == "postgres" else ""
    with tempfile.TemporaryDirectory() as folder:
        verdict = CrashRun(Path(folder), asked.kills, asked.seed, report, store).run()
    print(f"\n{asked.kills} kills on {asked.store}; {verdict}")
    for kind in ("lost", "doubled", "differing", "missed"):
        for name in getattr(verdict, kind)[:10]:
            print(f"  {kind}: {name}")
    sys.exit(0 if verdict.is_clean else 1)


if __name__ == "__main__":
    main()
