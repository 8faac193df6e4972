"""`client.jobs`: submit jobs, read their results, cancel them; lists, administration, and the calls of a worker.

Promise: a call that was answered took effect once, however often it was retried. A submission without a key gets a new
one for this call: every attempt uses it, and the server forgets it 10 minutes after the end of the job. Lost answers,
429 and 503 are retried with the same key and with backoff; other refusals are not. Results have a checksum of their
canonical bytes in both directions, and a signature if there is a key. To submit again after a crash of this process,
give the key: then it is the same job.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from semel.client.errors import CallError, InvalidArgumentError, NotFinishedError, NotFoundError
from semel.client.identity import JobKey, Resolution
from semel.client.jobs import answers
from semel.client.jobs.admin_calls import AsyncJobAdmin
from semel.client.jobs.lease_calls import AsyncLeaseCalls
from semel.client.jobs.requests import MOST_WAIT_SECONDS, PATH, job_path, queried
from semel.client.jobs.submission import (
    BATCH_TURNS,
    GENERATED_SECONDS,
    ClientJobDraft,
    SentJob,
    batches,
    draft,
    fresh_name,
    mark_protection,
    milliseconds,
    spliced,
    submit_batch,
    unanswered,
)
from semel.client.jobs.texts import JobText
from semel.client.jobs.values import (
    Cancellation,
    Debounce,
    JobInfo,
    JobRequest,
    Join,
    Outcome,
    State,
    Submitted,
    Unique,
)
from semel.client.json_answer import read
from semel.client.retry import json_request
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientRequest

LOOK_SECONDS = 2.0
"""Least time between two looks at a job that is waited for."""


class AsyncJobs(AsyncLeaseCalls, AsyncJobAdmin):
    """The jobs of one server, from asyncio code."""

    async def submit(
        self,
        kind: str,
        params: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int | str | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        lease: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the time limit of a run, not of this call
        on_failed: Literal["return", "retry"] | None = None,
        unique: Unique | None = None,
        debounce: Debounce | None = None,
        join: Join | None = None,
        group: str | None = None,
        wait: float | None = None,
    ) -> Submitted:
        """Submit a job once. Times are in seconds; `wait` (at most 30) waits for the end of the job.

        With the caller's own key it is one job even if this program crashes and submits again.
        """
        job = JobRequest(
            kind,
            params or {},
            key,
            queue,
            priority,
            delay,
            run_at,
            max_attempts,
            lease=lease,
            timeout=timeout,
            on_failed=on_failed,
            unique=unique,
            debounce=debounce,
            join=join,
            group=group,
        )
        return await self.submit_request(job, wait=wait)

    async def submit_request(self, job: JobRequest, *, wait: float | None = None) -> Submitted:
        """As `submit`, of a `JobRequest`."""
        return await self._submit_one(self._draft(job, wait), wait or 0.0)

    def _draft(
        self, job: JobRequest, wait: float | None = None, *, new_key: str | None = None, turns: int = 1
    ) -> ClientJobDraft:
        """The submission of a job by this client; `turns` is how often its patience may pass in a call."""
        seconds = self._caller.patience.seconds
        is_brief = seconds is not None and turns * seconds <= GENERATED_SECONDS
        return draft(job, wait, carried=self._carried, new_key=new_key, is_brief=is_brief)

    async def submit_many(self, jobs: Iterable[JobRequest]) -> builtins.list[Submitted | CallError]:
        """Submit jobs, each once and independently of the others. Returns one answer each, in order.

        An error is returned as an answer, with its `key`. If the server stays unavailable, the rest is not sent.
        """
        return await self._submit_all(self._draft(job, turns=BATCH_TURNS) for job in jobs)

    async def submit_text(self, job: JobText) -> Submitted:
        """Submit a job whose JSON text is sent unchanged. Without a key it is repeated only if it had no effect."""
        return await self._submit_one(job)

    async def _submit_one(self, job: SentJob, wait: float = 0.0) -> Submitted:
        identity = None if job.key is None else JobKey(job.key)
        request = json_request("POST", PATH, job.body, wait=wait)
        try:
            return await self._caller.facts_as(lambda facts: submitted(facts, job), request, identity)
        except CallError as error:
            mark_protection(error, job)
            raise

    async def submit_texts(self, jobs: Iterable[JobText]) -> builtins.list[Submitted | CallError]:
        """As `submit_many`, of JSON texts that are sent unchanged."""
        return await self._submit_all(jobs)

    async def _submit_all(self, jobs: Iterable[SentJob]) -> builtins.list[Submitted | CallError]:
        answered: builtins.list[Submitted | CallError] = []
        away: CallError | None = None
        for drafts in batches(jobs):
            if away is None:
                given, away = await submit_batch(self._caller, drafts, submitted)
            else:
                given = unanswered(drafts, away, is_unsettled=False)
            answered += given
        return answered

    async def submit_group(
        self,
        join: JobRequest,
        members: Iterable[JobRequest],
        *,
        on_failure: Literal["wait", "cancel"] = "wait",
    ) -> Submitted:
        """Submit jobs, and one that runs when all of them have ended. Returns the answer for that one, the join.

        With a key of the join, members without a key get one of it and of their place: if this program crashes, the
        same call again completes the group. The same happens after an error, which is raised for the first member that
        has one. Members run as soon as they are submitted.
        """
        listed = builtins.list(members)
        base = fresh_name() if join.key is None else join.key
        sized = replace(join, join=Join(len(listed) or None, on_failure))
        joined = await self._submit_one(self._draft(sized, new_key=base))
        named = (
            replace(one, group=joined.job_id, key=one.key or (join.key and f"{base}/{place}"))
            for place, one in enumerate(listed)
        )
        drafts = (self._draft(one, new_key=f"{base}/{place}", turns=BATCH_TURNS) for place, one in enumerate(named))
        for answer in await self._submit_all(drafts):
            if isinstance(answer, CallError):
                raise answer
        if not listed:
            await self.close_group(joined.job_id)
        return joined

    async def get(self, job_id: str, *, wait: float = 0.0) -> JobInfo:
        """The current state of a job; `wait` (at most 30 seconds) is a long poll for its end."""
        return await self._caller.facts_as(answers.job_info, _look(job_id, wait))

    async def wait(self, job_id: str, seconds: float | None = None) -> JobInfo:
        """The job at its end, or its state after `seconds`; None waits without a limit."""
        network = self._caller.transport.network
        deadline = None if seconds is None else network.now() + seconds
        while True:
            asked = network.now()
            left = MOST_WAIT_SECONDS if deadline is None else max(0.0, min(MOST_WAIT_SECONDS, deadline - asked))
            job = await self._caller.facts_as(answers.job_info, _look(job_id, left, _look(job_id, 0.0)))
            if job.has_ended or left == 0:
                return job
            # A server that is stopping answers at once, and so does one that is asked without a wait.
            await network.sleep(max(0.0, min(LOOK_SECONDS, left) - (network.now() - asked)))

    async def result(self, job_id: str, *, wait: float = 0.0) -> Outcome:
        """The verified outcome of a job. Waits `wait` seconds for its end, else raises `NotFinishedError`."""
        job = await self.wait(job_id, wait)
        if not job.has_ended:
            raise NotFinishedError(f"The job {job.job_id} is {job.state}.")
        return await self._get(lambda facts: answers.outcome(facts, self._hmac_key), job_path(job_id, "result"))

    async def lookup(
        self, *, key: str | None = None, request_id: str | None = None, principal: str | None = None
    ) -> JobInfo:
        """The job of a key, or of the request id in the answer to its submission.

        An administrator may pass the `principal` that owns the key; by default it is the caller.
        """
        if (key is None) == (request_id is None):
            raise InvalidArgumentError("Pass a key or a request_id, not both.")
        if principal is not None and key is None:
            raise InvalidArgumentError("A principal needs a key.")
        fields = {"idempotency_key": key, "request_id": request_id, "principal": principal}
        facts = await self._ask(f"{PATH}/lookup", spliced(fields))
        return read(lambda: answers.job_info(facts))

    async def cancel(self, job_id: str, *, force: bool = False, members: bool = False) -> Cancellation:
        """Cancel a waiting job. For a running one, notify its worker, or with `force` end its lease.

        `members` also cancels the members of its group, or its children.
        """
        fields = {"force": force, "members": members or None}
        return await self._post(answers.cancelled, job_path(job_id, "cancel"), spliced(fields))

    async def cancel_all(
        self, *, state: State | None = None, queue: str | None = None, kind: str | None = None, force: bool = False
    ) -> int:
        """Cancel the jobs of a list, one by one; those that have ended stay as they are. Returns how many it cancelled
        or asked to stop.

        Jobs that are submitted meanwhile may be left. If it ends with an error, call it again for the rest.
        """
        count = 0
        async for job in self.walk(state=state, queue=queue, kind=kind):
            if job.has_ended:
                continue
            done = await self.cancel(job.job_id, force=force)
            count += done.cancel_requested or done.facts.get("reason") == "cancelled"
        return count

    async def resolve(self, identity: JobKey) -> Resolution:
        """Whether the key of a submission has a job, without submitting it again."""
        try:
            job = await self.lookup(key=identity.key)
        except NotFoundError:
            return Resolution(identity, False, {})
        return Resolution(identity, True, {"job_id": job.job_id, "request_id": job.request_id, "state": job.state})


def _look(job_id: str, wait: float, unwaited: ClientRequest | None = None) -> ClientRequest:
    """The request for a job; `unwaited` is sent instead where no connection is free for a wait."""
    path = queried(job_path(job_id), {"wait_ms": milliseconds(wait) or None})
    return ClientRequest("GET", path, wait=wait, unwaited=unwaited if wait else None)


def submitted(facts: Mapping[str, Any], sent: SentJob) -> Submitted:
    """The answer to a submission."""
    return answers.submitted(facts, sent.key or "")


class Jobs(BlockingCalls[AsyncJobs]):
    """The jobs of one server, from synchronous code."""

    submit = blocking(AsyncJobs.submit)
    submit_request = blocking(AsyncJobs.submit_request)
    submit_many = blocking(AsyncJobs.submit_many)
    submit_group = blocking(AsyncJobs.submit_group)
    submit_text = blocking(AsyncJobs.submit_text)
    submit_texts = blocking(AsyncJobs.submit_texts)
    get = blocking(AsyncJobs.get)
    wait = blocking(AsyncJobs.wait)
    result = blocking(AsyncJobs.result)
    lookup = blocking(AsyncJobs.lookup)
    cancel = blocking(AsyncJobs.cancel)
    cancel_all = blocking(AsyncJobs.cancel_all)
    resolve = blocking(AsyncJobs.resolve)

    list = blocking(AsyncJobs.list)
    walk = blocking_iterator(AsyncJobs.walk)
    dead = blocking(AsyncJobs.dead)
    walk_dead = blocking_iterator(AsyncJobs.walk_dead)
    members = blocking(AsyncJobs.members)
    walk_members = blocking_iterator(AsyncJobs.walk_members)
    close_group = blocking(AsyncJobs.close_group)
    requeue = blocking(AsyncJobs.requeue)
    release_key = blocking(AsyncJobs.release_key)
    queues = blocking(AsyncJobs.queues)
    queue = blocking(AsyncJobs.queue)
    set_queue = blocking(AsyncJobs.set_queue)
    reset_queue = blocking(AsyncJobs.reset_queue)
    schedules = blocking(AsyncJobs.schedules)
    schedule = blocking(AsyncJobs.schedule)
    set_schedule = blocking(AsyncJobs.set_schedule)
    delete_schedule = blocking(AsyncJobs.delete_schedule)

    claim = blocking(AsyncJobs.claim)
    heartbeat = blocking(AsyncJobs.heartbeat)
    complete = blocking(AsyncJobs.complete)
    fail = blocking(AsyncJobs.fail)
    defer = blocking(AsyncJobs.defer)
    submit_child = blocking(AsyncJobs.submit_child)
    step = blocking(AsyncJobs.step)
    store_step = blocking(AsyncJobs.store_step)
