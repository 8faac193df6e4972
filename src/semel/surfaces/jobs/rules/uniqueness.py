"""Unique and debounced submissions: a further submission finds the job of an earlier one, and makes none.

| submission | finds | effect |
|---|---|---|
| `unique` without `for_ms` | the latest job of its unique key, in one of `states` | answered with that job |
| `unique` with `for_ms` | the same, if it was submitted less than `for_ms` ago | answered with that job |
| `debounce` | the latest job of its debounce key, waiting and never claimed | params replaced, start moved |
| either | no such job | a new job, which is the latest of its key from now on |

One row for each such key has the latest job; it is deleted with that job. The idempotency key comes first: only a
submission whose key is unknown comes here. If it has a key, a record is stored that points to the job that was found
(an alias), in the same commit, so its retry gets the same job and has no second effect. An alias is live as long as
its job's row is kept, and the row of a job with aliases is kept for at least the life of a key after its end.

A crash before the commit leaves the found job as it was; a crash after it leaves job and alias.
"""

from __future__ import annotations

from collections.abc import Iterator

from semel.engine.contract import View
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobDraft
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.idempotency import expiry_place, is_alias
from semel.surfaces.jobs.rules.links import JobLinks, links_of, pack_links
from semel.surfaces.jobs.rules.states import state_of
from semel.surfaces.jobs.tables import (
    ALIAS_DEBOUNCED,
    ALIAS_UNIQUE,
    DONE,
    INLINE_BYTES,
    JOB,
    JOB_ALIAS,
    JOB_PART,
    JOB_UNIQUE,
    PARAMS,
    WAITING,
    JobAliasRow,
    JobPartRow,
    JobRecordRow,
    JobRow,
    JobUniqueRow,
)


def single_keys(draft: JobDraft) -> Iterator[tuple[AnyTable, Key]]:
    """The row of the unique or debounce key of a draft."""
    single = draft.single
    if single is not None:
        yield JOB_UNIQUE, (draft.principal, single.name)


def found_keys(view: View, draft: JobDraft) -> Iterator[tuple[AnyTable, Key]]:
    """The job that the key of a draft points to."""
    for table, key in single_keys(draft):
        row = view.get(table, key)
        if row is not None:
            yield JOB, (row.job,)


def push_back_keys(view: View, draft: JobDraft) -> Iterator[tuple[AnyTable, Key]]:
    """The rows that are changed if the draft moves a debounced job: its counts, and its large params."""
    for table, key in found_keys(view, draft) if draft.single is not None and draft.single.debounces else ():
        job = view.get(table, key)
        if job is not None:
            yield from counted_keys(job)
            yield from [(JOB_PART, (job.id, PARAMS))] if job.params_bytes > INLINE_BYTES else ()


def found_job(counters: JobCounters, draft: JobDraft) -> JobRow | None:
    """The job that stands for this draft too; None if the draft makes a new one."""
    view, now_ms = counters.view, counters.now.ms
    row = None if draft.single is None else view.get(JOB_UNIQUE, (draft.principal, draft.single.name))
    job = None if row is None else view.get(JOB, (row.job,))
    if job is None or draft.single is None or (job.phase == DONE and counters.now.expiry_ms >= job.due_at):
        return None
    if draft.single.debounces:
        return job if job.phase == WAITING and not job.epoch and not job.revision else None
    if draft.single.for_ms and now_ms >= job.created_at + draft.single.for_ms:
        return None
    return job if state_of(job, now_ms).value in draft.single.states else None


def push_back(counters: JobCounters, draft: JobDraft, job: JobRow) -> JobRow:
    """Replace the params of a debounced job, and move its start; at most `max_ms` after its first submission."""
    single = draft.single
    assert single is not None
    ready_at = counters.now.ms + single.delay_ms
    if single.max_ms:
        ready_at = min(ready_at, job.created_at + single.max_ms)
    is_small = len(draft.params) <= INLINE_BYTES
    if job.params_bytes > INLINE_BYTES:
        counters.view.delete(JOB_PART, (job.id, PARAMS))
    if not is_small:
        counters.view.insert(JOB_PART, JobPartRow(job.id, PARAMS, draft.params))
    params = draft.params if is_small else b""
    return counters.rearrange(
        job, job._replace(ready_at=ready_at, params=params, params_bytes=len(draft.params), start=draft.start)
    )


def add_single(counters: JobCounters, draft: JobDraft, job: JobRow) -> None:
    """Make a new job the latest of its unique or debounce key."""
    if draft.single is not None:
        counters.view.put(JOB_UNIQUE, JobUniqueRow(draft.principal, draft.single.name, job.id))


def single_links(draft: JobDraft, now_ms: int) -> JobLinks:
    """The links of a new job to its unique or debounce key."""
    single = draft.single
    if single is None:
        return JobLinks()
    kept_until = now_ms + single.for_ms if single.for_ms else 0
    return JobLinks(single.name.hex(), single.key, single.debounces, kept_until)


def unique_key(job: JobRow) -> Key | None:
    """The key of the row that may have this job as the latest of its unique or debounce key."""
    single = links_of(job.links).single
    return (job.principal, bytes.fromhex(single)) if single else None


def add_alias(counters: JobCounters, draft: JobDraft, stale: JobRecordRow | None, job: JobRow) -> JobRow:
    """Let the key of a draft point to a job that another submission made."""
    view, now_ms = counters.view, counters.now.ms
    assert draft.single is not None
    alias = ALIAS_DEBOUNCED if draft.single.debounces else ALIAS_UNIQUE
    record = JobRecordRow(draft.principal, draft.key, draft.payload_hash, job.id, now_ms, now_ms, alias)
    counters.replace_record(stale, record)
    view.insert(JOB_ALIAS, JobAliasRow(job.id, draft.principal, draft.key))
    changed = job._replace(links=pack_links(links_of(job.links)._replace(has_aliases=True)))
    if job.phase == DONE:
        changed = changed._replace(due_at=max(job.due_at, now_ms + counters.policy.key_ttl_ms))
    if changed != job:
        view.put(JOB, changed)
    return changed


def drop_stale(view: View, stale: JobRecordRow | None, former: JobRow | None) -> None:
    """Delete what belongs to the expired record of a key that is used anew; `former` is the job of it."""
    if stale is not None and is_alias(stale):
        view.forget(JOB_ALIAS, (stale.job, stale.principal, stale.key))
    elif former is not None and former.key_until:
        view.forget(*expiry_place(former))
