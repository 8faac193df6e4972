"""Outages that the server lives through: while nobody could hold on to a lease, nobody loses one.

`test_restarts` has those that it does not live through. Others claim all the while, because claims reap first.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx

from semel.surfaces.jobs.commands import JobHeartbeat, JobsAffected, JobsClaimed
from semel.surfaces.jobs.maintenance_commands import ReapLeases
from tests.harness.nodes import Nodes
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer
from tests.harness.together import at_once, eventually, in_time, unless_late
from tests.jobs.rig import START, Rig, claim, draft
from tests.jobs.wire import PATH, PATIENCE_SECONDS, Jobs, Message, fresh, serving

WORKERS = 4
LEASE_SECONDS = 5
ANSWER_SECONDS = 1.0
"""A worker does not wait longer for the answer to a heartbeat; it sends another one."""


class Crew:
    """Workers that hold a job each and send heartbeats until they are told that their lease is lost."""

    def __init__(self, jobs: Jobs, lease_seconds: float) -> None:
        for _ in range(WORKERS):
            jobs.submit("k", {}, lease_sec=lease_seconds)
        begun = time.monotonic()
        self.leases = jobs.claim(max=WORKERS)["jobs"]
        self.held: Counter[str] = Counter()
        """How many heartbeats were answered well, for each job."""
        self.lost: set[str] = set()
        self._asked_at = {job["job_id"]: begun for job in self.leases}
        """When the last one of those was sent; outages do not count."""
        self._lease_seconds = lease_seconds
        self.stop, self._is_back = threading.Event(), threading.Event()
        self._is_back.set()
        self._jobs = jobs
        self._rest_seconds = lease_seconds / 4

    def work(self, job: Message) -> None:
        name, body = job["job_id"], {"lease_token": job["lease_token"]}
        while not self.stop.wait(self._rest_seconds) and name not in self.lost:
            self._is_back.wait(PATIENCE_SECONDS)
            asked_at = time.monotonic()
            try:
                status = self._jobs.http.post(f"{PATH}/{name}/heartbeat", json=body, timeout=ANSWER_SECONDS).status_code
            except httpx.TransportError:
                continue  # nobody is there, or it takes too long
            assert status in (200, 409, 503), status
            if status == 200:
                self._asked_at[name] = asked_at
                self.held[name] += 1
            if status == 409:
                self.lost.add(name)
                with unless_late(lambda: self._asked_at[name], self._lease_seconds):
                    raise AssertionError(f"{name} was taken from its worker")

    def poll(self) -> None:
        """Somebody else looks for work, waiting for it or not."""
        while not self.stop.wait(0.02):
            for wait_ms in (0, 300):
                body = {"worker_id": "other", "queues": ["empty"], "wait_ms": wait_ms, "claim_id": fresh("claim")}
                try:
                    status = self._jobs.http.post(f"{PATH}/claim", json=body).status_code
                except httpx.TransportError:
                    continue
                assert status in (200, 503), status

    def outlast(self, seconds: float, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """An outage: the workers have noticed, and try again a while after its end."""
        self._is_back.clear()
        begin()
        time.sleep(seconds)
        end()
        self._asked_at = {name: asked_at + seconds for name, asked_at in self._asked_at.items()}
        time.sleep(self._rest_seconds / 2)
        self._is_back.set()
        self.wait_for_answers()

    def wait_for_answers(self) -> None:
        """Until each has been answered again, or has lost its job."""
        before = self.held.copy()
        names = [job["job_id"] for job in self.leases]
        eventually(
            lambda: all(name in self.lost or self.held[name] > before[name] for name in names),
            "every worker is answered",
        )

    def check(self) -> None:
        """None has lost its job, and all complete."""
        assert self.lost == set()
        with unless_late(lambda: min(self._asked_at.values()), self._lease_seconds):
            for job in self.leases:
                self._jobs.complete(job, "alive")
        for job in self.leases:
            seen = self._jobs.get(job["job_id"])
            assert (seen["attempt"], seen["epoch"], seen["state"]) == (1, 1, "completed")
        assert self._jobs.audit("LEASE_REAP") == []


@contextmanager
def crew(jobs: Jobs, lease_seconds: float) -> Iterator[Crew]:
    """Workers, with others beside them."""
    workers = Crew(jobs, lease_seconds)
    with ThreadPoolExecutor(WORKERS + 2) as pool:
        sent = [pool.submit(workers.work, job) for job in workers.leases]
        sent += [pool.submit(workers.poll) for _ in range(2)]
        try:
            workers.wait_for_answers()
            yield workers
        finally:
            workers.stop.set()
    for one in sent:
        one.result()
    workers.check()


def test_an_outage_that_is_longer_than_a_lease_takes_no_job(tmp_path: Path) -> None:
    """A process that stands still, and a database that hangs and then dies, side by side: most of it is waiting."""
    bodies = [partial(stand_still, tmp_path), partial(lose_the_database, tmp_path)]
    at_once([partial(in_time, body, LEASE_SECONDS) for body in bodies])


def stand_still(folder: Path, lease_seconds: float) -> None:
    data = folder / f"still-{lease_seconds}"
    with serving(data, store="sqlite") as jobs, crew(jobs, lease_seconds) as workers:
        assert isinstance(jobs.server, RunningServer)
        signal_it = partial(os.kill, jobs.server.pid)
        workers.outlast(2.5 * lease_seconds, partial(signal_it, signal.SIGSTOP), partial(signal_it, signal.SIGCONT))


def lose_the_database(folder: Path, lease_seconds: float) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        env = {"SEMEL_STORE": f"{cluster.url}?schema=jobs"}
        nodes = stack.enter_context(Nodes(folder / f"node-{lease_seconds}", 2, env=env))
        workers = stack.enter_context(crew(stack.enter_context(Jobs(nodes)), lease_seconds))
        workers.outlast(1.25 * lease_seconds, cluster.pause, cluster.resume)
        workers.outlast(1.25 * lease_seconds, cluster.kill, cluster.start)


def test_a_reap_that_was_held_up_is_void() -> None:
    """What held it up may have held up heartbeats as well; the reaper comes again after all leases were renewed."""
    rig = Rig()
    rig.submit([draft()])
    [lease] = rig.claim()
    rig.world.pass_ms(2_000)
    before = START + 1_999
    assert rig.do(ReapLeases(100, before)) == JobsAffected(0)
    claimed: JobsClaimed = rig.do(claim(asked_at=rig.world.wall)._replace(reap_until=before))
    assert (claimed.leases, claimed.notes) == ((), ())
    assert rig.do(JobHeartbeat(lease.job.id, lease.token, None)).until_ms == rig.world.wall + 1_000
    rig.world.pass_ms(2_000)
    assert rig.do(ReapLeases(100, rig.world.wall)).number == 1
    assert rig.do(JobHeartbeat(lease.job.id, lease.token, None)).refusal.code == "jobs:lease_lost"
