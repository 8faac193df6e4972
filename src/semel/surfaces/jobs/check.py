"""The check of jobs: counters against rows, keys against jobs, large parts, dead letters, groups and children.

Counters of queues, kinds and callers are held in memory, as a server does. Rows of a job whose retention has ended are
freed in small steps, so such a job may lack a part of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import orjson

from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.store.table_check import Check, StoreFault, StoreWalk, fault, in_groups, missing_of
from semel.surfaces.jobs.rules.idempotency import is_alias
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_QUEUED,
    AS_SCHEDULED,
    DONE,
    GENERATED,
    INLINE_BYTES,
    JOB,
    JOB_ALIAS,
    JOB_BRIEF,
    JOB_CHILD,
    JOB_DEAD,
    JOB_EXPIRY,
    JOB_GROUP,
    JOB_KIND,
    JOB_LINE,
    JOB_MEMBER,
    JOB_PART,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SHARE,
    JOB_STEP,
    JOB_TENANT,
    JOB_TOTALS,
    JOB_UNIQUE,
    LEASED,
    NO_TOTALS,
    NOT_COUNTED,
    PARAMS,
    RESULT,
    WAITING,
    JobRecordRow,
    JobRow,
)

_AT_ONCE = 200


class _Counts:
    """The counts of one walk over all jobs."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.lines: Counter[Key] = Counter()
        self.kinds: Counter[Key] = Counter()
        self.ready: dict[Key, int] = {}
        self.queues: dict[str, Counter[bytes]] = {name: Counter() for name in ("leased", "queued", "scheduled")}
        self.shares: dict[str, Counter[bytes]] = {name: Counter() for name in ("queued", "scheduled")}
        self.last = 0

    def add(self, job: JobRow) -> None:
        high, low = int.from_bytes(job.id[:8], "big"), int.from_bytes(job.id[8:], "big")
        self.last = max(self.last, (high & 0xFFF) << 20 | low >> 42 & 0xFFFFF)
        if job.phase == LEASED:
            self.all["leased"] += 1
            self.queues["leased"][job.queue] += 1
        elif job.phase == WAITING:
            self.all["waiting"] += 1
            line = (job.priority, job.queue)
            for counts, key in ((self.lines, line), (self.kinds, (job.kind, *line))):
                counts[key] += 1
                self.ready[key] = min(self.ready.get(key, NEVER), job.ready_at)
            if job.counted != NOT_COUNTED:
                state = "scheduled" if job.counted == AS_SCHEDULED else "queued"
                self.all[state] += 1
                self.queues[state][job.queue] += 1
                self.shares[state][job.principal] += 1


def counters(walk: StoreWalk) -> Iterator[StoreFault]:
    """All counters are the numbers of the jobs that they count."""
    counts = _Counts()
    for job in walk.rows(JOB):
        counts.add(job)
        yield from _job(job)
    totals = walk.get(JOB_TOTALS, ALONE) or NO_TOTALS
    for name in ("waiting", "leased", "scheduled"):
        if getattr(totals, name) != counts.all[name]:
            yield fault(JOB_TOTALS, name, f"{getattr(totals, name)} {name} jobs are counted of {counts.all[name]}.")
    if totals.seq < 2**32 and counts.last > totals.seq:
        yield fault(JOB_TOTALS, "seq", f"The last number is {totals.seq}, and a job has the number {counts.last}.")
    yield from _lines(walk, JOB_LINE, counts.lines, counts.ready)
    yield from _lines(walk, JOB_KIND, counts.kinds, counts.ready)
    yield from _named(walk, JOB_QUEUE, counts.queues)
    yield from _named(walk, JOB_SHARE, counts.shares)


def _job(job: JobRow) -> Iterator[StoreFault]:
    if job.phase not in (WAITING, LEASED, DONE):
        yield fault(JOB, (job.id,), f"It is in the phase {job.phase}, which there is not.")
        return
    listed = {LEASED: 1, DONE: 3 if job.reason else 2, WAITING: 0 if job.counted == AS_SCHEDULED else 1}[job.phase]
    if job.listed != listed or (job.phase != WAITING and job.counted != AS_QUEUED):
        yield fault(JOB, (job.id,), "It is listed or counted in another state than its own.")
    if (job.phase == LEASED) != bool(job.lease):
        yield fault(JOB, (job.id,), "It is leased without a lease, or has one without being leased.")
    if job.lease and int.from_bytes(job.lease, "big") != job.epoch:
        yield fault(JOB, (job.id,), "The id of its lease is not that of its last claim.")
    if job.phase == DONE and job.report and job.result_bytes <= INLINE_BYTES:
        yield from _report(job, job.result)


def _report(job: JobRow, value: bytes) -> Iterator[StoreFault]:
    """The digest of the report is that of the result."""
    name = b"job_" + job.id.hex().encode()
    form = b'{"error":%s,"job_id":"%s","ok":false}' % (value, name)
    if not job.reason:
        form = b'{"job_id":"%s","ok":true,"result":%s}' % (name, value)
    if sha256(form).digest() != job.report:
        yield fault(JOB, (job.id,), "Its result does not have the digest of its report.")


def _lines(walk: StoreWalk, table: AnyTable, counts: Counter[Key], ready: dict[Key, int]) -> Iterator[StoreFault]:
    for row in walk.rows(table):
        key = table.key_of(row)
        count = counts.pop(key, 0)
        if row.waiting != count:
            yield fault(table, key, f"{row.waiting} waiting jobs are counted of {count}.")
        elif row.ready_at > ready.get(key, NEVER):
            yield fault(table, key, "A job is ready before the time at which the first is said to be.")
    for key in counts:
        yield fault(table, key, "The jobs that wait there are not counted.")


def _named(walk: StoreWalk, table: AnyTable, counts: dict[str, Counter[bytes]]) -> Iterator[StoreFault]:
    for row in walk.rows(table):
        for name, some in counts.items():
            count = some.pop(row[0], 0)
            if getattr(row, name) != count:
                yield fault(table, row[:1], f"{getattr(row, name)} {name} jobs are counted of {count}.")
    for name, some in counts.items():
        for key in some:
            yield fault(table, (key,), f"Its {name} jobs are not counted.")


def keys(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each key points to its job, each job with a live key has one, and keys are counted."""
    counts: dict[str, Counter[bytes]] = {"records": Counter(), "generated": Counter()}
    first = [row for table in (JOB_EXPIRY, JOB_BRIEF) for row in walk.range(Range(table, "", (), 1))]
    is_swept = all(row.expires_at > walk.now_ms for row in first)
    for page in walk.pages(JOB_RECORD):
        for group in in_groups(page, _AT_ONCE):
            jobs = walk.find(JOB, [(row.job,) for row in group])
            aliases = walk.find(JOB_ALIAS, [(row.job, row.principal, row.key) for row in group if is_alias(row)])
            for row in group:
                counts["generated" if row.alias == GENERATED else "records"][row.principal] += 1
                flaw = _flaw_of_key(row, jobs.get((row.job,)), (row.job, row.principal, row.key) in aliases)
                if flaw and (is_swept or (row.job,) in jobs):
                    yield fault(JOB_RECORD, row[:2], flaw)
    named, generated = (count.total() for count in counts.values())
    totals = walk.get(JOB_TOTALS, ALONE) or NO_TOTALS
    if totals.records != named:
        yield fault(JOB_TOTALS, "records", f"{totals.records} keys are counted of {named}.")
    if generated:
        counts["generated"][b""] = generated
    yield from _named(walk, JOB_TENANT, counts)
    yield from _lost_keys(walk, named + generated)


def _flaw_of_key(row: JobRecordRow, job: JobRow | None, has_alias: bool) -> str:
    """What is wrong with the record of a key; empty if nothing is."""
    if job is None:
        return "The job of this key is not there."
    if is_alias(row):
        return "" if has_alias else "It is the further key of a job that does not name it."
    if (job.principal, job.key) != (row.principal, row.key):
        return "The job of this key has another key."
    if job.key_until and (job.key_until < 0) != (row.alias == GENERATED):
        return "The job of this key has one of the other kind."
    return ""


def _lost_keys(walk: StoreWalk, total: int) -> Iterator[StoreFault]:
    def wanted() -> Iterator[tuple[Key, JobRow]]:
        for job in walk.rows(JOB):
            if job.key and abs(job.key_until) > walk.now_ms:
                yield (job.principal, job.key), job

    def held() -> Iterator[Key]:
        return walk.keys(JOB_RECORD)

    for _, job in missing_of(wanted, held, total):
        yield fault(JOB, (job.id,), "Its idempotency key is not remembered.")
    for table, sign in ((JOB_EXPIRY, 1), (JOB_BRIEF, -1)):
        for page in walk.pages(table):
            jobs = walk.find(JOB, [(row.id,) for row in page])
            for row in page:
                ended = jobs.get((row.id,))
                if row.expires_at > walk.now_ms and (ended is None or ended.key_until != sign * row.expires_at):
                    yield fault(table, row[:2], "The job whose key expires then is not there, or at another time.")


def parts(walk: StoreWalk) -> Iterator[StoreFault]:
    """Params and results have the size that the job says, and large ones belong to a job."""
    count = 0
    for job in walk.rows(JOB):
        for part, size, small in ((PARAMS, job.params_bytes, job.params), (RESULT, job.result_bytes, job.result)):
            if size <= INLINE_BYTES:
                if len(small) != size:
                    yield fault(JOB, (job.id,), f"It has {len(small)} bytes of params or result instead of {size}.")
                continue
            row = walk.get(JOB_PART, (job.id, part))
            count += row is not None
            if row is None or len(row.data) != size:
                yield fault(JOB_PART, (job.id, part), f"Its {size} bytes are not there, or another number of them.")
            elif part == RESULT and job.phase == DONE and job.report:
                yield from _report(job, row.data)
    there = sum(1 for _ in walk.keys(JOB_PART))
    if there != count:
        yield fault(JOB_PART, "", f"{there - count} large params or results belong to no job.")


def dead_letters(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each dead letter is a failed job, and they are counted; so are the rows that point to a job."""
    count = 0
    for page in walk.pages(JOB_DEAD):
        count += len(page)
        jobs = walk.find(JOB, [(row.id,) for row in page])
        for row in page:
            job = jobs.get((row.id,))
            if job is None or job.phase != DONE or not job.reason or job.finished_at != row.died_at:
                yield fault(JOB_DEAD, row[:2], "The job is not there, has not failed, or at another time.")
    totals = walk.get(JOB_TOTALS, ALONE) or NO_TOTALS
    if totals.dead != count:
        yield fault(JOB_TOTALS, "dead", f"{totals.dead} dead letters are counted of {count}.")
    pointing: tuple[tuple[AnyTable, str], ...] = (
        (JOB_STEP, "id"),
        (JOB_ALIAS, "id"),
        (JOB_UNIQUE, "job"),
        (JOB_GROUP, "id"),
    )
    for table, column in pointing:
        for page in walk.pages(table):
            jobs = walk.find(JOB, [(getattr(row, column),) for row in page])
            for row in page:
                if (getattr(row, column),) not in jobs:
                    yield fault(table, table.key_of(row), "The job that it belongs to is not there.")


def groups(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each group counts its members and their ends, and each member has the outcome of its job."""
    for group in walk.rows(JOB_GROUP):
        waiter = walk.get(JOB, (group.id,))
        if waiter is None or (waiter.phase == DONE and waiter.due_at <= walk.now_ms):
            continue
        outcomes: Counter[int] = Counter()
        yield from _members(walk, group.id, outcomes)
        found = (sum(outcomes.values()), outcomes[1] + outcomes[2], outcomes[2])
        if found != (group.members, group.ended, group.failed):
            said = "members, {} ended and {} failed".format(*found[1:])
            yield fault(JOB_GROUP, (group.id,), f"It counts {group[3:6]} of {found[0]} {said}.")
        if group.is_held and group.is_closed and group.members == group.ended:
            yield fault(JOB_GROUP, (group.id,), "All members have ended, and its job is still held.")
    yield from _children(walk)


def _members(walk: StoreWalk, group: bytes, outcomes: Counter[int]) -> Iterator[StoreFault]:
    """The members of one group; their outcomes are counted."""
    for some in in_groups(walk.keys_below(JOB_MEMBER, (group,)), _AT_ONCE):
        members = walk.find(JOB_MEMBER, some)
        jobs = walk.find(JOB, [(key[1],) for key in some])
        for key, member in members.items():
            outcomes[member.outcome] += 1
            job = jobs.get((key[1],))
            if job is not None and member.outcome != _outcome(job):
                yield fault(JOB_MEMBER, key, f"Its outcome {member.outcome} is not that of its job.")
            if job is not None and _links(job).get("group") != group.hex():
                yield fault(JOB_MEMBER, key, "Its job is in another group.")


def _children(walk: StoreWalk) -> Iterator[StoreFault]:
    for page in walk.pages(JOB_CHILD):
        members = walk.find(JOB_MEMBER, [(row.parent, row.job) for row in page])
        parents = walk.find(JOB, [(row.parent,) for row in page])
        for row in page:
            parent = parents.get((row.parent,))
            is_due = parent is not None and parent.phase == DONE and parent.due_at <= walk.now_ms
            if parent is None or (not is_due and (row.parent, row.job) not in members):
                yield fault(JOB_CHILD, row[:2], "The child or its parent is not there.")


def _outcome(job: JobRow) -> int:
    if job.phase != DONE:
        return 0
    return 2 if job.reason else 1


def _links(job: JobRow) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(job.links) if job.links else {}
    return found


CHECKS: tuple[Check, ...] = (counters, keys, parts, dead_letters, groups)
