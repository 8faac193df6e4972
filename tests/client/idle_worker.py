"""A worker in a process of its own, for tests that freeze it: writes down the params of every job that it runs.

python -m tests.client.idle_worker URL FILE KIND...
"""

from __future__ import annotations

import sys
from pathlib import Path

from semel.client import Job, Worker


def main(url: str, file: str, *kinds: str) -> None:
    """Run until the process is ended."""
    worker = Worker(url, lease=3, poll=30.0, grace=0.0)

    def run(job: Job) -> str:
        with Path(file).open("a") as ran:
            ran.write(f"{job.params['name']}\n")
        return "done"

    for kind in kinds:
        worker.job(kind)(run)
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
