"""The rules of deltas against a plain model, and three clients with databases that must end equal, seed after seed.

    python -m tests.deltas.model --runs 500

Each seed is one random history, with crashes at every named point of the commit path and clocks that are set back and
ahead; two runs of three clients on a line that loses requests and answers, in one of which they make the same rows; and
two of clients that lose their databases and begin again, in one of which sync rules say who sees what; and four of
replicas of the SDK, which speak the plain dialect, beside another client, on a log that is cut and under rules. Exit
code 1 if any differs from the model; what failed is printed as short as it can be made, and can be repeated with
--first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial

from tests.deltas.model.devices import Devices
from tests.deltas.model.fleet import Fleet
from tests.deltas.model.shrink import Maker, shrunk
from tests.deltas.model.simulation import Simulation
from tests.deltas.rules.crowd import Crowd

MOST_SHOWN = 5


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args()
    seen: Counter[str] = Counter()
    steps = crashes = faults = 0
    began = time.monotonic()
    for seed in range(asked.first, asked.first + asked.runs):
        makers: dict[str, Maker] = {
            "history": partial(Simulation, seed),
            "clients": partial(Fleet, seed),
            "clients with rows in common": partial(Fleet, seed, reuses_rows=True),
            "clients that begin again": partial(Crowd, seed),
            "clients under sync rules": partial(Crowd, seed, has_rules=True),
            "devices": partial(Devices, seed),
            "devices with rows in common": partial(Devices, seed, reuses_rows=True),
            "devices on a log that is cut": partial(Devices, seed, reuses_rows=True, cuts_log=True),
            "devices under sync rules": partial(Devices, seed, reuses_rows=True, has_rules=True),
        }
        for name, make in makers.items():
            verdict = make().run()
            steps, crashes = steps + verdict.steps, crashes + verdict.crashes
            seen += verdict.seen
            if verdict.faults:
                faults += 1
                print(f"\n{name} of seed {seed}: {shrunk(make) if faults <= MOST_SHOWN else verdict.faults[0]}")
        print(f"\rseed {seed}", end="", file=sys.stderr, flush=True)
    print(f"\n{', '.join(f'{name} {count}' for name, count in sorted(seen.items()))}")
    seconds = time.monotonic() - began
    print(f"{asked.runs} seeds, {steps} steps, {crashes} crashes in {seconds:.0f} s: {faults} runs differ")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
