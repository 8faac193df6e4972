"""Submission of a job: look-up, capacity and insertion as one decision.

Steps, in this order: the key (rows J3 to J7 of the table end here), a slot in the queue, room for a record, and then
record and job together. A crash before the commit leaves neither; after it both.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from semel.contracts.jobs.commands import Admitted, Collision, Draft, Note, Refusal, Submit
from semel.contracts.jobs.ids import job_name, new_id, request_name
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.rules.capacity import refused
from semel.contracts.jobs.rules.ends import TOPIC_READY, end_keys, revive, topic_of
from semel.contracts.jobs.rules.states import End
from semel.contracts.jobs.rules.submission import known, unknown
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.tables import (
    ALONE,
    AS_QUEUED,
    IMPORTED,
    INLINE_BYTES,
    JOB,
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
    JobPartRow,
    JobRecordRow,
    JobRow,
)
from semel.engine.contract import Outcome, Stage, View
from semel.engine.demand import demand
from semel.kernel.clock import Now
from semel.kernel.retention import NEVER
from semel.kernel.verdict import Verdict, judge
from semel.store.protocol import AnyTable, Range, Touch
from semel.store.table import Key

FREED_AT_ONCE = 16
"""How many expired keys a submission frees when it finds the store of keys full."""

COMING = 1_000
"""How many more records may come in the same batch, when it is asked whether there is room."""

SEEN_MS = 1_000
"""Resolution of a key's last use: retries within a second cause no further changes."""

Answer = Admitted | Collision | Refusal


def submit_needs(command: Submit, policy: Policy) -> Generator[Stage, View, None]:
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
        yield Stage(keys=[(JOB_TENANT, (row.principal,)) for row in view.range(oldest)])
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
    """The keys that end first; those of jobs that have not ended are none of them."""
    return Range(JOB_RECORD, "expires", (), most, stop=(NEVER,))


def _is_nearly_full(view: View, command: Submit, policy: Policy) -> bool:
    """Whether room for records may be needed, counting other submissions in the same batch."""
    totals = view.get(JOB_TOTALS, ALONE)
    coming = len(command.drafts) + COMING
    return bool(policy.max_records) and (totals.records if totals else 0) + coming > policy.max_records


def submit(view: View, command: Submit, policy: Policy, now: Now) -> Outcome:
    """Judge every draft in its turn; a later one may meet an earlier one."""
    tally = Tally(view, policy, now)
    answers: list[Answer] = []
    touches: list[Touch] = []
    topics: dict[bytes, None] = {}
    for draft in command.drafts:
        answer, touch = _judge(tally, draft)
        answers.append(answer)
        if touch is not None:
            touches.append(touch)
        if isinstance(answer, Admitted) and answer.rule not in ("J3", "J4", "J5"):
            topics[TOPIC_READY] = None
            if answer.rule == "J6":
                topics[topic_of(answer.job.id)] = None
    tally.store()
    return Outcome(tuple(answers), signals=tuple(topics), touches=touches)


def admit(tally: Tally, draft: Draft) -> Answer:
    """The whole judgement of one draft, for submissions on behalf of another caller."""
    return _judge(tally, draft)[0]


def _record(view: View, draft: Draft, policy: Policy) -> JobRecordRow | None:
    if not draft.key or not policy.is_idempotent:
        return None
    return view.get(JOB_RECORD, (draft.principal, draft.key))


def _revival_keys(job: JobRow | None) -> list[tuple[AnyTable, Key]]:
    if job is None:
        return []
    return [*end_keys(job), *counted_keys(job)]


def _judge(tally: Tally, draft: Draft) -> tuple[Answer, Touch | None]:
    record = _record(tally.view, draft, tally.policy)
    verdict = judge(record, draft.payload_hash, tally.now.expiry_ms)
    job = None if record is None or verdict is Verdict.FRESH else tally.view.get(JOB, (record.job,))
    if record is not None and job is not None:
        touch = None
        if tally.now.ms - record.seen_at >= SEEN_MS:
            touch = Touch(JOB_RECORD, (draft.principal, draft.key), "seen_at", tally.now.ms, "job", record.job)
        return _meet(tally, draft, record, job, verdict), touch
    return _take_in(tally, draft, record), None


def _meet(tally: Tally, draft: Draft, record: JobRecordRow, job: JobRow, verdict: Verdict) -> Answer:
    """The key is live."""
    rule = known(verdict, job, retries_failed=draft.retries_failed)
    if rule.name == "J7":
        return _collide(draft, record)
    expires_at = None if record.expires_at == NEVER else record.expires_at
    notes = [_hit(draft, job, rule.status)]
    if rule.name == "J6":
        full = refused(tally, job.principal, _queue_after(draft, job), is_scheduled=False)
        if full is not None:
            return full
        job, expires_at = _revived(tally, draft, job), None
        notes.append(Note("JOB_REVIVED", {"job_id": job_name(job.id), "attempt": 0, "by": "submit"}))
    return Admitted(rule.name, job, expires_at, _ignored(draft, job), tuple(notes))


def _queue_after(draft: Draft, job: JobRow) -> bytes:
    """The queue of a revived job; see below."""
    return draft.queue if job.kind == IMPORTED else job.queue


def _revived(tally: Tally, draft: Draft, job: JobRow) -> JobRow:
    """The same job again. One from another store is known by its hash alone: its content comes from this draft."""
    if job.kind != IMPORTED:
        return revive(tally, job)
    if len(draft.params) > INLINE_BYTES:
        tally.view.insert(JOB_PART, JobPartRow(job.id, PARAMS, draft.params))
    return revive(
        tally,
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


def _take_in(tally: Tally, draft: Draft, stale: JobRecordRow | None) -> Answer:
    """The key is new, expired, or absent."""
    policy = tally.policy
    rule = unknown(is_idempotent=policy.is_idempotent, has_key=bool(draft.key))
    full = refused(tally, draft.principal, draft.queue, is_scheduled=_ready_at(tally, draft) > tally.now.ms)
    if full is not None:
        return full
    notes: list[Note] = []
    if rule.name == "J2" and stale is None:
        refusal = _make_room(tally, draft.principal, notes)
        if refusal is not None:
            return refusal
    job = _new_job(tally, draft, has_key=rule.name == "J2")
    job = tally.add(job)
    if len(draft.params) > INLINE_BYTES:
        tally.view.insert(JOB_PART, JobPartRow(job.id, PARAMS, draft.params))
    if rule.name == "J2":
        now_ms = tally.now.ms
        row = JobRecordRow(draft.principal, draft.key, draft.payload_hash, job.id, now_ms, now_ms, NEVER)
        tally.view.put(JOB_RECORD, row)
        if stale is None:
            tally.count_records(draft.principal, 1)
    return Admitted(rule.name, job, None, notes=tuple(notes))


def _ready_at(tally: Tally, draft: Draft) -> int:
    now_ms = tally.now.ms
    return max(now_ms, now_ms + draft.delay_ms if draft.run_at is None else draft.run_at)


def _new_job(tally: Tally, draft: Draft, *, has_key: bool) -> JobRow:
    now_ms, policy = tally.now.ms, tally.policy
    job_id = new_id(now_ms, tally.next_number(), draft.chance)
    return JobRow(
        id=job_id,
        principal=draft.principal,
        key=draft.key if has_key else b"",
        kind=draft.kind,
        queue=draft.queue,
        priority=draft.priority,
        phase=WAITING,
        ready_at=_ready_at(tally, draft),
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
        ended_by=End.NONE.value,
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
    )


def _make_room(tally: Tally, principal: bytes, notes: list[Note]) -> Refusal | None:
    """Make room for one more record: expired ones go first, then the full policy decides."""
    policy = tally.policy
    if _has_room(tally, principal):
        return None
    view, now_ms = tally.view, tally.now.expiry_ms
    rows = view.range(_expiring(FREED_AT_ONCE))
    demand(view, [(JOB_TENANT, (row.principal,)) for row in rows])
    for row in rows:
        if row.expires_at <= now_ms:
            _drop(tally, row)
    if _has_room(tally, principal):
        return None
    left = [row for row in rows if now_ms < row.expires_at]
    if policy.evicts and left and not _is_tenant_full(tally, principal):
        _drop(tally, left[0])
        notes.append(Note("IDEMPOTENCY_EVICT", {"job_id": job_name(left[0].job), "reason": "full"}))
        return None
    facts = {"size": tally.totals.records, "max": policy.max_records}
    if _is_tenant_full(tally, principal):
        facts = {"size": tally.records_of(principal), "max": policy.max_records_each}
    soonest = left[0].expires_at - now_ms if left else 60_000
    message = "The store of idempotency keys is full. Nothing was stored; send the same request again later."
    wait_ms = min(60_000, max(1_000, soonest))
    return Refusal(
        "jobs:idempotency_store_full",
        message,
        {**facts, "retry_after_ms": wait_ms},
        (Note("IDEMPOTENCY_STORE_FULL", facts),),
    )


def _has_room(tally: Tally, principal: bytes) -> bool:
    most = tally.policy.max_records
    return not (most and tally.totals.records >= most) and not _is_tenant_full(tally, principal)


def _is_tenant_full(tally: Tally, principal: bytes) -> bool:
    each = tally.policy.max_records_each
    return bool(each) and tally.records_of(principal) >= each


def _drop(tally: Tally, row: JobRecordRow) -> None:
    tally.view.delete(JOB_RECORD, (row.principal, row.key))
    tally.count_records(row.principal, -1)


def _collide(draft: Draft, record: JobRecordRow) -> Collision:
    facts = {
        "key_prefix": draft.key_prefix,
        "old_hash_prefix": record.fingerprint.hex()[:8],
        "new_hash_prefix": draft.payload_hash.hex()[:8],
        "job_id": job_name(record.job),
    }
    return Collision(record.job, record.fingerprint, (Note("IDEMPOTENCY_KEY_COLLISION", facts),))


def _hit(draft: Draft, job: JobRow, status: str | None) -> Note:
    facts: dict[str, Any] = {"key_prefix": draft.key_prefix, "status": status}
    return Note("IDEMPOTENCY_HIT", {**facts, "job_id": job_name(job.id), "request_id": request_name(job.id)})


def _ignored(draft: Draft, job: JobRow) -> tuple[str, ...]:
    """The given fields outside the hash that differ from the first submission."""
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
