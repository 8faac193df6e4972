"""Cut the power of a server again and again, and hold what is left against a model.

    python -m tests.store.powercut --cuts 1000

Exit code 1 if an answered write was lost or doubled, if part of an unanswered one was kept, if a retry was answered
otherwise, or if the file or its key index is not whole.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.store.powercut.history import CutVerdict, History


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    verdict, seed = CutVerdict(), asked.seed
    while verdict.cuts.total() < asked.cuts:
        asyncio.run(History(seed, verdict).run())
        seed += 1
        print(f"\r{verdict.cuts.total()} of {asked.cuts}, seed {seed}", end="", file=sys.stderr, flush=True)
    print(f"\n{verdict}")
    for fault in verdict.faults[:50]:
        print(f"  {fault}")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
