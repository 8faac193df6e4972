"""End lives under load, again and again, and check every answer: `python -m tests.harness.crash jobs --kills 100`.

Exit code 1 if anything was lost, doubled or told otherwise, or if nothing was shown. Each surface says what it means by
that in the module of its verdict.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tests.harness.crash.run import CrashPlan, CrashRun, Surface
from tests.harness.crash.surfaces import CRASHES, OTHERS

SHOWN = 20


def surface_of(name: str) -> type[Surface]:
    """The class of that name."""
    module, _, attribute = (CRASHES | OTHERS)[name].partition(":")
    found: type[Surface] = getattr(import_module(module), attribute)
    return found


def main(words: list[str]) -> int:
    """Run and print; the exit code."""
    if not words or words[0] not in CRASHES | OTHERS:
        sys.exit(f"There is no {' '.join(words[:1])!r} here; take one of: {' '.join(CRASHES | OTHERS)}")
    kind = surface_of(words[0])
    parser = argparse.ArgumentParser(prog=f"python -m tests.harness.crash {words[0]}", description=kind.__doc__)
    parser.add_argument("--kills", "--rounds", "--cuts", dest="kills", type=int, default=kind.kills)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=kind.stores, default=kind.stores[0])
    kind.add_options(parser)
    asked = parser.parse_args(words[1:])
    began = time.monotonic()

    def report(done: int, what: str) -> None:
        seconds = time.monotonic() - began
        print(f"{done} of {asked.kills}, {seconds:.0f} s: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        surface = kind(CrashPlan(Path(folder), asked.kills, asked.store, asked.seed, report, asked))
        verdict = CrashRun(surface).run()
    print(f"{words[0]}: {asked.kills} lives on {asked.store} in {time.monotonic() - began:.0f} s: {verdict}")
    for line in (*surface.lines(), *verdict.faults[:SHOWN]):
        print(f"  {line}")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
