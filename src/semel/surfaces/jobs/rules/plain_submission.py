"""The express decision on plain submissions: the result of `submit` without a view and with one write for each counter.

A submission is plain if it has no delay, no links and small params, and if no limit is near. A retry of a known key
with the same payload is plain too, unless it revives a failed job or its key is an alias. Every other submission is
left to `submit`. Both give the same rows and answers; `tests/jobs/rules/test_plain_jobs.py` compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from semel.engine.contract import Write
from semel.engine.plain_write import PlainContract, PlainWrite
from semel.kernel.verdict import NEVER, Verdict
from semel.store.protocol import Touch
from semel.surfaces.jobs.commands import JobAdmitted, JobDraft, SubmitJobs
from semel.surfaces.jobs.ids import new_id
from semel.surfaces.jobs.rules.idempotency import is_alias, key_end, known, verdict_on
from semel.surfaces.jobs.rules.plain_tally import PlainTally
from semel.surfaces.jobs.rules.submission import SEEN_MS, hit_note, ignored_fields
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_QUEUED,
    GENERATED,
    INLINE_BYTES,
    JOB,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SHARE,
    JOB_TENANT,
    LISTED_ACTIVE,
    WAITING,
    JobRecordRow,
    JobRow,
)

LOCK_NAME = b"jobs"
_NO_LIMIT = 2**31
_new_tuple = tuple.__new__
"""Makes a named tuple in a third of the time of its constructor."""


class PlainJobSubmit(PlainWrite):
    """The plain submissions of one request, and their caller."""

    __slots__ = ("cost", "drafts", "line")

    def __init__(self, contract: PlainContract, drafts: tuple[JobDraft, ...], size: int, principal: str = "") -> None:
        super().__init__(contract, LOCK_NAME, size, principal)
        self.drafts = drafts
        self.cost = len(drafts)
        self.line: object = None
        """What this request was pipelined on: those of one line are admitted in their order. None if on nothing."""

    def full(self) -> Write:
        """The same submissions for the full rules."""
        return Write(self.contract, SubmitJobs(self.drafts), self.size, self.cost)


def is_plain_draft(draft: JobDraft) -> bool:
    """Whether a submission may be plain, by its request alone."""
    is_alone = draft.single is None and draft.place is None
    return is_alone and not draft.delay_ms and draft.run_at is None and len(draft.params) <= INLINE_BYTES


class PlainSubmissions:
    """Decides the submissions of one batch."""

    def __init__(self, tally: PlainTally, writes: Sequence[PlainJobSubmit]) -> None:
        self._tally = tally
        self._writes = writes
        self._others: list[PlainJobSubmit] = []
        """Requests without retries of known keys, in their order."""
        self._odd: set[PlainJobSubmit] = set()
        """Those of them that the full rules decide."""
        self.retried: list[tuple[PlainWrite, Any]] = []
        self.admitted: list[tuple[PlainWrite, Any]] = []
        self.left: list[PlainWrite] = []
        self.touches: list[Touch] = []
        self.jobs: list[Any] = []

    def answer_retries(self) -> None:
        """Answer the retries of known keys, from the rows as they are before the batch."""
        records, is_idempotent = self._tally.rows[JOB_RECORD], self._tally.policy.is_idempotent
        if not records and is_idempotent:
            self._others += self._writes
            return
        for one in self._writes:
            found = [records.get((draft.principal, draft.key)) if draft.key else None for draft in one.drafts]
            if not any(found) and is_idempotent:
                self._others.append(one)
                continue
            answer = None
            if len(found) == 1 and found[0] is not None and is_idempotent:
                answer = self._retried(one.drafts[0], found[0])
            if answer is None:
                self._odd.add(one)
                self._others.append(one)
            else:
                self.retried.append((one, (answer,)))

    def admit(self) -> None:
        """Admit the others in their order, or leave them to the full rules."""
        tally, jobs, odd = self._tally, self.jobs, self._odd
        now_ms, seq = tally.now.ms, tally.seq
        due_at = now_ms + tally.policy.waiting_ttl_ms if tally.policy.waiting_ttl_ms else NEVER
        seen: set[tuple[bytes, bytes]] = set()
        records: list[Any] = []
        places: dict[tuple[bytes, bytes, int, bytes], int] = {}
        """The number of new jobs by principal, kind, priority and queue."""
        rooms: dict[tuple[bytes, bytes, bool], int] = {}
        stopped: set[object] = set()
        """Lines of which a submission was left: so are the further ones."""
        for one in self._others:
            drafts = one.drafts
            if (stopped and one.line in stopped) or (odd and one in odd) or not self._fits(drafts, seen, rooms):
                self.left.append(one)
                if one.line is not None:
                    stopped.add(one.line)
                continue
            answers = []
            for draft in drafts:
                principal, key = draft.principal, draft.key
                seq += 1
                job = _waiting_job(draft, new_id(now_ms, seq, draft.chance), now_ms, due_at)
                jobs.append(job)
                place = (principal, draft.kind, draft.priority, draft.queue)
                places[place] = places.get(place, 0) + 1
                if key:
                    seen.add((principal, key))
                    kind = GENERATED if draft.is_generated else 0
                    record = (principal, key, draft.payload_hash, job[0], now_ms, now_ms, kind, 0)
                    records.append(_new_tuple(JobRecordRow, record))
                answers.append(_new_tuple(JobAdmitted, ("J2" if key else "J1", job, None, (), (), 0)))
            self.admitted.append((one, tuple(answers)))
        tally.seq = seq
        tally.added.update(places)
        tally.keys.update(Counter(record.principal for record in records if not record.alias))
        tally.records += tally.keys.total()
        tally.generated.update(Counter(record.principal for record in records if record.alias))
        if tally.generated:
            tally.generated[b""] = tally.generated.total()
        if jobs:
            tally.inserts[JOB] = jobs
        if records:
            tally.inserts[JOB_RECORD] = records

    def _fits(
        self, drafts: Sequence[JobDraft], seen: set[tuple[bytes, bytes]], rooms: dict[tuple[bytes, bytes, bool], int]
    ) -> bool:
        """Whether these have keys that the batch has not seen, each its own, and no limit is near."""
        count = len(self.jobs) + len(drafts)
        for draft in drafts:
            principal, place = draft.principal, (draft.principal, draft.queue, draft.is_generated)
            room = rooms.get(place)
            if room is None:
                room = rooms[place] = self._room_of(*place)
            if count > room or (principal, draft.key) in seen:
                return False
        return len(drafts) == 1 or _are_apart(drafts)

    def _room_of(self, principal: bytes, queue: bytes, is_generated: bool) -> int:
        """The number of submissions of this batch up to which one of this caller to this queue, with a key of this
        kind, meets no limit.

        Every admitted submission counts against it, so it may be too low: then the full rules decide.
        """
        tally, policy = self._tally, self._tally.policy
        bounds, rows = policy.queued, tally.rows
        share, line = rows[JOB_SHARE].get((principal,)), rows[JOB_QUEUE].get((queue,))
        tenant, everyone = rows[JOB_TENANT].get((principal,)), rows[JOB_TENANT].get(ALONE)
        taken = tally.taken.total()
        total, mine = tally.queued - taken, 0 if share is None else share.queued
        there, records = 0 if line is None else line.queued, 0 if tenant is None else tenant.records
        key_limits = [(policy.max_records, tally.records), (policy.max_records_each, records)]
        if is_generated:
            key_limits = [(policy.max_generated, 0 if everyone is None else everyone.generated)]
        rooms = [
            limit - held
            for limit, held in (
                (bounds.each_principal, mine),
                (bounds.each_queue, there),
                (bounds.all, total),
                *key_limits,
            )
            if limit
        ]
        if bounds.all and policy.principal_share < 1:
            is_alone = not taken and total == mine and self._are_all_of(principal)
            if not is_alone:
                rooms.append(max(1, int(bounds.all * policy.principal_share)) - mine)
        return min(rooms, default=_NO_LIMIT)

    def _are_all_of(self, principal: bytes) -> bool:
        return all(draft.principal == principal for one in self._writes for draft in one.drafts)

    def _retried(self, draft: JobDraft, record: JobRecordRow) -> JobAdmitted | None:
        """The answer to a retry; None if the record has expired, or is of another payload, or the job is revived."""
        tally = self._tally
        job = tally.rows[JOB].get((record.job,))
        verdict = verdict_on(record, job, draft.payload_hash, tally.now.expiry_ms)
        if job is None or verdict is not Verdict.REPLAY or is_alias(record):
            return None
        rule = known(Verdict.REPLAY, job, retries_failed=draft.retries_failed)
        if rule.name == "J6":
            return None
        if tally.now.ms - record.seen_at >= SEEN_MS:
            key = (draft.principal, draft.key)
            self.touches.append(Touch(JOB_RECORD, key, "seen_at", tally.now.ms, "job", record.job))
        until = key_end(record, job)
        expires_at = None if until == NEVER else until
        ignored = ignored_fields(draft, job, record) if draft.given else ()
        return JobAdmitted(rule.name, job, expires_at, ignored, (hit_note(draft, job, rule.status),))


def _are_apart(drafts: Sequence[JobDraft]) -> bool:
    """Whether no two of these have the same key."""
    keys = [(draft.principal, draft.key) for draft in drafts if draft.key]
    return len(set(keys)) == len(keys)


def _waiting_job(draft: JobDraft, job_id: bytes, now_ms: int, due_at: int) -> JobRow:
    """The row of a new job that is ready now; positional, because this runs for every submission."""
    params = draft.params
    return _new_tuple(
        JobRow,
        (
            job_id,
            draft.principal,
            draft.key,
            draft.kind,
            draft.queue,
            draft.priority,
            WAITING,
            now_ms,  # ready_at
            due_at,
            now_ms,  # created_at
            0,
            0,
            draft.max_attempts,
            0,
            0,
            0,
            draft.lease_ms,
            0,
            0,
            b"",
            b"",
            0,
            0,
            b"",
            b"",
            len(params),
            params,
            0,
            b"",
            draft.client,
            draft.start,
            b"",
            b"",
            0,
            0,
            draft.timeout_ms,
            0,
            b"",
            0,
            AS_QUEUED,
            LISTED_ACTIVE,
            0 if not draft.key else -NEVER if draft.is_generated else NEVER,
            b"",
            0,
        ),
    )
