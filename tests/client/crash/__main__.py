"""Kill the process of a replica while it writes, pushes and pulls, again and again, and check every change it made.

    python -m tests.client.crash --kills 100

Exit code 1 if a change that was on disk is not at the server or is there twice, or if the replica and somebody new see
other rows in the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.client.crash.run import live
from tests.harness.server import RunningServer


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder) / "data") as server:
        verdict = live(Path(folder), server.url, "crash", asked.kills, asked.seed)
    print(f"{asked.kills} kills in {time.monotonic() - began:.0f} s, {verdict.made} changes")
    print(f"lost {len(verdict.lost)}, doubled {len(verdict.doubled)}, wrong {verdict.wrong or 'nothing'}")
    return 1 if verdict.lost or verdict.doubled or verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
