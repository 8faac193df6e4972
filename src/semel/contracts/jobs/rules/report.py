"""Reports of workers: the holder of the lease decides, and a repeated report gets the same answer.

| the job is | token | answer |
|---|---|---|
| leased | the current one, until the reaper has committed | taken |
| leased, or waiting again after a reap | another | `lease_lost` |
| finished by this token | same outcome, same hash | answered again, nothing written |
| finished by this token | another outcome or hash | `result_conflict` |
| ended cancelled by this token's own `defer` | `defer` | answered again, nothing written |
| waiting by this token's own `fail` or `defer` | the same call | answered again, nothing written |
| finished otherwise | any | `lease_lost`, with the final status |
| never claimed | none, where that is allowed | taken as an outside completion |
| claimed before | none | `lease_required` |

The checksum is checked last: a worker that comes too late does not learn whether it was right.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from semel.contracts.jobs.commands import Defer, Heartbeat, Held, Note, Refusal, Report, Reported
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.rules.ends import (
    CANCELLED,
    TOPIC_READY,
    Ending,
    conclude,
    end_keys,
    failure,
    topic_of,
    with_error,
)
from semel.contracts.jobs.rules.integrity import MISSING
from semel.contracts.jobs.rules.reach import reaches
from semel.contracts.jobs.rules.reap import confirmed
from semel.contracts.jobs.rules.retries import delay_ms
from semel.contracts.jobs.rules.states import End, Event, State, status_of, transition
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.rules.tokens import epoch_of, is_current
from semel.contracts.jobs.tables import ALONE, DONE, JOB, JOB_SEAL, LEASED, WAITING, JobRow
from semel.engine.contract import Outcome, Stage, View
from semel.kernel.clock import Now
from semel.kernel.retention import NEVER
from semel.store.protocol import Touch

NO_JOB = Refusal("jobs:not_found", "There is no such job here.", {})
_LOST = "This lease is no longer held: stop working on the job and drop its result."
_REQUIRED = "Only the holder of its lease can report on a job: send the lease_token that the claim gave."
_CONFLICT = "This lease has already reported another outcome; the first one stands."
_UNSOUND = "The checksum or signature does not fit the report: compute it again and send it again."
_UNPROVED = "A report needs an `integrity` member here: a sha256 of it, and a signature if one is asked for."

_OWN = {
    (DONE, True): {End.COMPLETED.value, End.CONCLUDED.value},
    (DONE, False): {End.FAILED.value, End.CONCLUDED_FAILED.value},
    (WAITING, True): set(),
    (WAITING, False): {End.FAILED.value},
}
"""The ends of a job that a repeated report of this kind can have caused."""

_REPORTED = {End.COMPLETED.value, End.FAILED.value, End.CONCLUDED.value, End.CONCLUDED_FAILED.value}


def lease_needs(job_id: bytes) -> Generator[Stage, View, None]:
    """The job and the secret of its token; then what its end would change."""
    view = yield Stage(keys=[(JOB, (job_id,)), (JOB_SEAL, ALONE)])
    job = view.get(JOB, (job_id,))
    if job is not None:
        yield Stage(keys=[*counted_keys(job), *end_keys(job)])


def secret_of(view: View) -> bytes:
    """The secret of lease tokens; empty before the first claim."""
    row = view.get(JOB_SEAL, ALONE)
    return b"" if row is None else row.secret


def heartbeat(view: View, command: Heartbeat, now: Now) -> Outcome:
    """Hold on to a lease: a full period from now, never less than there was.

    The one that makes an offer a lease is stored as anything else: a crash that forgot it would leave an offer, and an
    offer that lapses is no attempt, although its worker has begun to work. All others are soft.
    """
    job = view.get(JOB, (command.id,))
    if job is None:
        return Outcome(NO_JOB)
    secret = secret_of(view)
    if job.phase != LEASED or not is_current(secret, job, command.token):
        return Outcome(fenced(secret, job, command.token))
    held = confirmed(job, now)
    answer = Held(now.ms + held.due_at - now.steady_ms, bool(job.cancel))
    if job.offered:
        view.put(JOB, held if command.progress is None else held._replace(progress=command.progress))
        return Outcome(answer)
    key, life = (job.id,), ("lease", job.lease)
    touches = [Touch(JOB, key, "due_at", held.due_at, *life)]
    if command.progress is not None:
        beat_at = max(now.steady_ms, job.beat_at + 1)
        touches.append(Touch(JOB, key, "beat_at", beat_at, *life, "progress", command.progress))
    return Outcome(answer, touches=touches)


def report(view: View, command: Report, policy: Policy, now: Now) -> Outcome:
    """Conclude a run."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return Outcome(NO_JOB)
    secret = secret_of(view)
    verdict = _verdict(secret, job, command)
    if verdict is not None:
        return Outcome(verdict)
    if command.flaw:
        return Outcome(_disbelieve(job, command))
    tally = Tally(view, policy, now)
    outcome = _complete(tally, job, command) if command.ok else _fail(tally, job, command)
    tally.store()
    return outcome


def defer(view: View, command: Defer, policy: Policy, now: Now) -> Outcome:
    """Put a job off, uncharged."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return Outcome(NO_JOB)
    secret = secret_of(view)
    is_mine = is_current(secret, job, command.token)
    if is_mine and _is_deferred(job, command):
        return Outcome(Reported(job, dedup=True))
    if job.phase != LEASED or not is_mine:
        return Outcome(fenced(secret, job, command.token))
    tally = Tally(view, policy, now)
    row = transition(job, Event.DEFER, tally.now.ms)
    assert row is not None
    if row.reason is not None:
        done, notes = conclude(tally, job, failure(job, End.DEFERRED, row.reason, CANCELLED))
        tally.store()
        return Outcome(_reported(tally, job, done, notes), signals=(topic_of(job.id), TOPIC_READY))
    waiting = job._replace(
        phase=WAITING,
        ready_at=tally.now.ms + command.delay_ms,
        due_at=NEVER,
        attempt=job.attempt - 1,
        deferrals=job.deferrals + 1,
        ended_by=End.DEFERRED.value,
        report=command.digest,
    )
    tally.move(job, waiting)
    tally.store()
    return Outcome(Reported(waiting, dedup=False), signals=(TOPIC_READY,))


def _is_deferred(job: JobRow, command: Defer) -> bool:
    """Whether this call has put the job where it is: off, or to its end when its owner had cancelled it."""
    if job.ended_by != End.DEFERRED.value:
        return False
    return job.phase == DONE or (job.phase == WAITING and job.report == command.digest)


def fenced(secret: bytes, job: JobRow, given: bytes | None) -> Refusal:
    """The refusal of a worker that is late, or never held the lease."""
    facts: dict[str, Any] = {"job_id": job_name(job.id), "status": status_of(job)}
    note = {
        "job_id": job_name(job.id),
        "epoch_given": epoch_of(secret, job, given),
        "epoch": job.epoch,
        "worker_id": job.worker.decode(),
    }
    return Refusal("jobs:lease_lost", _LOST, facts, (Note("LEASE_FENCED", note),))


def _verdict(secret: bytes, job: JobRow, command: Report) -> Reported | Refusal | None:
    """The refusal of a worker that may not change the job; None for one that may."""
    if command.token is None:
        return _verdict_without_token(secret, job, command)
    if not is_current(secret, job, command.token):
        return fenced(secret, job, command.token)
    if job.phase == LEASED:
        return None
    return _repeated(secret, job, command)


def _verdict_without_token(secret: bytes, job: JobRow, command: Report) -> Reported | Refusal | None:
    if command.reach is not None and not reaches(command.reach, job.queue):
        return NO_JOB
    if job.epoch or not command.is_foreign:
        return Refusal("jobs:lease_required", _REQUIRED, {"job_id": job_name(job.id), "status": status_of(job)})
    return _repeated(secret, job, command) if job.phase == DONE else None


def _repeated(secret: bytes, job: JobRow, command: Report) -> Reported | Refusal:
    """A report on a job that this lease no longer holds."""
    if job.ended_by in _OWN[job.phase, command.ok] and job.report == command.digest:
        return Reported(job, dedup=True)
    if job.phase == DONE and job.ended_by in _REPORTED:
        facts = {"job_id": job_name(job.id), "status": status_of(job)}
        note = {"job_id": job_name(job.id), "epoch": job.epoch, "worker_id": job.worker.decode()}
        return Refusal("jobs:result_conflict", _CONFLICT, facts, (Note("RESULT_CONFLICT", note),))
    return fenced(secret, job, command.token)


def _disbelieve(job: JobRow, command: Report) -> Refusal:
    is_missing = command.flaw == MISSING
    note = Note(
        "RESULT_INTEGRITY_FAIL",
        {"job_id": job_name(job.id), "mode": command.mode, "reason": command.flaw, "worker_id": job.worker.decode()},
    )
    code = "jobs:integrity_missing" if is_missing else "jobs:result_integrity_fail"
    return Refusal(code, _UNPROVED if is_missing else _UNSOUND, {"job_id": job_name(job.id)}, (note,))


def _complete(tally: Tally, job: JobRow, command: Report) -> Outcome:
    was_leased = job.phase == LEASED
    event = Event.COMPLETE if was_leased else Event.CONCLUDE
    row = transition(job, event, tally.now.ms)
    assert row is not None
    assert row.target is State.COMPLETED
    by = End.COMPLETED if was_leased else End.CONCLUDED
    done, notes = conclude(tally, job, Ending(by, None, command.value, command.digest))
    return Outcome(_reported(tally, job, done, notes), signals=(topic_of(job.id), TOPIC_READY))


def _fail(tally: Tally, job: JobRow, command: Report) -> Outcome:
    errors = with_error(tally, job, command.error_code, command.error_message)
    was_leased = job.phase == LEASED
    event = Event.FAIL if was_leased else Event.CONCLUDE_FAILED
    row = transition(job, event, tally.now.ms, is_permanent=was_leased and not command.retryable)
    assert row is not None
    if row.reason is not None:
        by = End.FAILED if was_leased else End.CONCLUDED_FAILED
        done, notes = conclude(tally, job, Ending(by, row.reason, command.value, command.digest), errors=errors)
        return Outcome(_reported(tally, job, done, notes), signals=(topic_of(job.id), TOPIC_READY))
    rest_ms = delay_ms(tally.policy, job.id, job.attempt, command.retry_after_ms)
    waiting = job._replace(
        phase=WAITING,
        ready_at=tally.now.ms + rest_ms,
        due_at=NEVER,
        ended_by=End.FAILED.value,
        report=command.digest,
        errors=errors,
    )
    tally.move(job, waiting)
    facts = {"job_id": job_name(job.id), "attempt": job.attempt, "reason": "failed", "delay_ms": rest_ms}
    return Outcome(_reported(tally, job, waiting, [Note("RETRY_SCHEDULED", facts)]), signals=(TOPIC_READY,))


def _reported(tally: Tally, before: JobRow, after: JobRow, notes: list[Note]) -> Reported:
    ran_ms = max(0, tally.now.steady_ms - before.claimed_at) if before.phase == LEASED else None
    return Reported(after, dedup=False, notes=tuple(notes), ran_ms=ran_ms)
