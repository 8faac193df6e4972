"""The rules of jobs against a plain model, seed after seed, with crashes at every named point of the commit path.

    python -m tests.jobs.model --seeds 1000

Exit code 1 if any run differs from the model; a seed is a run that can be repeated with --first.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.jobs.model.simulation import STEPS, Simulation


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    seen: Counter[str] = Counter()
    steps = crashes = faults = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        verdict = Simulation(seed, asked.steps).run()
        print(f"\rseed {seed}", end="", file=sys.stderr, flush=True)
        for fault in verdict.faults:
            print(f"\nseed {seed}: {fault}")
        steps, crashes, faults = steps + verdict.steps, crashes + verdict.crashes, faults + bool(verdict.faults)
        seen += verdict.seen
    print(f"\n{asked.seeds} seeds, {steps} steps, {seen.total()} answers and notes, {crashes} crashes: {faults} differ")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
