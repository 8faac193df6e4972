"""Kills of servers and workers under a load of jobs.

Workers are killed beside the servers, and kill themselves in the middle of a report. Most of the load is the library's:
submitters on `Client` and `AsyncClient`, a worker on its calls, and its own worker.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.harness.caller import Line
from tests.harness.crash.run import Client, CrashPlan, Surface
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Kills
from tests.jobs.crash.journal import lines_of
from tests.jobs.crash.library_submitters import AsyncSubmitter, LibrarySubmitter
from tests.jobs.crash.submitter import Submitter
from tests.jobs.crash.verdict import REPORTS, RUNS, judge_jobs, read_books
from tests.jobs.crash.worker import CALLS, LOOP, WIRE

ROOT = Path(__file__).parents[3]
SUBMITTERS = (Submitter, LibrarySubmitter, LibrarySubmitter, AsyncSubmitter, AsyncSubmitter)
WORKERS = (WIRE, CALLS, LOOP)
"""How each worker talks: over the wire, with the calls of the library, or as the library's own worker."""
WORKER_SECONDS = (0.5, 1.5)
DRAIN_SECONDS = 90.0
LOST = "answers lost"
# Every start renews the leases that killed workers left behind, so in short lives none of them runs out: with narrow
# limits they would soon fill every slot, and nothing would happen any more.
SETTINGS = {
    "SEMEL_JOBS_MAX_QUEUE_DEPTH": "1000",
    "SEMEL_JOBS_MAX_INFLIGHT": "1000",
    "SEMEL_JOBS_RETRY_BACKOFF_BASE_MS": "40",
    "SEMEL_JOBS_RETRY_BACKOFF_CAP_MS": "400",
    "SEMEL_JOBS_DLQ_MAX_ITEMS": "1000000",
    "SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": "0",
}


class WorkerProcess:
    """One life after another under one name."""

    def __init__(self, name: str, way: str, folder: Path, ports: list[int]) -> None:
        self.name = name
        self._way = way
        self._folder = folder
        self._ports = ports
        self._life = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, drains: bool = False) -> None:
        """The next life."""
        self._life += 1
        command = [sys.executable, "-m", "tests.jobs.crash.worker", "--ports", *map(str, self._ports)]
        command += ["--name", self.name, "--life", str(self._life), "--folder", str(self._folder), "--way", self._way]
        with (self._folder / "workers.stderr").open("ab") as output:
            self._process = subprocess.Popen(
                command + ["--drains"] * drains, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def is_dead(self) -> bool:
        """Whether it has ended itself."""
        return self._process is not None and self._process.poll() is not None

    def has_noted(self, what: str) -> bool:
        """Whether a life of it has such a line in its journal."""
        journals = self._folder.glob(f"{self.name}.*.jsonl")
        return any(line["what"] == what for path in journals for line in lines_of(path))

    def kill(self) -> None:
        """End it, unless it has ended itself."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


class JobsUnderKills(Surface):
    """A key has one job, nothing acknowledged is missing, a job ends once, and a dead token is never taken."""

    settings: ClassVar = SETTINGS
    one_in = (2, 8, 30)
    long_seconds = 2.0  # a lease lasts a second, so only in the long lives can one run out
    shows = ("jobs", REPORTS, RUNS)
    shows_alone = (LOST,)

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self._folder = plan.folder
        self._submitters = [kind(f"s{number}", self.ports, plan.seed) for number, kind in enumerate(SUBMITTERS)]
        self._workers = [
            WorkerProcess(f"w{number}", way, plan.folder, self.ports) for number, way in enumerate(WORKERS)
        ]
        self._awaited = {(worker.name, "told") for worker in self._workers} | {(f"w{WORKERS.index(LOOP)}", "runs")}
        """Lines that no worker has noted so far, and that each must have: a kill before that shows nothing about it."""

    def way(self) -> Kills:
        """Kills, whose outages the verdict has to know."""
        way = super().way()
        assert isinstance(way, Kills)
        self._outages = way.outages
        return way

    def prepare(self) -> None:
        """Start the workers."""
        for worker in self._workers:
            worker.start()

    def clients(self) -> Sequence[Client]:
        """Those who submit, and one who kills workers."""
        return [*(submitter.work for submitter in self._submitters), self._kill_workers]

    def progress(self) -> int:
        """How many submissions have been answered."""
        return sum(len(order.answers) for submitter in self._submitters for order in tuple(submitter.orders))

    def is_ready(self) -> bool:
        """Whether every worker has heard of something that it said, and a function has run."""
        for worker in self._workers:
            self._awaited -= {one for one in self._awaited if one[0] == worker.name and worker.has_noted(one[1])}
        return not self._awaited and super().is_ready()

    def _kill_workers(self, stop: threading.Event) -> None:
        chance = random.Random(f"{self.seed} workers")
        due = time.monotonic()
        while not stop.wait(0.1):
            dead = [worker for worker in self._workers if worker.is_dead]
            if time.monotonic() > due:
                due = time.monotonic() + chance.uniform(*WORKER_SECONDS)
                dead.append(chance.choice(self._workers))
            for worker in dead:
                worker.kill()
                worker.start()

    def judge(self, verdict: Verdict) -> None:
        """When everything has ended: keys, leases, reports, steps and counts."""
        self._drain()
        orders = [order for submitter in self._submitters for order in submitter.orders]
        journals = [line for path in sorted(self._folder.glob("w*.jsonl")) for line in lines_of(path)]
        judge_jobs(verdict, read_books(self.ports), orders, journals, self._outages)
        verdict.count(LOST, sum(submitter.lost for submitter in self._submitters))
        for submitter in self._submitters:
            verdict.faults += submitter.faults[:10]
        said = (self._folder / "workers.stderr").read_text(errors="replace")
        verdict.require(not said, f"a worker broke: {said[-2000:]}")

    def _drain(self) -> None:
        """Workers without whims finish everything that is left."""
        for worker in self._workers:
            worker.kill()
            worker.start(drains=True)
        line, deadline = Line(self.ports, random.Random(1)), time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            left = [
                job["job_id"]
                # Leased ones twice: between two looks a lease may run out, or a waiting job be leased.
                for state in ("leased", "scheduled", "queued", "leased")
                for job in line.insist("GET", f"/v1/jobs?state={state}&limit=10").body["jobs"]
            ]
            if not left:
                break
            time.sleep(0.1)
        line.close()
        self.close()

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()
