"""`make nightly NAME=law`: measure the law of the event loop, and print a table.

Every case has a server of its own. The law: no request within the limits holds the loop for more than 50 ms of CPU,
or takes more than 4 times its body plus 16 MiB of memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.law import (
    deltas_cases,
    event_reads_cases,
    events_cases,
    jobs_cases,
    ledger_cases,
    streams_cases,
    subscriptions_cases,
)
from tests.law.case import Case
from tests.law.rig import HOLD_MS, MIB, Cost, watched

HEAD = """\
| surface | wire | limit | worst shape | loop CPU | body or answer | memory | within the law |
|---|---|---|---|---|---|---|---|"""
MODULES = (streams_cases, subscriptions_cases, events_cases, event_reads_cases, jobs_cases, ledger_cases, deltas_cases)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]


def measure(case: Case) -> tuple[Cost, int]:
    """What it takes of a fresh server, and the size of its body or answer."""
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder)) as server:
        request = case.make(server)
        sizes: list[int] = []
        cost = server.cost_of(lambda: sizes.append(request()))
        return cost, sizes[0]


def is_within(cost: Cost, size: int) -> bool:
    """Whether the law holds."""
    return cost.hold_ms <= HOLD_MS and cost.memory_bytes <= cost.allowed_bytes(size)


def row(case: Case, cost: Cost, size: int) -> str:
    """One line of the table."""
    memory, allowed = cost.memory_bytes / MIB, cost.allowed_bytes(size) / MIB
    verdict = "yes" if is_within(cost, size) else "**no**"
    facts = f"{cost.hold_ms:.0f} ms | {size / MIB:.1f} MiB | {memory:.0f} of {allowed:.0f} MiB | {verdict}"
    return f"{named(case)} {facts} |"


def named(case: Case) -> str:
    """The beginning of its line, which no other case has."""
    surface, _, wire = case.surface.partition(", ")
    return f"| {surface} | {wire or 'HTTP'} | {case.limit} | {case.shape} |"


def main() -> int:
    """Measure all cases, or those whose name has a word in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure cases with this text in their name")
    wanted = parser.parse_args().only
    assert len({named(case) for case in CASES}) == len(CASES)
    broken = 0
    print(HEAD)
    for case in CASES:
        if wanted not in case.name:
            continue
        cost, size = measure(case)
        broken += not is_within(cost, size)
        print(row(case, cost, size), flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
