"""Submission: key look-up, capacity check and insertion as one decision.

Steps, in this order: the key (rows J3 to J7 of the idempotency table end here), a slot in the queue, space for a
record, and then record and job together. A crash before the commit leaves neither of them; a crash after it leaves
both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from semel.engine.contract import DecisionResult, Stage, View, demand
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER, Verdict
from semel.store.protocol import AnyTable, Range, Touch
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobAdmitted, JobDraft, JobKeyCollision, JobNote, JobRefused, SubmitJobs
from semel.surfaces.jobs.ids import job_name, new_id, request_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.completion import TOPIC_READY, end_keys, revive, topic_of
from semel.surfaces.jobs.rules.counters import JobCounters, capacity_refusal, counted_keys, expiry_keys
from semel.surfaces.jobs.rules.idempotency import known, unknown, verdict_on
from semel.surfaces.jobs.rules.states import LeaseEnd
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_QUEUED,
    IMPORTED,
    INLINE_BYTES,
    JOB,
    JOB_EXPIRY,
    JOB_KIND,
    JOB_LINE,
    JOB_PART,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SHARE,
    JOB_TENANT,
    JOB_TOTALS,
    LISTED_ACTIVE,
    PARAMS,
    WAITING,
    JobExpiryRow,
    JobPartRow,
    JobRecordRow,
    JobRow,
)

FREED_AT_ONCE = 16
"""The number of expired keys that a submission deletes when the store of keys is full."""

COMING = 1_000
"""The number of further records that the same batch may add; used to decide whether to load expired ones."""

SEEN_MS = 1_000
"""Resolution of a key's last use: retries within a second cause no further changes."""

Answer = JobAdmitted | JobKeyCollision | JobRefused


def submit_needs(command: SubmitJobs, policy: JobPolicy) -> Generator[Stage, View, None]:
    """Counts and keys; then the jobs of the keys."""
    keys: list[tuple[AnyTable, Key]] = [(JOB_TOTALS, ALONE)]
    for draft in command.drafts:
        keys.append((JOB_LINE, (draft.priority, draft.queue)))
        keys.append((JOB_KIND, (draft.kind, draft.priority, draft.queue)))
        keys += [(JOB_QUEUE, (draft.queue,)), (JOB_SHARE, (draft.principal,))]
        if draft.key and policy.is_idempotent:
            keys.append((JOB_RECORD, (draft.principal, draft.key)))
            keys.append((JOB_TENANT, (draft.principal,)))
    view = yield Stage(keys=keys)
    if _is_nearly_full(view, command, policy):
        oldest = _expiring(FREED_AT_ONCE + len(command.drafts))
        view = yield Stage(ranges=[oldest])
        yield Stage(keys=_freed_keys(view.range(oldest), policy))
    held: list[tuple[AnyTable, Key]] = []
    for draft in command.drafts:
        record = _record(view, draft, policy)
        if record is not None:
            held.append((JOB, (record.job,)))
    if not held:
        return
    view = yield Stage(keys=held)
    revivable = [
        pair
        for draft in command.drafts
        if draft.retries_failed and (record := _record(view, draft, policy)) is not None
        for pair in _revival_keys(view.get(JOB, (record.job,)))
    ]
    if revivable:
        yield Stage(keys=revivable)


def _expiring(most: int) -> Range:
    """The keys that expire first; keys of unfinished jobs do not expire."""
    return Range(JOB_EXPIRY, "", (), most)


def _freed_keys(rows: Sequence[JobExpiryRow], policy: JobPolicy) -> list[tuple[AnyTable, Key]]:
    """The rows that are read to delete these keys; an eviction also changes the job."""
    jobs: list[tuple[AnyTable, Key]] = [(JOB, (row.id,)) for row in rows] if policy.evicts else []
    return [*jobs, *(pair for row in rows for pair in expiry_keys(row))]


def _is_nearly_full(view: View, command: SubmitJobs, policy: JobPolicy) -> bool:
    """Whether space for records may be needed, counting other submissions in the same batch."""
    totals = view.get(JOB_TOTALS, ALONE)
    coming = len(command.drafts) + COMING
    return bool(policy.max_records) and (totals.records if totals else 0) + coming > policy.max_records


def submit(view: View, command: SubmitJobs, policy: JobPolicy, now: Now) -> DecisionResult:
    """Decide every draft in order; a later draft may have the key of an earlier one."""
    counters = JobCounters(view, policy, now)
    answers: list[Answer] = []
    touches: list[Touch] = []
    topics: dict[bytes, None] = {}
    for draft in command.drafts:
        answer, touch = _judge(counters, draft)
        answers.append(answer)
        if touch is not None:
            touches.append(touch)
        if isinstance(answer, JobAdmitted) and answer.rule not in ("J3", "J4", "J5"):
            topics[TOPIC_READY] = None
            if answer.rule == "J6":
                topics[topic_of(answer.job.id)] = None
    counters.store()
    return DecisionResult(tuple(answers), signals=tuple(topics), touches=touches)


def admit(counters: JobCounters, draft: JobDraft) -> Answer:
    """Decide one draft, for submissions on behalf of another caller."""
    return _judge(counters, draft)[0]


def _record(view: View, draft: JobDraft, policy: JobPolicy) -> JobRecordRow | None:
    if not draft.key or not policy.is_idempotent:
        return None
    return view.get(JOB_RECORD, (draft.principal, draft.key))


def _revival_keys(job: JobRow | None) -> list[tuple[AnyTable, Key]]:
    if job is None:
        return []
    return [*end_keys(job), *counted_keys(job)]


def _judge(counters: JobCounters, draft: JobDraft) -> tuple[Answer, Touch | None]:
    record = _record(counters.view, draft, counters.policy)
    job = None if record is None else counters.view.get(JOB, (record.job,))
    verdict = verdict_on(record, job, draft.payload_hash, counters.now.expiry_ms)
    if record is not None and job is not None and verdict is not Verdict.FRESH:
        touch = None
        if counters.now.ms - record.seen_at >= SEEN_MS:
            touch = Touch(JOB_RECORD, (draft.principal, draft.key), "seen_at", counters.now.ms, "job", record.job)
        return _meet(counters, draft, record, job, verdict), touch
    return _take_in(counters, draft, record, job), None


def _meet(counters: JobCounters, draft: JobDraft, record: JobRecordRow, job: JobRow, verdict: Verdict) -> Answer:
    """The answer for a key that has not expired."""
    rule = known(verdict, job, retries_failed=draft.retries_failed)
    if rule.name == "J7":
        return _collide(draft, record)
    expires_at = None if job.key_until == NEVER else job.key_until
    notes = [hit_note(draft, job, rule.status)]
    if rule.name == "J6":
        full = capacity_refusal(counters, job.principal, _queue_after(draft, job), is_scheduled=False)
        if full is not None:
            return full
        job, expires_at = _revived(counters, draft, job), None
        notes.append(JobNote("JOB_REVIVED", {"job_id": job_name(job.id), "attempt": 0, "by": "submit"}))
    return JobAdmitted(rule.name, job, expires_at, ignored_fields(draft, job), tuple(notes))


def _queue_after(draft: JobDraft, job: JobRow) -> bytes:
    """The queue of a revived job; see `_revived`."""
    return draft.queue if job.kind == IMPORTED else job.queue


def _revived(counters: JobCounters, draft: JobDraft, job: JobRow) -> JobRow:
    """Revive the same job. A job from another store is known by its hash only: its content comes from this draft."""
    if job.kind != IMPORTED:
        return revive(counters, job)
    if len(draft.params) > INLINE_BYTES:
        counters.view.insert(JOB_PART, JobPartRow(job.id, PARAMS, draft.params))
    return revive(
        counters,
        job,
        kind=draft.kind,
        params=draft.params if len(draft.params) <= INLINE_BYTES else b"",
        params_bytes=len(draft.params),
        queue=draft.queue,
        priority=draft.priority,
        max_attempts=draft.max_attempts,
        lease_ms=draft.lease_ms,
        timeout_ms=draft.timeout_ms,
    )


def _take_in(counters: JobCounters, draft: JobDraft, stale: JobRecordRow | None, former: JobRow | None) -> Answer:
    """Admit a draft whose key is new, absent, or expired; then its record is `stale`, and `former` is the job of it."""
    policy = counters.policy
    rule = unknown(is_idempotent=policy.is_idempotent, has_key=bool(draft.key))
    full = capacity_refusal(
        counters, draft.principal, draft.queue, is_scheduled=_ready_at(counters, draft) > counters.now.ms
    )
    if full is not None:
        return full
    notes: list[JobNote] = []
    if rule.name == "J2" and stale is None:
        refusal = _make_room(counters, draft.principal, notes)
        if refusal is not None:
            return refusal
    job = _new_job(counters, draft, has_key=rule.name == "J2")
    job = counters.add(job)
    if len(draft.params) > INLINE_BYTES:
        counters.view.insert(JOB_PART, JobPartRow(job.id, PARAMS, draft.params))
    if rule.name == "J2":
        now_ms = counters.now.ms
        row = JobRecordRow(draft.principal, draft.key, draft.payload_hash, job.id, now_ms, now_ms)
        counters.view.put(JOB_RECORD, row)
        if former is not None and former.key_until:
            counters.view.forget(JOB_EXPIRY, (former.key_until, former.id))
        if stale is None:
            counters.count_records(draft.principal, 1)
    return JobAdmitted(rule.name, job, None, notes=tuple(notes))


def _ready_at(counters: JobCounters, draft: JobDraft) -> int:
    now_ms = counters.now.ms
    return max(now_ms, now_ms + draft.delay_ms if draft.run_at is None else draft.run_at)


def _new_job(counters: JobCounters, draft: JobDraft, *, has_key: bool) -> JobRow:
    now_ms, policy = counters.now.ms, counters.policy
    job_id = new_id(now_ms, counters.next_number(), draft.chance)
    return JobRow(
        id=job_id,
        principal=draft.principal,
        key=draft.key if has_key else b"",
        kind=draft.kind,
        queue=draft.queue,
        priority=draft.priority,
        phase=WAITING,
        ready_at=_ready_at(counters, draft),
        due_at=now_ms + policy.waiting_ttl_ms if policy.waiting_ttl_ms else NEVER,
        created_at=now_ms,
        finished_at=0,
        attempt=0,
        max_attempts=draft.max_attempts,
        epoch=0,
        revision=0,
        deferrals=0,
        lease_ms=draft.lease_ms,
        held_ms=0,
        claimed_at=0,
        worker=b"",
        holder=b"",
        ended_by=LeaseEnd.NONE.value,
        cancel=0,
        reason=b"",
        report=b"",
        params_bytes=len(draft.params),
        params=draft.params if len(draft.params) <= INLINE_BYTES else b"",
        result_bytes=0,
        result=b"",
        client=draft.client,
        start=draft.start,
        progress=b"",
        errors=b"",
        steps=0,
        offered=0,
        timeout_ms=draft.timeout_ms,
        timeout_at=0,
        lease=b"",
        beat_at=0,
        counted=AS_QUEUED,
        listed=LISTED_ACTIVE,
        key_until=NEVER if has_key and draft.key else 0,
    )


def _make_room(counters: JobCounters, principal: bytes, notes: list[JobNote]) -> JobRefused | None:
    """Make room for one more record: expired ones are deleted first, then the full policy decides."""
    policy = counters.policy
    if _has_room(counters, principal):
        return None
    view, now_ms = counters.view, counters.now.expiry_ms
    rows = view.range(_expiring(FREED_AT_ONCE))
    demand(view, _freed_keys(rows, policy))
    for row in rows:
        if row.expires_at <= now_ms:
            counters.drop_key(row)
    if _has_room(counters, principal):
        return None
    left = [row for row in rows if now_ms < row.expires_at]
    if policy.evicts and left and not _is_tenant_full(counters, principal):
        _evict(counters, left[0])
        notes.append(JobNote("IDEMPOTENCY_EVICT", {"job_id": job_name(left[0].id), "reason": "full"}))
        return None
    facts = {"size": counters.totals.records, "max": policy.max_records}
    if _is_tenant_full(counters, principal):
        facts = {"size": counters.records_of(principal), "max": policy.max_records_each}
    soonest = left[0].expires_at - now_ms if left else 60_000
    message = "The store of idempotency keys is full. Nothing was stored; send the same request again later."
    wait_ms = min(60_000, max(1_000, soonest))
    refusal = Refusal("jobs:idempotency_store_full", message, facts, retry_after_ms=wait_ms)
    return JobRefused(refusal, (JobNote("IDEMPOTENCY_STORE_FULL", facts),))


def _has_room(counters: JobCounters, principal: bytes) -> bool:
    most = counters.policy.max_records
    return not (most and counters.totals.records >= most) and not _is_tenant_full(counters, principal)


def _is_tenant_full(counters: JobCounters, principal: bytes) -> bool:
    each = counters.policy.max_records_each
    return bool(each) and counters.records_of(principal) >= each


def _evict(counters: JobCounters, row: JobExpiryRow) -> None:
    """Delete the record of a key that has not expired; its job must not take the key for its own again."""
    job = counters.view.get(JOB, (row.id,))
    if job is not None:
        counters.view.put(JOB, job._replace(key_until=0))
    counters.drop_key(row)


def _collide(draft: JobDraft, record: JobRecordRow) -> JobKeyCollision:
    facts = {
        "key_prefix": draft.key_prefix,
        "old_hash_prefix": record.fingerprint.hex()[:8],
        "new_hash_prefix": draft.payload_hash.hex()[:8],
        "job_id": job_name(record.job),
    }
    return JobKeyCollision(record.job, record.fingerprint, (JobNote("IDEMPOTENCY_KEY_COLLISION", facts),))


class HitDetails(Mapping[str, Any]):
    """The details of a retry, which are rendered on demand: most of their lines are only counted."""

    __slots__ = ("_job_id", "_key_prefix", "_status")

    def __init__(self, key_prefix: str, status: str | None, job_id: bytes) -> None:
        self._key_prefix = key_prefix
        self._status = status
        self._job_id = job_id

    def _rendered(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"key_prefix": self._key_prefix, "status": self._status}
        return {**facts, "job_id": job_name(self._job_id), "request_id": request_name(self._job_id)}

    def __getitem__(self, name: str) -> Any:
        return self._rendered()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rendered())

    def __len__(self) -> int:
        return len(self._rendered())


def hit_note(draft: JobDraft, job: JobRow, status: str | None) -> JobNote:
    return JobNote("IDEMPOTENCY_HIT", HitDetails(draft.key_prefix, status, job.id))


def ignored_fields(draft: JobDraft, job: JobRow) -> tuple[str, ...]:
    """The fields outside the hash that differ from the first submission and are ignored."""
    differs = {
        "queue": draft.queue != job.queue,
        "priority": draft.priority != job.priority,
        "delay_ms": draft.start != job.start,
        "run_at": draft.start != job.start,
        "max_attempts": draft.max_attempts != job.max_attempts,
        "lease_sec": draft.lease_ms != job.lease_ms,
        "timeout_ms": draft.timeout_ms != job.timeout_ms,
        "client": draft.client != job.client,
    }
    return tuple(name for name, other in differs.items() if other and name in draft.given)
