"""End and revival of a job: the effects on its key, its dead letter and its waiting callers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from semel.contracts.jobs.commands import Note
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.limits import ERRORS_KEPT
from semel.contracts.jobs.rules.integrity import digest_of
from semel.contracts.jobs.rules.states import DEAD_REASONS, End, Reason
from semel.contracts.jobs.rules.tally import Tally
from semel.contracts.jobs.tables import (
    DONE,
    INLINE_BYTES,
    JOB_DEAD,
    JOB_PART,
    JOB_RECORD,
    RESULT,
    WAITING,
    JobPartRow,
    JobRecordRow,
    JobRow,
)
from semel.kernel.job_report import parsed_bytes
from semel.kernel.retention import NEVER, PinnedThenWindow
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key

MOST_EVICTED = 16
FINISHED = "JOB_FINISHED"
"""The name of the note that every end has; it is counted, not written down."""
CANCELLED = "The job was cancelled."
TOPIC_READY = b"jobs"
"""The topic of callers that wait for a job to claim."""


def topic_of(job_id: bytes) -> bytes:
    """The topic of callers that wait for the end of one job."""
    return b"job:" + job_id


def topic_of_worker(principal: bytes, worker: bytes) -> bytes:
    """The long polls of a worker listen to this: it has let a lease or an offer run out."""
    return b"worker:" + sha256(len(principal).to_bytes(2, "big") + principal + worker).digest()[:16]


class Ending(NamedTuple):
    """The end of a job: its value is the canonical result, or the error."""

    by: End
    reason: Reason | None
    value: bytes
    digest: bytes


def failure(job: JobRow, by: End, reason: Reason, message: str, **facts: Any) -> Ending:
    """An end that no worker reported."""
    value = parsed_bytes({"code": reason.value, "message": message, **facts})
    return Ending(by, reason, value, digest_of(job.id, False, value))


def conclude(tally: Tally, job: JobRow, ending: Ending, **changes: Any) -> tuple[JobRow, list[Note]]:
    """The final outcome: the job, its key's last stretch of life, and a place among the dead letters if it failed."""
    now_ms, policy = tally.now.ms, tally.policy
    expires_at = _unpin(tally, job, PinnedThenWindow(policy.key_ttl_ms).expires_at(now_ms))
    is_small = len(ending.value) <= INLINE_BYTES
    done = job._replace(
        phase=DONE,
        finished_at=now_ms,
        due_at=max(now_ms + policy.retention_ms, expires_at),
        ended_by=ending.by.value,
        reason=b"" if ending.reason is None else ending.reason.value.encode(),
        report=ending.digest,
        result_bytes=len(ending.value),
        result=ending.value if is_small else b"",
        **changes,
    )
    done = tally.move(job, done)
    if not is_small:
        tally.view.insert(JOB_PART, JobPartRow(job.id, RESULT, ending.value))
    finished = Note(FINISHED, {"status": "completed" if ending.reason is None else "failed"})
    return done, [finished, *_bury(tally, done, ending.reason)]


def with_error(tally: Tally, job: JobRow, code: str, message: str) -> bytes:
    """The last few errors of a job, this one behind them."""
    known = orjson.loads(job.errors) if job.errors else []
    newest = {
        "code": code,
        "message": message,
        "attempt": job.attempt,
        "worker": job.worker.decode(),
        "at": tally.now.ms,
    }
    return orjson.dumps([*known, newest][-ERRORS_KEPT:])


def revive(tally: Tally, job: JobRow, **changes: Any) -> JobRow:
    """Queue a failed job again, under its own id and key."""
    record = own_record(tally, job)
    if record is not None:
        tally.view.put(JOB_RECORD, record._replace(expires_at=NEVER))
    tally.unbury((job.finished_at, job.id))
    if job.result_bytes > INLINE_BYTES:
        tally.view.forget(JOB_PART, (job.id, RESULT))
    again = job._replace(
        phase=WAITING,
        ready_at=tally.now.ms,
        due_at=NEVER,
        finished_at=0,
        attempt=0,
        revision=job.revision + 1,
        ended_by=End.REVIVED.value,
        cancel=0,
        reason=b"",
        report=b"",
        result_bytes=0,
        result=b"",
        **changes,
    )
    return tally.move(job, again)


def own_record(tally: Tally, job: JobRow) -> JobRecordRow | None:
    """The job's key, unless it was released, has expired, swept or not, or belongs to another job by now."""
    if not job.key:
        return None
    record = tally.view.get(JOB_RECORD, (job.principal, job.key))
    is_live = record is not None and record.job == job.id and tally.now.expiry_ms < record.expires_at
    return record if is_live else None


def end_keys(job: JobRow) -> list[tuple[AnyTable, Key]]:
    """The rows that the end of this job, or its revival, may change besides the counts."""
    keys: list[tuple[AnyTable, Key]] = []
    if job.key:
        keys.append((JOB_RECORD, (job.principal, job.key)))
    if job.phase == DONE:
        keys.append((JOB_DEAD, (job.finished_at, job.id)))
    return keys


def _unpin(tally: Tally, job: JobRow, expires_at: int) -> int:
    record = own_record(tally, job)
    if record is None:
        return 0
    tally.view.put(JOB_RECORD, record._replace(expires_at=expires_at))
    return expires_at


def _bury(tally: Tally, job: JobRow, reason: Reason | None) -> list[Note]:
    if reason not in DEAD_REASONS:
        return []
    assert reason is not None
    facts: Mapping[str, Any] = {"job_id": job_name(job.id), "reason": reason.value, "attempts": job.attempt}
    notes = [Note("RETRY_EXHAUSTED", {**facts, "attempt": job.attempt})] if reason is not Reason.PERMANENT else []
    if not tally.policy.lists_dead:
        return notes
    tally.bury(job)
    notes.append(Note("DLQ_ENQUEUE", facts))
    return [*notes, *_evict(tally)]


def _evict(tally: Tally) -> list[Note]:
    """The oldest dead letters leave a listing that is too long; their jobs stay."""
    most = tally.policy.max_dead
    surplus = min(tally.totals.dead - most, MOST_EVICTED) if most else 0
    if surplus <= 0:
        return []
    oldest = tally.view.range(Range(JOB_DEAD, "", (), surplus))
    for row in oldest:
        tally.unbury((row.died_at, row.id))
    return [Note("DLQ_EVICT", {"job_id": job_name(row.id), "reason": "full"}) for row in oldest]
