"""A command whose processes stand still now and then: one of them, or all as when a machine does.

For tests: what fails in here and not otherwise goes by a time where it should wait for what it is about, or has found
a race. Only processes of the command are stopped, and all of them go on at the end, whatever that is.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time

from tests.harness.processes import family_of, is_running, send_all

SHORTEST_SECONDS = 0.2
ALL_OF_TEN = 4
"""So many standstills of ten are of the whole family."""


class Stutter:
    """Stops processes of a family, and lets them go on."""

    def __init__(self, first: int, longest: float, chance: random.Random) -> None:
        self._first = first
        self._longest = longest
        self._chance = chance
        self.standstills = 0

    def stand_still(self) -> None:
        """Stop one process, or all, for a while; those that somebody else has stopped are left alone."""
        family = [pid for pid in family_of(self._first) if is_running(pid)]
        if not family:
            return
        chosen = family if self._chance.randrange(10) < ALL_OF_TEN else [self._chance.choice(family)]
        try:
            send_all(chosen, signal.SIGSTOP)
            time.sleep(self._chance.uniform(SHORTEST_SECONDS, self._longest))
        finally:
            send_all(chosen, signal.SIGCONT)
        self.standstills += 1


def run(command: list[str], longest: float, every: float, seed: int) -> int:
    """Run a command to its end; its exit code."""
    chance = random.Random(seed)
    process = subprocess.Popen(command)
    stutter = Stutter(process.pid, longest, chance)
    try:
        while process.poll() is None:
            try:
                process.wait(chance.uniform(0, 2 * every))
            except subprocess.TimeoutExpired:
                stutter.stand_still()
    except KeyboardInterrupt:
        process.wait()
    print(f"{stutter.standstills} standstills, seed {seed}", file=sys.stderr)
    return process.returncode


def main() -> int:
    """`python -m tests.harness.stutter [--longest SECONDS] [--every SECONDS] [--seed N] -- COMMAND...`."""
    parser = argparse.ArgumentParser(prog="tests.harness.stutter", description=__doc__)
    parser.add_argument("--longest", type=float, default=3.0, help="of a standstill, in seconds (default: 3)")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two of them, roughly (default: 4)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="for whom and when")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    return run(given.command, given.longest, given.every, given.seed)


if __name__ == "__main__":
    sys.exit(main())
