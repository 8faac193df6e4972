"""A lease that a waiting claim is given is an offer, until the worker is heard of: who is silent holds nothing up."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial

import pytest

from semel.surfaces.jobs.commands import (
    DeferJob,
    JobHeartbeat,
    JobLease,
    JobsAffected,
    JobsClaimed,
    JobStep,
    LeaseExtended,
)
from semel.surfaces.jobs.maintenance_commands import ReapLeases, RenewLeases
from semel.surfaces.jobs.tables import JOB, LEASED, WAITING, JobRow
from tests.harness.server import HOST
from tests.harness.together import eventually
from tests.jobs.rig import FOR_EVER, OPEN, Rig, claim, done, draft, failed
from tests.jobs.wire import CLAIM, PATIENCE_SECONDS, Jobs, Message, fresh

OFFER_MS = OPEN.offer_ms
LONG_POLL_MS = 30_000
SETTLE_SECONDS = 0.5


class BlackHole:
    """A line to a server that stops passing anything on, both ways, and hangs up on nobody."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((HOST, 0))
        self._target = port
        self._is_open = threading.Event()
        self._is_open.set()
        self._sockets: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close_over(self) -> None:
        """From now on nothing comes through."""
        self._is_open.clear()

    def close(self) -> None:
        """Hang up at last."""
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self._target))
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while (data := source.recv(65_536)) and self._is_open.is_set():
                target.sendall(data)


@contextmanager
def black_hole(port: int) -> Iterator[BlackHole]:
    with closing(BlackHole(port)) as line:
        yield line


def _poll_over(port: int, queue: str, worker: str) -> socket.socket:
    """A long poll whose answer nobody reads."""
    body = json.dumps({"worker_id": worker, "queues": [queue], "wait_ms": LONG_POLL_MS, "max": 10}).encode()
    line = socket.create_connection((HOST, port))
    head = f"POST {CLAIM} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    time.sleep(SETTLE_SECONDS)
    return line


def _work(jobs: Jobs, queue: str, number: int) -> list[Message]:
    """What a healthy worker does until it has run that many jobs."""
    ran: list[Message] = []
    while len(ran) < number:
        job = jobs.claim_one(queue, worker_id="healthy", wait_ms=10_000)
        jobs.complete(job)
        ran.append(job)
    return ran


@pytest.mark.each_store
def test_d1_a_worker_behind_a_black_hole_costs_no_job_and_no_attempt(jobs: Jobs, queue: str) -> None:
    port = jobs.nodes[0].port
    with black_hole(port) as hole, closing(_poll_over(hole.port, queue, "cut off")), ThreadPoolExecutor() as pool:
        healthy = pool.submit(_work, jobs, queue, 3)
        time.sleep(SETTLE_SECONDS)
        hole.close_over()
        answers = jobs.batch([{"kind": "k", "queue": queue, "max_attempts": 1, "lease_sec": 3}] * 3)
        ran = healthy.result(PATIENCE_SECONDS)
        assert {job["job_id"] for job in ran} == {one["job_id"] for one in answers}
        assert [job["attempt"] for job in ran] == [1, 1, 1]
        assert {jobs.get(one["job_id"])["state"] for one in answers} == {"completed"}
        for job in ran:
            if job["epoch"] > 1:
                jobs.audited("OFFER_LAPSED", job_id=job["job_id"], worker_id="cut off")
        if len(jobs.nodes) == 1:
            assert max(job["epoch"] for job in ran) > 1, "nobody was offered anything before"


def test_d1_only_a_claim_that_waits_is_given_an_offer(jobs: Jobs, queue: str) -> None:
    for _ in range(2):
        jobs.submit(queue=queue, lease_sec=60)
    [lease] = jobs.claim(queue)["jobs"]
    [offer] = jobs.claim(queue, wait_ms=10_000)["jobs"]
    assert lease["offer_ms"] == 0
    assert 0 < offer["offer_ms"] <= OFFER_MS
    assert (lease["lease_ms"], offer["lease_ms"]) == (60_000, 60_000)


def test_d1_a_named_claim_that_is_repeated_gets_the_same_offers(jobs: Jobs, queue: str) -> None:
    jobs.batch([{"kind": "k", "queue": queue}] * 2)
    name = fresh("claim")
    first = jobs.claim(queue, max=2, wait_ms=10_000, claim_id=name)["jobs"]
    again = jobs.claim(queue, max=2, wait_ms=10_000, claim_id=name)["jobs"]
    assert len(first) == 2
    assert [(job["lease_token"], job["attempt"]) for job in again] == [(job["lease_token"], 1) for job in first]


@pytest.mark.each_store
def test_d1_the_other_polls_of_a_silent_worker_end_empty_on_every_node(jobs: Jobs, queue: str) -> None:
    other, silent = fresh("queue"), fresh("silent")
    with ThreadPoolExecutor() as pool:
        poll = partial(jobs.claim, other, wait_ms=LONG_POLL_MS)
        waiting = [pool.submit(poll, worker_id=silent) for _ in range(2 * len(jobs.nodes))]
        bystander = pool.submit(poll, worker_id="another")
        time.sleep(SETTLE_SECONDS)
        job_id = jobs.submit(queue=queue, lease_sec=1, max_attempts=1)["job_id"]
        jobs.claim_one(queue, worker_id=silent, confirms=False)
        assert [one.result(LONG_POLL_MS / 1_000)["jobs"] for one in waiting] == [[]] * len(waiting)
        assert not bystander.done(), "who was not silent waits on"
        seen = jobs.get(job_id)
        assert (seen["state"], seen["attempt"], seen["epoch"]) == ("queued", 0, 1)
        jobs.submit(queue=other)
        assert len(bystander.result(PATIENCE_SECONDS)["jobs"]) == 1


def test_d1_a_token_of_an_offer_that_lapsed_is_dead(jobs: Jobs, queue: str) -> None:
    job_id = jobs.submit(queue=queue, lease_sec=1)["job_id"]
    offer = jobs.claim_one(queue, confirms=False)
    eventually(lambda: jobs.get(job_id)["state"] == "queued", "the offer to lapse")
    assert jobs.heartbeat(offer, expect=409)["error"] == "lease_lost"
    assert jobs.complete(offer, expect=409)["error"] == "lease_lost"


# -- The rules, with clocks that are moved by hand ---------------------------------------------------------------------


def _offered(rig: Rig, **fields: object) -> JobLease:
    rig.submit([draft(lease_ms=60_000, **fields)])  # type: ignore[arg-type]
    [lease] = rig.claim("q", waits=True)
    assert lease.job.offered
    return lease


def _row(rig: Rig) -> JobRow:
    [row] = rig.rows(JOB)
    assert isinstance(row, JobRow)
    return row


FIRST_CALLS = {
    "heartbeat": lambda lease: JobHeartbeat(lease.job.id, lease.token, None),
    "a step that is asked for": lambda lease: JobStep(lease.job.id, lease.token, b"s", None),
    "a step that is stored": lambda lease: JobStep(lease.job.id, lease.token, b"s", b"1"),
}


@pytest.mark.parametrize("call", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_d1_the_first_call_makes_an_offer_a_lease_of_full_length(call) -> None:  # type: ignore[no-untyped-def]
    rig = Rig()
    lease = _offered(rig)
    rig.world.pass_ms(OFFER_MS - 1)
    rig.do(call(lease))
    rig.world.pass_ms(59_999)
    assert rig.do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
    rig.world.pass_ms(1)
    reaped = rig.do(ReapLeases(10, FOR_EVER))
    assert [note.event for note in reaped.notes] == ["LEASE_REAP"]
    assert (_row(rig).phase, _row(rig).attempt) == (WAITING, 1)


@pytest.mark.parametrize("report", [done, failed, lambda lease: DeferJob(lease.job.id, lease.token, 0, b"")])
def test_d1_a_report_on_an_offer_is_taken(report) -> None:  # type: ignore[no-untyped-def]
    rig = Rig()
    lease = _offered(rig)
    rig.do(report(lease))
    rig.world.pass_ms(OFFER_MS)
    assert rig.do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
    assert not _row(rig).offered


def test_d1_an_offer_that_lapses_is_no_attempt_and_keeps_its_place() -> None:
    rig = Rig()
    lease = _offered(rig, max_attempts=1)
    rig.world.pass_ms(OFFER_MS)
    lapsed = rig.do(ReapLeases(10, FOR_EVER))
    assert [note.event for note in lapsed.notes] == ["OFFER_LAPSED"]
    row = _row(rig)
    assert (row.phase, row.attempt, row.epoch, row.ready_at) == (WAITING, 0, 1, lease.job.ready_at)
    [again] = rig.claim("q")
    assert (again.job.attempt, again.job.epoch) == (1, 2)
    rig.check_counts()


def test_d1_a_poll_that_reaps_its_own_workers_offer_is_not_given_the_job_again() -> None:
    rig = Rig()
    _offered(rig)
    rig.world.pass_ms(OFFER_MS)
    claimed: JobsClaimed = rig.do(claim("q", waits=True, asked_at=rig.world.wall))
    assert (claimed.leases, claimed.is_silenced) == ((), True)
    assert len(rig.claim("q", waits=True, worker="another")) == 1


@pytest.mark.parametrize("since", [None, 0], ids=["after a start", "after an outage"])
def test_d1_an_offer_does_not_lapse_because_the_server_was_away(since: int | None) -> None:
    rig = Rig()
    lease = _offered(rig, max_attempts=1)
    steady = rig.world.wall
    rig.world.pass_ms(60_000)
    rig.do(RenewLeases((lease.job.id,), None if since is None else steady))
    rig.world.pass_ms(OFFER_MS - 1)
    assert rig.do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
    assert isinstance(rig.do(JobHeartbeat(lease.job.id, lease.token, None)), LeaseExtended)
    assert (_row(rig).phase, _row(rig).offered) == (LEASED, 0)
