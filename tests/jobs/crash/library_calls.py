"""The calls of `semel.Client` on jobs, told as the wire tells its answers, so that one verdict judges both."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from semel.client import Client
from semel.client.errors import RefusedError
from semel.client.jobs.values import JobRequest, Lease, Step
from semel.client.retry import ENDLESS
from tests.harness.caller import HOST, MOVES, Body, Told
from tests.harness.moving_network import MovingNetwork
from tests.jobs.crash.worker import POLL_MS

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def request_of(key: str, fields: Body) -> JobRequest:
    """A submission of the harness in the words of the library."""
    delay = fields.get("delay_ms")
    return JobRequest(
        fields["kind"],
        fields["params"],
        key,
        fields.get("queue"),
        fields.get("priority"),
        None if delay is None else delay / 1_000,
        max_attempts=fields.get("max_attempts"),
        lease=fields.get("lease_sec"),
    )


def body_of(lease: Lease) -> Body:
    """A lease as the wire tells it."""
    return {
        "job_id": lease.job_id,
        "kind": lease.kind,
        "epoch": lease.epoch,
        "lease_token": lease.token,
        "lease_ms": lease.lease_ms,
        "attempt": lease.attempt,
        "max_attempts": lease.max_attempts,
    }


def told_step(step: Step) -> Body:
    """A step as the wire tells it."""
    return {"known": step.known, "result": step.result, "dedup": step.dedup}


def told_by(call: Callable[[], Body]) -> Told:
    """The answer to a call. Any other error than a refusal is raised: the library was to repeat the call."""
    try:
        return Told(200, call())
    except RefusedError as error:
        return Told(error.status, dict(error.facts))


class LibraryMouth:
    """Talks with `semel.Client`, over a connection to any of the servers."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._chance = chance
        self._network = MovingNetwork(ports, chance)
        self._client = Client(f"http://{HOST}:{ports[0]}", patience=ENDLESS, network=self._network, connections=1)

    def claim(self, worker_id: str, claim_id: str, most: int) -> Told:
        """Ask for jobs, by one name until it is answered."""
        self._move()

        def call() -> Body:
            claimed = self._client.jobs.claim(worker_id, most=most, wait=POLL_MS / 1_000, claim_id=claim_id)
            return {"jobs": [body_of(lease) for lease in claimed.leases], "defer_ms": claimed.pause * 1_000}

        return told_by(call)

    def say(self, job: Body, call: str, body: Body) -> Told:
        """A call on a leased job."""
        self._move()
        return told_by(lambda: self._said(_lease(job), call, body))

    def say_and_die(self, job: Body, call: str, body: Body) -> None:
        """Say it, and hear no answer."""
        self._network.route.is_dying = True
        self.say(job, call, body)

    def _move(self) -> None:
        if self._chance.random() < MOVES:
            self._client.caller.transport.close()

    def _said(self, lease: Lease, call: str, body: Body) -> Body:
        jobs = self._client.jobs
        if call == "complete":
            return dict(jobs.complete(lease, body["result"]).facts)
        if call == "fail":
            after: Any = body.get("retry_after_ms")
            pause = None if after is None else after / 1_000
            retryable = body.get("retryable", True)
            return dict(jobs.fail(lease, body["error"], retryable=retryable, retry_after=pause).facts)
        if call == "defer":
            return dict(jobs.defer(lease, body["delay_ms"] / 1_000).facts)
        if call == "heartbeat":
            return {"cancel_requested": jobs.heartbeat(lease).cancel_requested}
        if "result" in body:
            return told_step(jobs.store_step(lease, body["step_key"], body["result"]))
        return told_step(jobs.step(lease, body["step_key"]))


def _lease(job: Body) -> Lease:
    """A lease of which only a journal is left: the calls need no more than its job and its token."""
    return Lease(
        job_id=job["job_id"],
        request_id="",
        kind=job["kind"],
        params={},
        queue="",
        priority=4,
        attempt=1,
        max_attempts=1,
        epoch=job["epoch"],
        token=job["lease_token"],
        lease_ms=1_000,
        until=_NO_TIME,
        created=_NO_TIME,
    )
