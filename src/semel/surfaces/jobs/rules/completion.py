"""Completion and revival of a job: effects on its key and the dead letter queue; hash and signature of its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, NamedTuple

import orjson

from semel.kernel.hashes import parsed_bytes, report_bytes
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobNote
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import ERRORS_KEPT
from semel.surfaces.jobs.rules.counters import JobCounters
from semel.surfaces.jobs.rules.groups import count_end, count_revival, group_keys, waits_again
from semel.surfaces.jobs.rules.idempotency import expiry_place, expiry_table, key_until_of
from semel.surfaces.jobs.rules.links import links_of
from semel.surfaces.jobs.rules.states import DEAD_REASONS, FailureReason, LeaseEnd
from semel.surfaces.jobs.tables import (
    DONE,
    INLINE_BYTES,
    JOB_DEAD,
    JOB_PART,
    RESULT,
    WAITING,
    JobExpiryRow,
    JobPartRow,
    JobRow,
)

SHA_MISMATCH, SIG_MISMATCH, MISSING = "sha_mismatch", "sig_mismatch", "missing_integrity"


class JobReportProof(NamedTuple):
    """The hash or signature that a worker sent with its report."""

    sha256: str
    sig: str | None


class JobSigning(NamedTuple):
    """The integrity check that the server requires."""

    needs_proof: bool = False
    hmac_key: bytes = b""
    """The key of signatures; empty if they are not required."""


def envelope(ok: bool, value: bytes) -> bytes:
    """The end of a job as it is cached and replayed."""
    return b'{"ok":true,"result":%s}' % value if ok else b'{"error":%s,"ok":false}' % value


def envelope_bytes(ok: bool, value_bytes: int) -> int:
    """The size of the envelope, without building it."""
    return value_bytes + len(envelope(ok, b""))


def digest_of(job_id: bytes, ok: bool, value: bytes) -> bytes:
    """The hash that identifies a result."""
    return sha256(report_bytes(job_name(job_id), ok, value)).digest()


def flaw_of(
    name: str,
    ok: bool,
    python_text: Callable[[], bytes],
    value: bytes,
    proof: JobReportProof | None,
    signing: JobSigning,
) -> str:
    """Why a report is rejected; empty if it is valid. Its value is canonical, or as Python prints it."""
    if proof is None:
        return MISSING if signing.needs_proof or signing.hmac_key else ""
    texts = (report_bytes(name, ok, text) for text in (value, python_text()))
    believed = [text for text in texts if compare_digest(sha256(text).hexdigest(), proof.sha256)]
    if not believed:
        return SHA_MISMATCH
    if signing.hmac_key:
        given = proof.sig or ""
        if not any(compare_digest(digest(signing.hmac_key, text, sha256).hex(), given) for text in believed):
            return SIG_MISMATCH
    return ""


def python_print(value: Any) -> bytes:
    """A value as `json.dumps` prints it with sorted names and no spaces: 1.0 stays 1.0."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


MOST_EVICTED = 16
FINISHED = "JOB_FINISHED"
"""The name of the note of every end; it is counted, not written to the audit log."""
CANCELLED = "The job was cancelled."
TOPIC_READY = b"jobs"
"""The topic of callers that wait for a job to claim."""


def topic_of(job_id: bytes) -> bytes:
    """The topic of callers that wait for the end of one job."""
    return b"job:" + job_id


def topic_of_worker(principal: bytes, worker: bytes) -> bytes:
    """The topic of the long polls of a worker: it has let a lease or an offer expire."""
    return b"worker:" + sha256(len(principal).to_bytes(2, "big") + principal + worker).digest()[:16]


class JobOutcome(NamedTuple):
    """The end of a job: its value is the canonical result, or the error."""

    by: LeaseEnd
    reason: FailureReason | None
    value: bytes
    digest: bytes


def failure(job: JobRow, by: LeaseEnd, reason: FailureReason, message: str, **facts: Any) -> JobOutcome:
    """The outcome of a job that no worker reported."""
    value = parsed_bytes({"code": reason.value, "message": message, **facts})
    return JobOutcome(by, reason, value, digest_of(job.id, False, value))


def conclude(counters: JobCounters, job: JobRow, ending: JobOutcome, **changes: Any) -> tuple[JobRow, list[JobNote]]:
    """End a job: its row, the expiry of its key, and an entry of the dead letter queue if it failed."""
    now_ms, policy = counters.now.ms, counters.policy
    key_until = key_until_of(job, policy, now_ms)
    expires_at = abs(key_until)
    if key_until:
        table = expiry_table(is_generated=key_until < 0)
        counters.view.insert(table, JobExpiryRow(expires_at, job.id, job.principal, job.key))
    is_small = len(ending.value) <= INLINE_BYTES
    links = links_of(job.links)
    kept_until = max(expires_at, links.kept_until, now_ms + policy.key_ttl_ms if links.has_aliases else 0)
    done = job._replace(
        phase=DONE,
        finished_at=now_ms,
        due_at=max(now_ms + policy.retention_ms, kept_until),
        ended_by=ending.by.value,
        reason=b"" if ending.reason is None else ending.reason.value.encode(),
        report=ending.digest,
        result_bytes=len(ending.value),
        result=ending.value if is_small else b"",
        key_until=key_until,
        **changes,
    )
    done = counters.move(job, done)
    count_end(counters, done)
    if not is_small:
        counters.view.insert(JOB_PART, JobPartRow(job.id, RESULT, ending.value))
    finished = JobNote(FINISHED, {"status": "completed" if ending.reason is None else "failed"})
    return done, [finished, *_bury(counters, done, ending.reason)]


def with_error(counters: JobCounters, job: JobRow, code: str, message: str) -> bytes:
    """The last errors of a job, including this one."""
    known = orjson.loads(job.errors) if job.errors else []
    newest = {
        "code": code,
        "message": message,
        "attempt": job.attempt,
        "worker": job.worker.decode(),
        "at": counters.now.ms,
    }
    return orjson.dumps([*known, newest][-ERRORS_KEPT:])


def revive(counters: JobCounters, job: JobRow) -> JobRow:
    """Queue a failed job again, under its own id and key."""
    is_live = counters.now.expiry_ms < abs(job.key_until)
    if is_live:
        counters.view.forget(*expiry_place(job))
    counters.unbury((job.finished_at, job.id))
    if job.result_bytes > INLINE_BYTES:
        counters.view.forget(JOB_PART, (job.id, RESULT))
    again = job._replace(
        phase=WAITING,
        ready_at=NEVER if waits_again(counters, job) else counters.now.ms,
        due_at=NEVER,
        finished_at=0,
        attempt=0,
        revision=job.revision + 1,
        ended_by=LeaseEnd.REVIVED.value,
        cancel=0,
        reason=b"",
        report=b"",
        result_bytes=0,
        result=b"",
        key_until=0 if not is_live else NEVER if job.key_until > 0 else -NEVER,
    )
    again = counters.move(job, again)
    count_revival(counters, again)
    return again


def end_keys(job: JobRow) -> list[tuple[AnyTable, Key]]:
    """The rows, besides counts, that the end of this job or its revival may change; then come `waiter_keys`."""
    return [*([(JOB_DEAD, (job.finished_at, job.id))] if job.phase == DONE else []), *group_keys(job)]


def _bury(counters: JobCounters, job: JobRow, reason: FailureReason | None) -> list[JobNote]:
    if reason not in DEAD_REASONS:
        return []
    assert reason is not None
    facts: Mapping[str, Any] = {"job_id": job_name(job.id), "reason": reason.value, "attempts": job.attempt}
    notes = (
        [JobNote("RETRY_EXHAUSTED", {**facts, "attempt": job.attempt})] if reason is not FailureReason.PERMANENT else []
    )
    if not counters.policy.lists_dead:
        return notes
    counters.bury(job)
    notes.append(JobNote("DLQ_ENQUEUE", facts))
    return [*notes, *_evict(counters)]


def _evict(counters: JobCounters) -> list[JobNote]:
    """Remove the oldest entries of a dead letter queue above its limit; their jobs are kept."""
    most = counters.policy.max_dead
    surplus = min(counters.totals.dead - most, MOST_EVICTED) if most else 0
    if surplus <= 0:
        return []
    oldest = counters.view.range(Range(JOB_DEAD, "", (), surplus))
    for row in oldest:
        counters.unbury((row.died_at, row.id))
    return [JobNote("DLQ_EVICT", {"job_id": job_name(row.id), "reason": "full"}) for row in oldest]
