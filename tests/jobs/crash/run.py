"""Kill servers and workers with SIGKILL under load, again and again, and check what became of every job.

Every other death of a server is its own, at a named point of the commit path, each in turn; workers are killed beside
that, and kill themselves in the middle of a report. Most of the load is the library's: submitters on `Client` and
`AsyncClient`, a worker on its calls, and its own worker. `make crash SURFACE=jobs` does as many as you like.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.harness.caller import Line
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import faults_of, log_of
from tests.jobs.crash.journal import lines_of
from tests.jobs.crash.library_submitters import AsyncSubmitter, LibrarySubmitter
from tests.jobs.crash.submitter import Submitter
from tests.jobs.crash.verdict import Outage, Verdict, judge, read_books
from tests.jobs.crash.worker import CALLS, LOOP, WIRE

ROOT = Path(__file__).parents[3]
SUBMITTERS = (Submitter, LibrarySubmitter, LibrarySubmitter, AsyncSubmitter, AsyncSubmitter)
WORKERS = (WIRE, CALLS, LOOP)
"""How each worker talks: over the wire, with the calls of the library, or as the library's own worker."""
ALIVE_SECONDS, LONG_ALIVE_SECONDS = (0.15, 0.6), 2.0
"""A lease lasts a second, so only in the long lives can one run out."""
WORKER_SECONDS = (0.5, 1.5)
DRAIN_SECONDS = 90.0
READY_SECONDS = 30.0
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


@dataclass(frozen=True)
class Plan:
    """What happens; `seconds` is how long the load lasts when nothing is killed."""

    store: str = "sqlite"
    kills: int = 10
    nodes: int = 1
    seconds: float = 0.0


class WorkerProcess:
    """One life after another under one name."""

    def __init__(self, name: str, way: str, folder: Path, ports: list[int]) -> None:
        self._name = name
        self._way = way
        self._folder = folder
        self._ports = ports
        self._life = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, drains: bool = False) -> None:
        """The next life."""
        self._life += 1
        command = [sys.executable, "-m", "tests.jobs.crash.worker", "--ports", *map(str, self._ports)]
        command += ["--name", self._name, "--life", str(self._life), "--folder", str(self._folder), "--way", self._way]
        with (self._folder / "workers.stderr").open("ab") as output:
            self._process = subprocess.Popen(
                command + ["--drains"] * drains, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def is_dead(self) -> bool:
        """Whether it has ended itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def has_reported(self) -> bool:
        """Whether a life of it was told something about a job."""
        journals = self._folder.glob(f"{self._name}.*.jsonl")
        return any(line["what"] == "told" for path in journals for line in lines_of(path))

    def kill(self) -> None:
        """End it, unless it has ended itself."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


class CrashRun:
    """One store, many lives."""

    def __init__(self, folder: Path, plan: Plan, seed: int, report: Callable[[int], None] = lambda done: None) -> None:
        self._folder = folder
        self._plan = plan
        self._seed = seed
        self._chance = random.Random(seed)
        self._lives = PointLives(self._chance, (2, 8, 30))
        self._report = report
        self._quiet = 0
        self._outages: list[Outage] = []
        store = fresh_url(lanes="2") if plan.store == "postgres" else ""
        env = SETTINGS | {"SEMEL_STORE": store}
        self._servers = [RunningServer(folder / f"node-{number}", env=env) for number in range(plan.nodes)]
        ports = [server.port for server in self._servers]
        self._ports = ports
        self._submitters = [kind(f"s{number}", ports, seed) for number, kind in enumerate(SUBMITTERS)]
        self._workers = [WorkerProcess(f"w{number}", way, folder, ports) for number, way in enumerate(WORKERS)]

    def run(self) -> Verdict:
        """Start, kill, mend, drain, judge."""
        with ExitStack() as running:
            for server in self._servers:
                running.enter_context(server)
            for worker in self._workers:
                running.callback(worker.kill)
                worker.start()
            self._under_load()
            self._drain()
            verdict = self._judge()
        self._check_outputs(verdict)
        verdict.require(not self._lives.missed, f"no server died at {self._lives.missed}: nothing was shown about that")
        return verdict

    def _under_load(self) -> None:
        stop = threading.Event()
        with ThreadPoolExecutor(len(SUBMITTERS) + 1) as pool:
            loads = [pool.submit(submitter.work, stop) for submitter in self._submitters]
            loads.append(pool.submit(self._kill_workers, stop))
            try:
                self._await_workers()
                time.sleep(self._plan.seconds)
                for done in range(self._plan.kills):
                    before = self._progress()
                    self._one_kill(done)
                    self._quiet += self._progress() == before
                    self._report(done + 1)
            finally:
                stop.set()
            for load in loads:
                load.result()

    def _await_workers(self) -> None:
        """Until every worker has heard of something that it said: a kill before that shows nothing about it."""
        deadline = time.monotonic() + READY_SECONDS
        while not all(worker.has_reported for worker in self._workers) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _progress(self) -> int:
        """How many submissions have been answered."""
        return sum(len(order.answers) for submitter in self._submitters for order in tuple(submitter.orders))

    def _one_kill(self, number: int) -> None:
        """Every other life dies by itself, at a named point; the rest are killed from outside."""
        is_long = number % 6 == 5
        time.sleep(LONG_ALIVE_SECONDS if is_long else self._chance.uniform(*ALIVE_SECONDS))
        server = self._chance.choice(self._servers)
        server.kill()
        killed_at = time.monotonic()
        if number % 2:
            self._lives.end_next(server)
        started_at = time.monotonic()
        self._lives.start_next(server, number)
        is_alone = len(self._servers) == 1
        self._outages.append((killed_at, time.monotonic()) if is_alone else (started_at, started_at))

    def _kill_workers(self, stop: threading.Event) -> None:
        chance = random.Random(f"{self._seed} workers")
        due = time.monotonic()
        while not stop.wait(0.1):
            dead = [worker for worker in self._workers if worker.is_dead]
            if time.monotonic() > due:
                due = time.monotonic() + chance.uniform(*WORKER_SECONDS)
                dead.append(chance.choice(self._workers))
            for worker in dead:
                worker.kill()
                worker.start()

    def _drain(self) -> None:
        """Workers without whims finish everything that is left."""
        for worker in self._workers:
            worker.kill()
            worker.start(drains=True)
        line, deadline = Line(self._ports, random.Random(1)), time.monotonic() + DRAIN_SECONDS
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
        for worker in self._workers:
            worker.kill()

    def _judge(self) -> Verdict:
        orders = [order for submitter in self._submitters for order in submitter.orders]
        journals = [line for path in sorted(self._folder.glob("w*.jsonl")) for line in lines_of(path)]
        verdict = judge(read_books(self._ports), orders, journals, self._outages)
        verdict.quiet = self._quiet
        verdict.lost_answers = sum(submitter.lost for submitter in self._submitters)
        for submitter in self._submitters:
            verdict.faults += submitter.faults[:10]
        return verdict

    def _check_outputs(self, verdict: Verdict) -> None:
        for server in self._servers:
            faults = faults_of(log_of(server))
            verdict.require(not faults, f"{faults[:3]} in {server.output_tail()}")
        said = (self._folder / "workers.stderr").read_text(errors="replace")
        verdict.require(not said, f"a worker broke: {said[-2000:]}")
