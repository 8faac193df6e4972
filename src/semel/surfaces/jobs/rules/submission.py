"""Submission: key look-up, capacity check and insertion as one decision.

Steps, in this order: the key (rows J3 to J7 of the idempotency table end here), the job of an earlier submission that
stands for this one (J10, J11), a slot in the queue, space for a record, and then record and job together. A crash
before the commit leaves neither of them; a crash after it leaves both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.kernel.verdict import NEVER, Verdict
from semel.store.protocol import AnyTable, Touch
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobAdmitted, JobDraft, JobKeyCollision, JobNote, JobRefused, SubmitJobs
from semel.surfaces.jobs.ids import job_name, new_id, request_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.completion import TOPIC_READY, end_keys, revive, topic_of
from semel.surfaces.jobs.rules.counters import JobCounters, capacity_refusal, counted_keys
from semel.surfaces.jobs.rules.groups import enter, group_refusal, known_child, place_keys, place_links, waiter_keys
from semel.surfaces.jobs.rules.idempotency import is_alias, key_end, known, unknown, verdict_on
from semel.surfaces.jobs.rules.key_store import FREED_AT_ONCE, expiring, freed_keys, is_nearly_full, make_room
from semel.surfaces.jobs.rules.leases import NO_JOB, fenced, is_current, secret_of
from semel.surfaces.jobs.rules.links import pack_links
from semel.surfaces.jobs.rules.reaper import confirmed
from semel.surfaces.jobs.rules.states import LeaseEnd
from semel.surfaces.jobs.rules.uniqueness import (
    add_alias,
    add_single,
    drop_stale,
    found_job,
    found_keys,
    push_back,
    push_back_keys,
    single_keys,
    single_links,
)
from semel.surfaces.jobs.tables import (
    ALIAS_DEBOUNCED,
    ALIAS_UNIQUE,
    ALONE,
    AS_QUEUED,
    DONE,
    GENERATED,
    INLINE_BYTES,
    JOB,
    JOB_KIND,
    JOB_LINE,
    JOB_PART,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SEAL,
    JOB_SHARE,
    JOB_TENANT,
    JOB_TOTALS,
    LEASED,
    LISTED_ACTIVE,
    PARAMS,
    WAITING,
    JobPartRow,
    JobRecordRow,
    JobRow,
)

SEEN_MS = 1_000
"""Resolution of a key's last use: retries within a second cause no further changes."""

_QUIET = frozenset({"J3", "J4", "J5", "J10"})
"""Rows of the table after which no job becomes ready."""

Answer = JobAdmitted | JobKeyCollision | JobRefused


def submit_needs(command: SubmitJobs, policy: JobPolicy) -> Generator[Stage, View, None]:
    """Counts and keys; then the jobs of the keys."""
    keys: list[tuple[AnyTable, Key]] = [(JOB_TOTALS, ALONE)]
    for draft in command.drafts:
        keys.append((JOB_LINE, (draft.priority, draft.queue)))
        keys.append((JOB_KIND, (draft.kind, draft.priority, draft.queue)))
        keys += [(JOB_QUEUE, (draft.queue,)), (JOB_SHARE, (draft.principal,))]
        keys += [*single_keys(draft), *place_keys(draft)]
        if draft.place is not None and draft.place.child:
            keys.append((JOB_SEAL, ALONE))
        if draft.key and policy.is_idempotent:
            keys.append((JOB_RECORD, (draft.principal, draft.key)))
            keys += [(JOB_TENANT, (draft.principal,)), (JOB_TENANT, ALONE)]
    view = yield Stage(keys=keys)
    for is_generated in (False, True):
        if is_nearly_full(view, command, policy, is_generated=is_generated):
            oldest = expiring(FREED_AT_ONCE + len(command.drafts), is_generated=is_generated)
            view = yield Stage(ranges=[oldest])
            yield Stage(keys=freed_keys(view.range(oldest), policy, is_generated=is_generated))
    held: list[tuple[AnyTable, Key]] = []
    for draft in command.drafts:
        record = _record(view, draft, policy) or known_child(view, draft)
        if record is not None:
            held.append((JOB, (record.job,)))
        held += [*found_keys(view, draft), *_owner_keys(view, draft)]
    if not held:
        return
    view = yield Stage(keys=held)
    changed = [pair for draft in command.drafts for pair in push_back_keys(view, draft)]
    revivable = [
        job
        for draft in command.drafts
        if draft.retries_failed and (record := _record(view, draft, policy) or known_child(view, draft)) is not None
        if (job := view.get(JOB, (record.job,))) is not None
    ]
    changed += [pair for job in revivable for pair in (*end_keys(job), *counted_keys(job))]
    if changed:
        view = yield Stage(keys=changed)
        yield Stage(keys=waiter_keys(view, revivable))


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
        if isinstance(answer, JobAdmitted) and answer.rule not in _QUIET:
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


def _owner_keys(view: View, draft: JobDraft) -> Iterator[tuple[AnyTable, Key]]:
    """The count of waiting jobs of the owner of a parent, who owns its children too."""
    parent = view.get(JOB, (draft.place.of,)) if draft.place is not None and draft.place.child else None
    if parent is not None:
        yield JOB_SHARE, (parent.principal,)


def _judge(counters: JobCounters, draft: JobDraft) -> tuple[Answer, Touch | None]:
    if draft.place is not None and draft.place.child:
        return _judge_child(counters, draft), None
    record = _record(counters.view, draft, counters.policy)
    job = None if record is None else counters.view.get(JOB, (record.job,))
    verdict = verdict_on(record, job, draft.payload_hash, counters.now.expiry_ms)
    if record is not None and job is not None and verdict is not Verdict.FRESH:
        touch = None
        if counters.now.ms - record.seen_at >= SEEN_MS:
            touch = Touch(JOB_RECORD, (draft.principal, draft.key), "seen_at", counters.now.ms, "job", record.job)
        return _meet(counters, draft, record, job, verdict), touch
    found = found_job(counters, draft)
    if found is not None:
        return _join(counters, draft, record, job, found), None
    return _take_in(counters, draft, record, job), None


def _judge_child(counters: JobCounters, draft: JobDraft) -> Answer:
    """Decide a child: its name under its parent is its key, whichever attempt of the parent submits it.

    A known child is answered first, even if the lease has ended meanwhile. A new one needs the lease, and belongs to
    the owner of its parent.
    """
    view, place = counters.view, draft.place
    assert place is not None
    known_row, parent = known_child(view, draft), view.get(JOB, (place.of,))
    job = None if known_row is None else view.get(JOB, (known_row.job,))
    if known_row is not None and job is not None:
        record = JobRecordRow(job.principal, b"", known_row.fingerprint, job.id, 0, 0)
        is_same = known_row.fingerprint == draft.payload_hash
        return _meet(counters, draft, record, job, Verdict.REPLAY if is_same else Verdict.MISMATCH)
    if parent is None:
        return NO_JOB
    secret = secret_of(view)
    if parent.phase != LEASED or not is_current(secret, parent, place.token):
        return fenced(secret, parent, place.token)
    if parent.offered:
        view.put(JOB, confirmed(parent, counters.now))
    return _take_in(counters, draft._replace(principal=parent.principal), None, None)


def _join(
    counters: JobCounters, draft: JobDraft, stale: JobRecordRow | None, former: JobRow | None, job: JobRow
) -> Answer:
    """Answer with the job of an earlier submission, which stands for this one too: unique or debounced."""
    assert draft.single is not None
    has_key = bool(draft.key) and counters.policy.is_idempotent
    notes: list[JobNote] = []
    if has_key and (stale is None or stale.alias == GENERATED):  # an alias counts as a named key
        refusal = make_room(counters, draft.principal, notes, is_generated=False)
        if refusal is not None:
            return refusal
    if draft.single.debounces:
        job = push_back(counters, draft, job)
    if has_key:
        drop_stale(counters.view, stale, former)
        job = add_alias(counters, draft, stale, job)
    rule, alias = ("J11", ALIAS_DEBOUNCED) if draft.single.debounces else ("J10", ALIAS_UNIQUE)
    expires_at = job.due_at if has_key and job.phase == DONE else None
    return JobAdmitted(rule, job, expires_at, ignored_fields(draft, job), tuple(notes), alias)


def _meet(counters: JobCounters, draft: JobDraft, record: JobRecordRow, job: JobRow, verdict: Verdict) -> Answer:
    """The answer for a key that has not expired."""
    rule = known(verdict, job, retries_failed=draft.retries_failed)
    if rule.name == "J7":
        return _collide(draft, record)
    until = key_end(record, job)
    expires_at = until if 0 < until < NEVER else None
    notes = [hit_note(draft, job, rule.status)]
    if rule.name == "J6":
        full = capacity_refusal(counters, job.principal, job.queue, is_scheduled=False)
        if full is not None:
            return full
        job, expires_at = revive(counters, job), None
        notes.append(JobNote("JOB_REVIVED", {"job_id": job_name(job.id), "attempt": 0, "by": "submit"}))
    alias = record.alias if is_alias(record) else 0
    return JobAdmitted(rule.name, job, expires_at, ignored_fields(draft, job, record), tuple(notes), alias)


def _take_in(counters: JobCounters, draft: JobDraft, stale: JobRecordRow | None, former: JobRow | None) -> Answer:
    """Admit a draft whose key is new, absent, or expired; then its record is `stale`, and `former` is the job of it."""
    policy = counters.policy
    rule = unknown(is_idempotent=policy.is_idempotent, has_key=bool(draft.key))
    outside = group_refusal(counters.view, draft)
    if outside is not None:
        return outside
    full = capacity_refusal(
        counters, draft.principal, draft.queue, is_scheduled=_ready_at(counters, draft) > counters.now.ms
    )
    if full is not None:
        return full
    notes: list[JobNote] = []
    kind = GENERATED if draft.is_generated else 0
    if rule.name == "J2" and (stale is None or (stale.alias == GENERATED) != draft.is_generated):
        refusal = make_room(counters, draft.principal, notes, is_generated=draft.is_generated)
        if refusal is not None:
            return refusal
    job = _new_job(counters, draft, has_key=rule.name == "J2")
    job = counters.add(job)
    add_single(counters, draft, job)
    enter(counters, draft, job)
    if len(draft.params) > INLINE_BYTES:
        counters.view.insert(JOB_PART, JobPartRow(job.id, PARAMS, draft.params))
    if rule.name == "J2":
        now_ms = counters.now.ms
        row = JobRecordRow(draft.principal, draft.key, draft.payload_hash, job.id, now_ms, now_ms, kind)
        counters.replace_record(stale, row)
        drop_stale(counters.view, stale, former)
    return JobAdmitted(rule.name, job, None, notes=tuple(notes))


def _ready_at(counters: JobCounters, draft: JobDraft) -> int:
    now_ms = counters.now.ms
    if draft.place is not None and draft.place.joins:
        return NEVER
    return max(now_ms, now_ms + draft.delay_ms if draft.run_at is None else draft.run_at)


def _new_job(counters: JobCounters, draft: JobDraft, *, has_key: bool) -> JobRow:
    now_ms, policy = counters.now.ms, counters.policy
    job_id = new_id(now_ms, counters.next_number(), draft.chance)
    ready_at = _ready_at(counters, draft)
    may_wait_long = ready_at == NEVER or not policy.waiting_ttl_ms
    return JobRow(
        id=job_id,
        principal=draft.principal,
        key=draft.key if has_key else b"",
        kind=draft.kind,
        queue=draft.queue,
        priority=draft.priority,
        phase=WAITING,
        ready_at=ready_at,
        due_at=NEVER if may_wait_long else now_ms + policy.waiting_ttl_ms,
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
        key_until=0 if not (has_key and draft.key) else -NEVER if draft.is_generated else NEVER,
        links=place_links(counters.view, draft, pack_links(single_links(draft, now_ms))),
    )


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


def ignored_fields(draft: JobDraft, job: JobRow, record: JobRecordRow | None = None) -> tuple[str, ...]:
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
        "generated_key": record is not None and draft.is_generated != (record.alias == GENERATED),
    }
    return tuple(name for name, other in differs.items() if other and name in draft.given)
