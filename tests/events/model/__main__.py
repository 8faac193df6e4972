"""Random clients against real servers that are stopped and killed, seed after seed, and what a model says of it.

    python -m tests.events.model --seeds 100 --store sqlite

Exit code 1 if any run has a fault; a seed can be run again with --first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.events.model.cast import churning_cast, whole_cast
from tests.events.model.simulation import Plan, Simulation

SECONDS = 6.0
CASTS = {"whole": whole_cast, "churning": churning_cast}


def plan_for(store: str, seconds: float) -> Plan:
    """A data folder or a database that outlives its servers sees them killed and stopped."""
    if store == "memory":
        return Plan(store, seconds)
    return Plan(store, seconds, kills=2, stops=1, crashes=1)


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--store", choices=("memory", "sqlite", "postgres", "all"), default="all")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--cast", choices=CASTS, default="whole")
    asked = parser.parse_args()
    stores = ("memory", "sqlite", "postgres") if asked.store == "all" else (asked.store,)
    events = faults = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        store = stores[seed % len(stores)]
        with tempfile.TemporaryDirectory() as folder:
            verdict = Simulation(Path(folder), plan_for(store, asked.seconds), seed, CASTS[asked.cast]).run()
        print(f"seed {seed} on {store}: {verdict}", flush=True)
        for fault in verdict.faults:
            print(f"  {fault}")
        events += verdict.events
        faults += len(verdict.faults)
    print(f"{asked.seeds} seeds, {events} events: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
