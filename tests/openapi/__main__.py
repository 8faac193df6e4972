"""A long run of schemathesis: `make nightly NAME=openapi`, each run with a seed and a server of its own."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.harness.server import RunningServer
from tests.openapi.fuzz import run


def main() -> int:
    """Run until a run finds something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with RunningServer(folder / "data", env={"SEMEL_TOKEN_REQUIRED": "0"}) as server:
                report = run(server.url, folder, examples=given.examples, seed=seed, phases="coverage,fuzzing")
        if report.code:
            print(report.text)
            print(f"seed {seed}: an answer that the document does not have")
            return 1
        print(f"seed {seed}: every answer as the document says", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
