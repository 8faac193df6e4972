"""The table of calls: jobs."""

from __future__ import annotations

from typing import Any

from semel.client import AsyncClient, ConflictError, JobRequest, Lease, NotFoundError
from semel.client.identity import JobKey, NamedCall
from semel.client.jobs.texts import job_text
from tests.client.call_rows import Play, count, is_dedup, named, row
from tests.client.names import fresh

FAILED = {"code": "c", "message": "m"}


async def leased(semel: AsyncClient, **options: Any) -> Lease:
    """A job of a kind of its own, leased."""
    kind = fresh("kind")
    await semel.jobs.submit(kind, **options)
    [lease] = (await semel.jobs.claim("w", kinds=[kind])).leases
    return lease


def on_lease(lease: Lease, verb: str) -> NamedCall:
    """The identity of a call of a lease."""
    return named("POST", f"/v1/jobs/{lease.job_id}/{verb}")


@row("POST /v1/jobs$")
async def submit(semel: AsyncClient) -> Play:
    kind, key = fresh("kind"), fresh("key")
    return Play(
        lambda c: c.jobs.submit(kind, {"n": 1}, key=key),
        JobKey(key),
        lambda: count(semel.jobs.walk(kind=kind)),
        told=lambda found: found.job_id,
        replayed=is_dedup,
        key=key,
    )


@row("POST /v1/jobs/batch", is_listed=True)
async def submit_many(semel: AsyncClient) -> Play:
    kind, key = fresh("kind"), fresh("key")
    many = [JobRequest(kind, {"n": number}, key=f"{key}.{number}") for number in range(3)]
    return Play(
        lambda c: c.jobs.submit_many(many),
        JobKey(f"{key}.0"),
        lambda: count(semel.jobs.walk(kind=kind)),
        3,
        told=lambda found: [one.job_id for one in found],
        replayed=lambda found: all(one.dedup for one in found),
    )


@row("POST /v1/jobs$")
async def submit_text(semel: AsyncClient) -> Play:
    kind, key = fresh("kind"), fresh("key")
    text = job_text(JobRequest(kind), b'{"n":1.50}', key)
    return Play(
        lambda c: c.jobs.submit_text(text),
        JobKey(key),
        lambda: count(semel.jobs.walk(kind=kind)),
        told=lambda found: found.job_id,
        replayed=is_dedup,
    )


@row("POST /v1/jobs$", is_single=True)
async def submit_text_without_a_key(semel: AsyncClient) -> Play:
    kind = fresh("kind")
    text = job_text(JobRequest(kind), b"{}", None)
    return Play(lambda c: c.jobs.submit_text(text), None, lambda: count(semel.jobs.walk(kind=kind)))


@row("POST /v1/jobs/batch", is_single=True, is_listed=True)
async def submit_texts_without_keys(semel: AsyncClient) -> Play:
    kind = fresh("kind")
    texts = [job_text(JobRequest(kind), b"{}", None)] * 2
    return Play(lambda c: c.jobs.submit_texts(texts), None, lambda: count(semel.jobs.walk(kind=kind)), 2)


@row("POST /v1/jobs$")
async def submit_group(semel: AsyncClient) -> Play:
    kind, key = fresh("kind"), fresh("key")
    members = [JobRequest(kind, {"n": number}) for number in range(2)]
    return Play(
        lambda c: c.jobs.submit_group(JobRequest(f"{kind}.join", key=key), members),
        JobKey(key),
        lambda: count(semel.jobs.walk(kind=f"{kind}.join")),
        told=lambda found: found.job_id,
    )


@row("POST /v1/jobs/batch", is_listed=True)
async def submit_group_of_members(semel: AsyncClient) -> Play:
    kind, key = fresh("kind"), fresh("key")
    members = [JobRequest(kind, {"n": number}) for number in range(2)]
    return Play(
        lambda c: c.jobs.submit_group(JobRequest(f"{kind}.join", key=key), members),
        JobKey(f"{key}/0"),
        lambda: count(semel.jobs.walk(kind=kind)),
        2,
        told=lambda found: found.job_id,
    )


@row("POST /v1/jobs/claim")
async def claim(semel: AsyncClient) -> Play:
    kind, name = fresh("kind"), fresh("claim")
    for _ in range(2):
        await semel.jobs.submit(kind)
    return Play(
        lambda c: c.jobs.claim("w", kinds=[kind], claim_id=name),
        named("POST", "/v1/jobs/claim"),
        lambda: count(semel.jobs.walk(kind=kind, state="leased")),
        told=lambda found: [(one.job_id, one.token, one.attempt, one.epoch) for one in found.leases],
    )


@row("/heartbeat$")
async def heartbeat(semel: AsyncClient) -> Play:
    lease = await leased(semel)

    async def progress() -> Any:
        return (await semel.jobs.get(lease.job_id)).progress

    return Play(lambda c: c.jobs.heartbeat(lease, progress=5), on_lease(lease, "heartbeat"), progress, 5)


@row("/complete$")
async def complete(semel: AsyncClient) -> Play:
    lease = await leased(semel)

    async def result() -> Any:
        outcome = (await semel.jobs.get(lease.job_id)).outcome
        return outcome and outcome.result

    return Play(
        lambda c: c.jobs.complete(lease, {"done": True}),
        on_lease(lease, "complete"),
        result,
        {"done": True},
        told=lambda found: found.status,
        replayed=is_dedup,
    )


@row("/fail$")
async def fail(semel: AsyncClient) -> Play:
    lease = await leased(semel, max_attempts=3)

    async def runs() -> tuple[int, int]:
        job = await semel.jobs.get(lease.job_id)
        return job.attempt, len(job.facts.get("errors") or ())

    return Play(
        lambda c: c.jobs.fail(lease, FAILED, retry_after=3_600.0),
        on_lease(lease, "fail"),
        runs,
        (1, 1),
        told=lambda found: found.next_run,
        replayed=is_dedup,
    )


@row("/defer$")
async def defer(semel: AsyncClient) -> Play:
    lease = await leased(semel)

    async def deferrals() -> tuple[int, int]:
        job = await semel.jobs.get(lease.job_id)
        return job.attempt, job.facts.get("deferrals") or 0

    return Play(
        lambda c: c.jobs.defer(lease, 3_600.0),
        on_lease(lease, "defer"),
        deferrals,
        (0, 1),
        told=lambda found: found.next_run,
        replayed=is_dedup,
    )


@row("/steps$")
async def store_step(semel: AsyncClient) -> Play:
    lease = await leased(semel)

    async def step() -> Any:
        return (await semel.jobs.step(lease, "s")).result

    return Play(
        lambda c: c.jobs.store_step(lease, "s", 7),
        on_lease(lease, "steps"),
        step,
        7,
        told=lambda found: found.result,
        replayed=is_dedup,
    )


@row("POST /v1/jobs$")
async def submit_child(semel: AsyncClient) -> Play:
    lease = await leased(semel)
    return Play(
        lambda c: c.jobs.submit_child(lease, "child", JobRequest("child", {"n": 1})),
        named("POST", "/v1/jobs"),
        lambda: count(semel.jobs.walk_members(lease.job_id)),
        told=lambda found: found.job_id,
    )


@row("/cancel$")
async def cancel(semel: AsyncClient) -> Play:
    made = await semel.jobs.submit(fresh("kind"))

    async def reason() -> Any:
        return (await semel.jobs.get(made.job_id)).reason

    identity = named("POST", f"/v1/jobs/{made.job_id}/cancel")
    return Play(lambda c: c.jobs.cancel(made.job_id), identity, reason, "cancelled", told=lambda found: found.state)


@row("/requeue$", is_looking=True)
async def requeue(semel: AsyncClient) -> Play:
    lease = await leased(semel)
    await semel.jobs.fail(lease, FAILED, retryable=False)

    async def revision() -> int:
        return (await semel.jobs.get(lease.job_id)).revision

    return Play(
        lambda c: c.jobs.requeue(lease.job_id, revision=0),
        on_lease(lease, "requeue"),
        revision,
        told=lambda found: found.revision,
        again=ConflictError,
    )


@row("/close$")
async def close_group(semel: AsyncClient) -> Play:
    kind = fresh("kind")
    made = await semel.jobs.submit_group(JobRequest(kind), [])
    return Play(
        lambda c: c.jobs.close_group(made.job_id),
        named("POST", f"/v1/jobs/{made.job_id}/close"),
        told=lambda found: found.job_id,
    )


@row("/release$")
async def release_key(semel: AsyncClient) -> Play:
    kind, key = fresh("kind"), fresh("key")
    await semel.jobs.submit(kind, key=key)

    async def is_known() -> bool:
        return (await semel.resolve(JobKey(key))).is_committed

    return Play(
        lambda c: c.jobs.release_key(key, force=True),
        named("POST", "/v1/jobs/keys/release"),
        is_known,
        False,
        again=NotFoundError,
    )


@row("PUT /v1/jobs/queues")
async def set_queue(semel: AsyncClient) -> Play:
    name = fresh("queue")

    async def limit() -> int:
        return (await semel.jobs.queue(name)).max_inflight

    identity = named("PUT", f"/v1/jobs/queues/{name}")
    return Play(
        lambda c: c.jobs.set_queue(name, max_inflight=3), identity, limit, 3, told=lambda found: found.max_inflight
    )


@row("DELETE /v1/jobs/queues")
async def reset_queue(semel: AsyncClient) -> Play:
    name = fresh("queue")
    await semel.jobs.set_queue(name, max_inflight=3)

    async def limit() -> int:
        return (await semel.jobs.queue(name)).max_inflight

    identity = named("DELETE", f"/v1/jobs/queues/{name}")
    return Play(lambda c: c.jobs.reset_queue(name), identity, limit, 0, told=lambda found: found.max_inflight)


@row("PUT /v1/jobs/schedules")
async def set_schedule(semel: AsyncClient) -> Play:
    name = fresh("schedule")

    async def stored() -> int:
        return [one.name for one in await semel.jobs.schedules()].count(name)

    return Play(
        lambda c: c.jobs.set_schedule(name, "@daily", "k", paused=True),
        named("PUT", f"/v1/jobs/schedules/{name}"),
        stored,
        told=lambda found: found.cron,
    )


@row("DELETE /v1/jobs/schedules")
async def delete_schedule(semel: AsyncClient) -> Play:
    name = fresh("schedule")
    await semel.jobs.set_schedule(name, "@daily", "k", paused=True)

    async def stored() -> int:
        return [one.name for one in await semel.jobs.schedules()].count(name)

    identity = named("DELETE", f"/v1/jobs/schedules/{name}")
    return Play(lambda c: c.jobs.delete_schedule(name), identity, stored, 0, again=NotFoundError)


@row("GET /v1/jobs/job_", is_read=True)
async def read_job(semel: AsyncClient) -> Play:
    made = await semel.jobs.submit(fresh("kind"), {"n": 1})
    return Play(lambda c: c.jobs.get(made.job_id), told=lambda found: found.params)


@row("/lookup$", is_read=True)
async def look_up_job(semel: AsyncClient) -> Play:
    made = await semel.jobs.submit(fresh("kind"), {"n": 1})
    return Play(lambda c: c.jobs.lookup(key=made.key), told=lambda found: found.job_id)


@row("GET /v1/jobs", is_read=True)
async def list_jobs(semel: AsyncClient) -> Play:
    queue = fresh("queue")
    await semel.jobs.submit(fresh("kind"), queue=queue)
    return Play(lambda c: c.jobs.list(queue=queue), told=lambda found: [one.job_id for one in found.jobs])
