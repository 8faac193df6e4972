"""Calls of jobs on a line that is cut at every byte of a request and of an answer: each takes effect once.

A run tries a seventh of the bytes, by the day.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from semel.client import JobSummary, Lease, OutcomeUnknown, Patience, Submitted, identity_of
from semel.client.identity import JobKey
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import JobRequest
from tests.client.both import EACH_LOOP, client_of, network_of, run
from tests.client.cut_network import CutNetwork
from tests.client.names import PATIENCE_SECONDS, fresh
from tests.harness.server import RunningServer
from tests.harness.share import due

SIDES = pytest.mark.parametrize("side", ["request", "answer"])
WORKER = "w"


class Line:
    """The calls of one client over a line that is cut, and those of another over a whole one."""

    def __init__(self, jobs: AsyncJobs, direct: AsyncJobs, network: CutNetwork) -> None:
        self.jobs = jobs
        self.direct = direct
        self.network = network
        self.kind = fresh("kind")

    async def leased(self, **options: Any) -> Lease:
        """A job that is leased over the whole line."""
        await self.direct.submit(self.kind, **options)
        [lease] = (await self.direct.claim(WORKER, kinds=[self.kind])).leases
        return lease

    async def end(self, lease: Lease) -> None:
        """Complete a job over the whole line."""
        await self.direct.complete(lease)


Call = Callable[[Line], Awaitable[None]]
"""One call over the line that is cut, with what comes before it and is checked after it."""


async def submit(line: Line) -> None:
    """One job, however often it was sent."""
    submitted = await line.jobs.submit(line.kind, {"n": 1})
    [lease] = (await line.direct.claim(WORKER, most=5, kinds=[line.kind])).leases
    assert lease.job_id == submitted.job_id
    await line.end(lease)


async def submit_many(line: Line) -> None:
    """One job for each of them, and its own answer."""
    made = await line.jobs.submit_many(JobRequest(line.kind, {"n": n}) for n in range(2))
    leases = (await line.direct.claim(WORKER, most=5, kinds=[line.kind])).leases
    assert {one.job_id for one in made if isinstance(one, Submitted)} == {one.job_id for one in leases}
    assert len(leases) == 2
    for lease in leases:
        await line.end(lease)


async def claim(line: Line) -> None:
    """The same lease, and no second one."""
    for number in range(2):
        await line.direct.submit(line.kind, {"n": number})
    [lease] = (await line.jobs.claim(WORKER, kinds=[line.kind])).leases
    assert (lease.attempt, lease.epoch) == (1, 1)
    [other] = (await line.direct.claim(WORKER, most=5, kinds=[line.kind])).leases
    for one in (lease, other):
        await line.end(one)


async def complete(line: Line) -> None:
    """The result counts once."""
    lease = await line.leased()
    reported = await line.jobs.complete(lease, {"done": True})
    assert reported.status == "completed"
    assert (await line.direct.result(lease.job_id)).result == {"done": True}


async def fail(line: Line) -> None:
    """The run counts once, and so does its error."""
    lease = await line.leased(max_attempts=3)
    await line.jobs.fail(lease, {"code": "c", "message": "m"}, retry_after=0.0)
    job = await line.direct.get(lease.job_id)
    assert (job.attempt, len(job.facts["errors"])) == (1, 1)
    await line.direct.cancel(lease.job_id)


async def defer(line: Line) -> None:
    """Deferred once, without counting the run."""
    lease = await line.leased()
    await line.jobs.defer(lease, 3_600.0)
    job = await line.direct.get(lease.job_id)
    assert (job.attempt, job.facts["deferrals"]) == (0, 1)
    await line.direct.cancel(lease.job_id)


async def store_step(line: Line) -> None:
    """The first result of a step is kept."""
    lease = await line.leased()
    assert (await line.jobs.store_step(lease, "s", 1)).result == 1
    assert (await line.direct.step(lease, "s")).result == 1
    await line.end(lease)


async def submit_child(line: Line) -> None:
    """One child of a name."""
    lease = await line.leased()
    made = await line.jobs.submit_child(lease, "child", JobRequest(line.kind, {"n": 1}))
    assert [one.job_id async for one in line.direct.walk_members(lease.job_id)] == [made.job_id]
    await line.direct.cancel(made.job_id)
    await line.end(lease)


async def submit_group(line: Line) -> None:
    """One join, and each member once."""
    join = await line.jobs.submit_group(JobRequest(line.kind), [JobRequest(line.kind, {"n": 1})])
    [member] = [one async for one in line.direct.walk_members(join.job_id)]
    assert member.state == "queued"
    await line.direct.cancel(join.job_id, members=True)
    await line.direct.result(member.job_id, wait=PATIENCE_SECONDS)


async def requeue(line: Line) -> None:
    """The job runs again once."""
    lease = await line.leased()
    await line.direct.fail(lease, {"code": "c", "message": "m"}, retryable=False)
    again: JobSummary = await line.jobs.requeue(lease.job_id, revision=0)
    assert again.revision == (await line.direct.get(lease.job_id)).revision == 1
    await line.direct.cancel(lease.job_id)


async def cut_everywhere(server: RunningServer, kind: str, side: str, call: Call, stride: int) -> None:
    """Make a call over and over, and cut its line at the next byte each time."""
    network = CutNetwork(network_of(kind))
    async with client_of(kind, server.url, network=network) as client, client_of("async", server.url) as direct:
        line = Line(client.jobs, direct.jobs, network)
        await call(line)
        size = {"request": network.sent, "answer": network.received}[side]
        assert size > 150
        places = due(range(0, size, stride))
        for at in places:
            setattr(network, f"{side}_left", at)
            await call(line)
        assert network.cuts == len(places)
        assert await direct.jobs.cancel_all(kind=line.kind) == 0


@EACH_LOOP
@SIDES
@pytest.mark.parametrize("call", [submit, claim, complete], ids=lambda call: call.__name__)
def test_a_call_takes_effect_once_wherever_the_line_is_cut(
    server: RunningServer, kind: str, side: str, call: Call
) -> None:
    async def main() -> None:
        # Both clients run the same coroutines: the blocking one is tried at a part of the bytes.
        await cut_everywhere(server, kind, side, call, 1 if kind == "async" else 13)

    run(main)


@EACH_LOOP
@SIDES
@pytest.mark.parametrize(
    "call", [submit_many, fail, defer, store_step, submit_child, submit_group, requeue], ids=lambda call: call.__name__
)
def test_other_calls_take_effect_once_at_many_bytes(server: RunningServer, kind: str, side: str, call: Call) -> None:
    async def main() -> None:
        await cut_everywhere(server, kind, side, call, 23)

    run(main)


@EACH_LOOP
def test_after_the_deadline_the_identity_of_a_submission_tells_what_became_of_it(
    server: RunningServer, kind: str
) -> None:
    async def main() -> None:
        network = CutNetwork(network_of(kind))
        options = {"network": network, "patience": Patience(tries=1)}
        async with client_of(kind, server.url, **options) as client, client_of("async", server.url) as direct:
            for side, is_stored in (("request", False), ("answer", True)):
                name, key = fresh("kind"), fresh("key")
                setattr(network, f"{side}_left", 10)
                with pytest.raises(OutcomeUnknown) as unknown:
                    await client.jobs.submit(name, key=key)
                assert unknown.value.key == key
                identity = identity_of(unknown.value.identity.text())
                assert identity == JobKey(key)
                known = await client.resolve(identity)
                assert known.is_committed is is_stored
                again = await client.jobs.submit(name, key=key)
                assert again.dedup is is_stored
                assert not is_stored or known.facts["job_id"] == again.job_id
                assert await direct.jobs.cancel_all(kind=name) == 1

    run(main)
