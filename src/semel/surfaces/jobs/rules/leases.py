"""Calls of a worker that holds a lease: heartbeat, report, deferral, steps; and the lease tokens that fence them.

A token cannot be guessed, is new with every claim, and is derived from stored data instead of being stored itself.

| the job is | token | answer |
|---|---|---|
| leased | the current one, until the reaper has committed | accepted |
| leased, or waiting again after a reap | another | `lease_lost` |
| finished by this token | same outcome, same hash | answered again, nothing written |
| finished by this token | another outcome or hash | `result_conflict` |
| ended cancelled by this token's own `defer` | `defer` | answered again, nothing written |
| waiting by this token's own `fail` or `defer` | the same call | answered again, nothing written |
| finished otherwise | any | `lease_lost`, with the final status |
| never claimed | none, where that is allowed | accepted as an outside completion |
| claimed before | none | `lease_required` |

The checksum is checked last: a worker that is too late does not learn whether its checksum was right. The first stored
result of a step is the result that every later attempt gets.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Touch
from semel.store.table import Key
from semel.surfaces.jobs.commands import (
    DeferJob,
    JobHeartbeat,
    JobNote,
    JobRefused,
    JobReport,
    JobReported,
    JobStep,
    JobStepResult,
    LeaseExtended,
)
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import MAX_STEPS, JobPolicy, reaches
from semel.surfaces.jobs.rules.completion import (
    CANCELLED,
    MISSING,
    TOPIC_READY,
    JobOutcome,
    conclude,
    end_keys,
    failure,
    topic_of,
    with_error,
)
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.groups import hold_for_children, waiter_keys
from semel.surfaces.jobs.rules.reaper import confirmed, delay_ms
from semel.surfaces.jobs.rules.states import JobEvent, JobState, LeaseEnd, status_of, transition
from semel.surfaces.jobs.tables import (
    ALONE,
    DONE,
    JOB,
    JOB_GROUP,
    JOB_SEAL,
    JOB_STEP,
    LEASED,
    WAITING,
    JobRow,
    JobStepRow,
)

TOKEN_BYTES = 16
_BLOCK_BYTES = 64
REMEMBERED_EPOCHS = 64
"""The number of earlier leases whose tokens are recognised; only for the audit log of late workers."""


def token(secret: bytes, job_id: bytes, epoch: int) -> bytes:
    """The token of one lease: HMAC-SHA256, from the two states that depend on the secret alone.

    `hmac.digest` sets both up for each call, and takes five times as long.
    """
    inner, outer = _states(secret)
    first, second = inner.copy(), outer.copy()
    first.update(job_id + epoch.to_bytes(8, "big"))
    second.update(first.digest())
    made: bytes = second.digest()
    return made[:TOKEN_BYTES]


@lru_cache(maxsize=8)
def _states(secret: bytes) -> tuple[Any, Any]:
    """SHA-256 of the two padded keys, to be copied."""
    key = (secret if len(secret) <= _BLOCK_BYTES else sha256(secret).digest()).ljust(_BLOCK_BYTES, b"\0")
    return sha256(bytes(byte ^ 0x36 for byte in key)), sha256(bytes(byte ^ 0x5C for byte in key))


def is_current(secret: bytes, job: JobRow, given: bytes | None) -> bool:
    """Whether a token is that of the job's latest lease."""
    return bool(given) and job.epoch > 0 and compare_digest(token(secret, job.id, job.epoch), given or b"")


def epoch_of(secret: bytes, job: JobRow, given: bytes | None) -> int | None:
    """The epoch of the lease that a token belonged to; None for an unknown or too old one."""
    if given is None:
        return None
    for epoch in range(job.epoch, max(0, job.epoch - REMEMBERED_EPOCHS), -1):
        if compare_digest(token(secret, job.id, epoch), given):
            return epoch
    return None


NO_JOB = JobRefused(Refusal("jobs:not_found", "There is no such job here."))
_LOST = "This lease is no longer held: stop working on the job and drop its result."
_REQUIRED = "Only the holder of its lease can report on a job: send the lease_token that the claim gave."
_CONFLICT = "This lease has already reported another outcome; the first one stands."
_UNSOUND = "The checksum or signature does not fit the report: compute it again and send it again."
_UNPROVED = "A report needs an `integrity` member here: a sha256 of it, and a signature if one is asked for."

_OWN = {
    (DONE, True): {LeaseEnd.COMPLETED.value, LeaseEnd.CONCLUDED.value},
    (DONE, False): {LeaseEnd.FAILED.value, LeaseEnd.CONCLUDED_FAILED.value},
    (WAITING, True): set(),
    (WAITING, False): {LeaseEnd.FAILED.value},
}
"""The ends of a job that a repeated report of this kind can have caused."""

_REPORTED = {LeaseEnd.COMPLETED.value, LeaseEnd.FAILED.value, LeaseEnd.CONCLUDED.value, LeaseEnd.CONCLUDED_FAILED.value}


def lease_needs(job_id: bytes) -> Generator[Stage, View, None]:
    """The job and the secret of its token; then the rows that its end would change."""
    view = yield Stage(keys=[(JOB, (job_id,)), (JOB_SEAL, ALONE)])
    job = view.get(JOB, (job_id,))
    if job is not None:
        own: list[tuple[AnyTable, Key]] = [(JOB_GROUP, (job_id,))] if job.links else []
        view = yield Stage(keys=[*counted_keys(job), *end_keys(job), *own])
        if job.links:
            yield Stage(keys=waiter_keys(view, [job]))


def secret_of(view: View) -> bytes:
    """The secret of lease tokens; empty before the first claim."""
    row = view.get(JOB_SEAL, ALONE)
    return b"" if row is None else row.secret


SEAL_KEY = ALONE
"""The key of the row with the secret of lease tokens."""


def renew_seal(view: View, epoch: int) -> None:
    """Change the secret of lease tokens, in a new epoch of the store.

    A restored store counts the leases of a job again from an earlier number. With the old secret a new lease could get
    the token of a lost one, and a worker of the lost history could report in place of the new holder.
    """
    row = view.get(JOB_SEAL, SEAL_KEY)
    if row is not None:
        view.put(JOB_SEAL, row._replace(secret=sha256(row.secret + epoch.to_bytes(8, "big")).digest()))


def heartbeat(view: View, command: JobHeartbeat, now: Now) -> DecisionResult:
    """Extend a lease to its full length from now, never to less than before.

    The first heartbeat, which turns an offer into a lease, is durable: if a crash lost it, the offer would lapse
    without counting as an attempt, although the worker has started. All later heartbeats are soft changes.
    """
    job = view.get(JOB, (command.id,))
    if job is None:
        return DecisionResult(NO_JOB)
    secret = secret_of(view)
    if job.phase != LEASED or not is_current(secret, job, command.token):
        return DecisionResult(fenced(secret, job, command.token))
    held = confirmed(job, now)
    answer = LeaseExtended(now.ms + held.due_at - now.steady_ms, bool(job.cancel))
    if job.offered:
        view.put(JOB, held if command.progress is None else held._replace(progress=command.progress))
        return DecisionResult(answer)
    key, life = (job.id,), ("lease", job.lease)
    touches = [Touch(JOB, key, "due_at", held.due_at, *life)]
    if command.progress is not None:
        beat_at = max(now.steady_ms, job.beat_at + 1)
        touches.append(Touch(JOB, key, "beat_at", beat_at, *life, "progress", command.progress))
    return DecisionResult(answer, touches=touches)


def report(view: View, command: JobReport, policy: JobPolicy, now: Now) -> DecisionResult:
    """End a run."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return DecisionResult(NO_JOB)
    secret = secret_of(view)
    verdict = _verdict(secret, job, command)
    if verdict is not None:
        return DecisionResult(verdict)
    if command.flaw:
        return DecisionResult(_disbelieve(job, command))
    counters = JobCounters(view, policy, now)
    outcome = _complete(counters, job, command) if command.ok else _fail(counters, job, command)
    counters.store()
    return outcome


def defer(view: View, command: DeferJob, policy: JobPolicy, now: Now) -> DecisionResult:
    """Put a job back with a delay; the run does not count as an attempt."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return DecisionResult(NO_JOB)
    secret = secret_of(view)
    is_mine = is_current(secret, job, command.token)
    if is_mine and _is_deferred(job, command):
        return DecisionResult(JobReported(job, dedup=True))
    if job.phase != LEASED or not is_mine:
        return DecisionResult(fenced(secret, job, command.token))
    counters = JobCounters(view, policy, now)
    row = transition(job, JobEvent.DEFER, counters.now.ms)
    assert row is not None
    if row.reason is not None:
        done, notes = conclude(counters, job, failure(job, LeaseEnd.DEFERRED, row.reason, CANCELLED))
        counters.store()
        return DecisionResult(_reported(counters, job, done, notes), signals=(topic_of(job.id), TOPIC_READY))
    waits = command.waits_children and hold_for_children(counters, job)
    waiting = job._replace(
        phase=WAITING,
        ready_at=NEVER if waits else counters.now.ms + command.delay_ms,
        due_at=NEVER,
        attempt=job.attempt - 1,
        deferrals=job.deferrals + 1,
        ended_by=LeaseEnd.DEFERRED.value,
        report=command.digest,
    )
    counters.move(job, waiting)
    counters.store()
    return DecisionResult(JobReported(waiting, dedup=False), signals=(TOPIC_READY,))


def _is_deferred(job: JobRow, command: DeferJob) -> bool:
    """Whether this same call deferred the job, or ended it because its owner had cancelled it."""
    if job.ended_by != LeaseEnd.DEFERRED.value:
        return False
    return job.phase == DONE or (job.phase == WAITING and job.report == command.digest)


def fenced(secret: bytes, job: JobRow, given: bytes | None) -> JobRefused:
    """The refusal of a worker that is late, or never held the lease."""
    facts: dict[str, Any] = {"job_id": job_name(job.id), "status": status_of(job)}
    note = {
        "job_id": job_name(job.id),
        "epoch_given": epoch_of(secret, job, given),
        "epoch": job.epoch,
        "worker_id": job.worker.decode(),
    }
    return JobRefused(Refusal("jobs:lease_lost", _LOST, facts), (JobNote("LEASE_FENCED", note),))


def _verdict(secret: bytes, job: JobRow, command: JobReport) -> JobReported | JobRefused | None:
    """The refusal of a worker that may not change the job; None if it may."""
    if command.token is None:
        return _verdict_without_token(secret, job, command)
    if not is_current(secret, job, command.token):
        return fenced(secret, job, command.token)
    if job.phase == LEASED:
        return None
    return _repeated(secret, job, command)


def _verdict_without_token(secret: bytes, job: JobRow, command: JobReport) -> JobReported | JobRefused | None:
    if command.reach is not None and not reaches(command.reach, job.queue):
        return NO_JOB
    if job.epoch or not command.is_foreign:
        facts = {"job_id": job_name(job.id), "status": status_of(job)}
        return JobRefused(Refusal("jobs:lease_required", _REQUIRED, facts))
    return _repeated(secret, job, command) if job.phase == DONE else None


def _repeated(secret: bytes, job: JobRow, command: JobReport) -> JobReported | JobRefused:
    """The answer to a report on a job that this lease no longer holds."""
    if job.ended_by in _OWN[job.phase, command.ok] and job.report == command.digest:
        return JobReported(job, dedup=True)
    if job.phase == DONE and job.ended_by in _REPORTED:
        facts = {"job_id": job_name(job.id), "status": status_of(job)}
        note = {"job_id": job_name(job.id), "epoch": job.epoch, "worker_id": job.worker.decode()}
        return JobRefused(Refusal("jobs:result_conflict", _CONFLICT, facts), (JobNote("RESULT_CONFLICT", note),))
    return fenced(secret, job, command.token)


def _disbelieve(job: JobRow, command: JobReport) -> JobRefused:
    is_missing = command.flaw == MISSING
    note = JobNote(
        "RESULT_INTEGRITY_FAIL",
        {"job_id": job_name(job.id), "mode": command.mode, "reason": command.flaw, "worker_id": job.worker.decode()},
    )
    code = "jobs:integrity_missing" if is_missing else "jobs:result_integrity_fail"
    return JobRefused(Refusal(code, _UNPROVED if is_missing else _UNSOUND, {"job_id": job_name(job.id)}), (note,))


def _complete(counters: JobCounters, job: JobRow, command: JobReport) -> DecisionResult:
    was_leased = job.phase == LEASED
    event = JobEvent.COMPLETE if was_leased else JobEvent.CONCLUDE
    row = transition(job, event, counters.now.ms)
    assert row is not None
    assert row.target is JobState.COMPLETED
    by = LeaseEnd.COMPLETED if was_leased else LeaseEnd.CONCLUDED
    done, notes = conclude(counters, job, JobOutcome(by, None, command.value, command.digest))
    return DecisionResult(_reported(counters, job, done, notes), signals=(topic_of(job.id), TOPIC_READY))


def _fail(counters: JobCounters, job: JobRow, command: JobReport) -> DecisionResult:
    errors = with_error(counters, job, command.error_code, command.error_message)
    was_leased = job.phase == LEASED
    event = JobEvent.FAIL if was_leased else JobEvent.CONCLUDE_FAILED
    row = transition(job, event, counters.now.ms, is_permanent=was_leased and not command.retryable)
    assert row is not None
    if row.reason is not None:
        by = LeaseEnd.FAILED if was_leased else LeaseEnd.CONCLUDED_FAILED
        done, notes = conclude(counters, job, JobOutcome(by, row.reason, command.value, command.digest), errors=errors)
        return DecisionResult(_reported(counters, job, done, notes), signals=(topic_of(job.id), TOPIC_READY))
    rest_ms = delay_ms(counters.policy, job.id, job.attempt, command.retry_after_ms)
    waiting = job._replace(
        phase=WAITING,
        ready_at=counters.now.ms + rest_ms,
        due_at=NEVER,
        ended_by=LeaseEnd.FAILED.value,
        report=command.digest,
        errors=errors,
    )
    counters.move(job, waiting)
    facts = {"job_id": job_name(job.id), "attempt": job.attempt, "reason": "failed", "delay_ms": rest_ms}
    return DecisionResult(
        _reported(counters, job, waiting, [JobNote("RETRY_SCHEDULED", facts)]), signals=(TOPIC_READY,)
    )


def _reported(counters: JobCounters, before: JobRow, after: JobRow, notes: list[JobNote]) -> JobReported:
    ran_ms = max(0, counters.now.steady_ms - before.claimed_at) if before.phase == LEASED else None
    return JobReported(after, dedup=False, notes=tuple(notes), ran_ms=ran_ms)


def step_needs(command: JobStep) -> Generator[Stage, View, None]:
    """The job, the secret of its token, and the step."""
    yield Stage(keys=[(JOB, (command.id,)), (JOB_SEAL, ALONE), (JOB_STEP, (command.id, command.key))])


def step(view: View, command: JobStep, now: Now) -> DecisionResult:
    """Return the stored result, or store this one. This turns an offer into a lease."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return DecisionResult(NO_JOB)
    secret = secret_of(view)
    if job.phase != LEASED or not is_current(secret, job, command.token):
        return DecisionResult(fenced(secret, job, command.token))
    if job.offered:
        job = confirmed(job, now)
        view.put(JOB, job)
    known = view.get(JOB_STEP, (command.id, command.key))
    if known is not None:
        return DecisionResult(JobStepResult(known.result, dedup=command.result is not None))
    if command.result is None:
        return DecisionResult(JobStepResult(None, dedup=False))
    if job.steps >= MAX_STEPS:
        message = f"A job may have at most {MAX_STEPS} steps."
        return DecisionResult(JobRefused(Refusal("jobs:too_large", message, {"job_id": job_name(job.id)})))
    view.insert(JOB_STEP, JobStepRow(command.id, command.key, command.result))
    view.put(JOB, job._replace(steps=job.steps + 1))
    return DecisionResult(JobStepResult(command.result, dedup=False))
