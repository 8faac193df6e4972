"""Send a server frames that are wrong in every way there is, and hold each answer against the contract.

    python -m tests.events.fuzz --frames 100000 --seed 1

Exit code 1 if an answer is not one of those allowed, or if the server has come to harm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.events.fuzz.run import Fuzz
from tests.events.fuzz.verdict import FuzzVerdict


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()

    def report(verdict: FuzzVerdict) -> None:
        print(f"\r{verdict.frames:,} of {asked.frames:,}, {verdict.wrong} faults", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        verdict = Fuzz(Path(folder), asked.frames, asked.seed, report).run()
    print(file=sys.stderr)
    for outcome, count in verdict.outcomes.most_common():
        print(f"{count:9,}  {outcome}")
    for fault in verdict.faults:
        print(f"  {fault}")
    print(verdict)
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
