"""Plain writes of jobs, decided for a whole batch: submissions, claims and completions.

All of them are under one lock, so they share one tally: retries of known keys are answered first, then come
completions, claims, and new jobs. That is one of the orders in which the full rules could have decided them, because
all of their callers wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.engine.plain_write import LoadPlain, PlainContract, PlainResult, PlainWrite
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.jobs.commands import ClaimJobs, JobReport, SubmitJobs
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.completion import TOPIC_READY
from semel.surfaces.jobs.rules.plain_claim import (
    Fronts,
    PlainClaim,
    PlainClaims,
    claim_ranges,
    is_plain_claim,
    load_fronts,
)
from semel.surfaces.jobs.rules.plain_completion import PlainReport, PlainReports, is_plain_report
from semel.surfaces.jobs.rules.plain_submission import PlainJobSubmit, PlainSubmissions, is_plain_draft
from semel.surfaces.jobs.rules.plain_tally import Loaded, Place, PlainTally
from semel.surfaces.jobs.tables import (
    ALONE,
    JOB,
    JOB_KIND,
    JOB_LINE,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SEAL,
    JOB_SHARE,
    JOB_TENANT,
    JOB_TOTALS,
)


def plain_write(contract: PlainContract, command: object, size: int, principal: str = "") -> PlainWrite | None:
    """The plain write of a command; None if its request alone shows that it is not plain."""
    if isinstance(command, SubmitJobs) and command.drafts and all(map(is_plain_draft, command.drafts)):
        return PlainJobSubmit(contract, command.drafts, size, principal)
    if isinstance(command, ClaimJobs) and is_plain_claim(command):
        return PlainClaim(contract, command, size, principal)
    if isinstance(command, JobReport) and is_plain_report(command):
        return PlainReport(contract, command, size, principal)
    return None


class PlainJobs(NamedTuple):
    """The plain writes of one batch by kind, and the rows that they need."""

    submits: Sequence[PlainJobSubmit]
    claims: Sequence[PlainClaim]
    reports: Sequence[PlainReport]
    rows: Loaded
    fronts: Fronts


def load_plain(load: LoadPlain, writes: Sequence[PlainWrite]) -> PlainJobs:
    """Load rows in three stages.

    First the counters and records of submissions, the jobs of completions, the lines and the first lease that ends;
    then the jobs of known records, and the first jobs of the lines; then their counters.
    """
    submits = [one for one in writes if isinstance(one, PlainJobSubmit)]
    claims = [one for one in writes if isinstance(one, PlainClaim)]
    reports = [one for one in writes if isinstance(one, PlainReport)]
    keys = _submit_keys(submits)
    keys[JOB] = {(one.report.id,): None for one in reports}
    if claims or reports:
        keys[JOB_SEAL] = {ALONE: None}
    loaded = load(keys, claim_ranges(claims) if claims else ())
    rows: dict[AnyTable, dict[Key, Any]] = {table: dict(found) for table, found in loaded.rows.items()}
    further: dict[AnyTable, dict[Key, None]] = {}
    if rows[JOB]:
        further[JOB_QUEUE] = {(job.queue,): None for job in rows[JOB].values()}
    if rows[JOB_RECORD]:
        further[JOB] = {(record.job,): None for record in rows[JOB_RECORD].values()}
    fronts = Fronts(*loaded.ranges) if claims else Fronts((), ())
    counters = load_fronts(load, claims, fronts) if claims else {}
    for table, some in counters.items():
        further[table] = {**further.get(table, {}), **some}
    missing = {
        table: wanted
        for table, asked in further.items()
        if (wanted := [key for key in asked if key not in rows.get(table, ())])
    }
    if missing:
        for table, found in load(missing, ()).rows.items():
            rows.setdefault(table, {}).update(found)
    return PlainJobs(submits, claims, reports, defaultdict(dict, rows), fronts)


def _submit_keys(submits: Sequence[PlainJobSubmit]) -> dict[AnyTable, dict[Key, None]]:
    places: dict[Place, None] = {}
    records: dict[Key, None] = {}
    any_generated = False
    for draft in (draft for one in submits for draft in one.drafts):
        principal = draft.principal
        places[principal, draft.kind, draft.priority, draft.queue] = None
        if draft.key:
            records[principal, draft.key] = None
            any_generated = any_generated or draft.is_generated
    kinds: dict[Key, None] = {place[1:]: None for place in places}
    lines: dict[Key, None] = {place[2:]: None for place in places}
    queues: dict[Key, None] = {place[3:]: None for place in places}
    principals: dict[Key, None] = {place[:1]: None for place in places}
    tenants = {**principals, ALONE: None} if any_generated else principals
    counters: dict[AnyTable, dict[Key, None]] = {
        JOB_KIND: kinds,
        JOB_LINE: lines,
        JOB_QUEUE: queues,
        JOB_SHARE: principals,
        JOB_TENANT: tenants,
    }
    return {JOB_TOTALS: {ALONE: None}, **counters, JOB_RECORD: records}


def decide_plain(loaded: PlainJobs, policy: JobPolicy, now: Now) -> PlainResult:
    """Decide the writes; those that are not plain are left."""
    tally = PlainTally(loaded.rows, policy, now)
    reports = PlainReports(tally, loaded.reports)
    claims = PlainClaims(tally, loaded.fronts, loaded.claims)
    submissions = PlainSubmissions(tally, loaded.submits)
    submissions.answer_retries()
    reports.decide()
    claims.decide()
    submissions.admit()
    tally.store()
    topics = {TOPIC_READY: None} if submissions.jobs else {}
    return PlainResult(
        [*submissions.retried, *reports.decided, *claims.decided, *submissions.admitted],
        [*reports.left, *claims.left, *submissions.left],
        tally.inserts,
        tally.steady,
        {**topics, **dict.fromkeys(reports.topics)},
        tally.updates,
        tally.deletes,
        submissions.touches,
        tally.narrow,
    )
