"""Schedules (recurring jobs), and the promotion of delayed jobs that have become ready.

Every instant of a schedule is a submission with its own key, so it makes one job however often it is tried.
`last_instant` moves in the commit of the tick and never back: an expired key does not fire again, and a clock that
stepped back does not fire it again either. A tick that is rejected because the queue is full is tried again until it
is admitted or the next instant is due.

Promotion counts a scheduled job as queued. No claim waits for it: a job can be claimed from the instant at which it is
ready. Only the capacity check uses these counts, and it may admit a few more jobs until the promotion has run.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Stage, View, demand
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.keys import key_prefix, pack
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import (
    DropSchedule,
    FireSchedule,
    JobAdmitted,
    JobDraft,
    JobNote,
    JobRefused,
    JobsAffected,
    PutSchedule,
    ScheduleFired,
    ScheduleSaved,
)
from semel.surfaces.jobs.limits import MAX_CATCH_UP, JobPolicy
from semel.surfaces.jobs.maintenance_commands import PromoteJobs
from semel.surfaces.jobs.rules.completion import TOPIC_READY
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.cron import between, latest, next_after, parse
from semel.surfaces.jobs.rules.idempotency import payload_hash
from semel.surfaces.jobs.rules.submission import admit
from semel.surfaces.jobs.schedule_table import JOB_SCHEDULE, JobScheduleRow
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_SCHEDULED,
    JOB,
    JOB_KIND,
    JOB_LINE,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SHARE,
    JOB_TENANT,
    JOB_TOTALS,
    NOT_COUNTED,
    WAITING,
    JobRow,
)

LAST, ALL, NONE = b"last", b"all", b"none"
CATCH_UPS = (LAST, ALL, NONE)
ON_TIME_MS = 60_000
"""An instant counts as missed after this many milliseconds."""
TRIED_AGAIN_MS = 1_000
"""The delay in milliseconds until a refused tick is tried again."""
MOST_NOTES = 100
"""Limit on skipped instants that are noted one by one; one note has the number of the others."""
_NO_SCHEDULE = JobRefused(Refusal("jobs:not_found", "There is no schedule of this name."))


class ScheduleDue(NamedTuple):
    """What is due of a schedule: one instant to fire, the instants skipped before it, and whether more are due."""

    instant: int | None
    skipped: tuple[int, ...]
    more: bool


def schedule_needs(command: PutSchedule | DropSchedule) -> Generator[Stage, View, None]:
    """The schedule."""
    yield Stage(keys=[(JOB_SCHEDULE, (command.name,)), (JOB_TOTALS, ALONE)])


def put_schedule(view: View, command: PutSchedule, now: Now) -> DecisionResult:
    """Create or change a schedule; it counts from the next instant. An equal schedule changes nothing."""
    known = view.get(JOB_SCHEDULE, (command.name,))
    if known is not None and _asked(known) == command._replace(owner=known.owner):
        return DecisionResult(ScheduleSaved(known, is_new=False))
    cron = parse(command.cron.decode(), command.time_zone.decode())
    next_at = None if command.paused else next_after(cron, now.expiry_ms)
    row = JobScheduleRow(
        name=command.name,
        owner=command.owner if known is None else known.owner,
        cron=command.cron,
        kind=command.kind,
        params=command.params,
        queue=command.queue,
        priority=command.priority,
        max_attempts=command.max_attempts,
        catch_up=command.catch_up,
        paused=int(command.paused),
        changed_at=now.expiry_ms,
        last_instant=max(now.expiry_ms, 0 if known is None else known.last_instant),
        last_fired=0 if known is None else known.last_fired,
        next_at=NEVER if next_at is None else next_at,
        time_zone=command.time_zone,
    )
    view.put(JOB_SCHEDULE, row)
    return DecisionResult(ScheduleSaved(row, is_new=known is None))


def drop_schedule(view: View, command: DropSchedule) -> DecisionResult:
    """Delete a schedule; its jobs are kept."""
    if view.get(JOB_SCHEDULE, (command.name,)) is None:
        return DecisionResult(_NO_SCHEDULE)
    view.delete(JOB_SCHEDULE, (command.name,))
    return DecisionResult(JobsAffected())


def tick_needs(command: FireSchedule) -> Generator[Stage, View, None]:
    """The schedule and the counts."""
    yield Stage(keys=[(JOB_SCHEDULE, (command.name,)), (JOB_TOTALS, ALONE)])


def tick(view: View, command: FireSchedule, policy: JobPolicy, now: Now) -> DecisionResult:
    """Fire the instant that is due; does nothing if another node has done so."""
    row = view.get(JOB_SCHEDULE, (command.name,))
    counters = JobCounters(view, policy, now)
    # A clock that is wrong for a moment must not use up the instants of years.
    now_ms = now.expiry_ms
    if row is None or row.next_at > now_ms:
        return DecisionResult(ScheduleFired(again=False))
    due = due_of(row, now_ms)
    notes = _skipped(row, due.skipped)
    if due.instant is None:
        _advance(view, row, due, fired=False)
        return DecisionResult(ScheduleFired(again=due.more, notes=notes))
    draft = _draft(row, due.instant, policy, command.chance)
    _demand(counters, draft)
    answer = admit(counters, draft)
    if isinstance(answer, JobRefused):
        # The instants before it are skipped for good; this one is tried again after other schedules that are due.
        last = due.skipped[-1] if due.skipped else row.last_instant
        view.put(JOB_SCHEDULE, row._replace(last_instant=last, next_at=now_ms + TRIED_AGAIN_MS))
        counters.store()
        return DecisionResult(ScheduleFired(again=False, notes=(*notes, *answer.notes)))
    _advance(view, row, due, fired=True)
    counters.store()
    is_new = isinstance(answer, JobAdmitted) and answer.rule in ("J0", "J2")
    return DecisionResult(ScheduleFired(due.more, (*notes, *answer.notes), int(is_new)), signals=(TOPIC_READY,))


def due_of(row: JobScheduleRow, now_ms: int) -> ScheduleDue:
    """The instants that are due, by the catch-up policy of the schedule."""
    cron = parse(row.cron.decode(), row.time_zone.decode())
    if row.catch_up == ALL:
        # Oldest first, and at most MAX_CATCH_UP: older instants are skipped, in slices.
        instants = between(cron, row.last_instant, now_ms, 2 * MAX_CATCH_UP)
        if len(instants) > MAX_CATCH_UP:
            return ScheduleDue(None, tuple(instants[:-MAX_CATCH_UP]), True)
        return ScheduleDue(instants[0], (), len(instants) > 1) if instants else ScheduleDue(None, (), False)
    last = latest(cron, row.last_instant, now_ms)
    if last is None:
        return ScheduleDue(None, (), False)
    missed = tuple(between(cron, row.last_instant, last - 1, MAX_CATCH_UP))
    if row.catch_up == NONE and now_ms - last >= ON_TIME_MS:
        return ScheduleDue(None, (*missed, last), False)
    return ScheduleDue(last, missed, False)


def instant_text(ms: int) -> str:
    """An instant as part of a key: seconds, and Z for UTC."""
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _asked(row: JobScheduleRow) -> PutSchedule:
    return PutSchedule(
        row.name,
        row.owner,
        row.cron,
        row.kind,
        row.params,
        row.queue,
        row.priority,
        row.max_attempts,
        row.catch_up,
        bool(row.paused),
        row.time_zone,
    )


def _advance(view: View, row: JobScheduleRow, due: ScheduleDue, *, fired: bool) -> None:
    done = [*due.skipped, *([due.instant] if due.instant is not None else [])]
    last = max([row.last_instant, *done])
    following = next_after(parse(row.cron.decode(), row.time_zone.decode()), last)
    view.put(
        JOB_SCHEDULE,
        row._replace(
            last_instant=last,
            last_fired=due.instant if fired and due.instant is not None else row.last_fired,
            next_at=NEVER if following is None else following,
        ),
    )


def _skipped(row: JobScheduleRow, instants: tuple[int, ...]) -> tuple[JobNote, ...]:
    name = row.name.decode()
    notes = [
        JobNote("SCHEDULE_SKIPPED", {"schedule": name, "instant": instant_text(instant), "reason": "missed"})
        for instant in instants[-MOST_NOTES:]
    ]
    rest = len(instants) - len(notes)
    if rest:
        notes.append(JobNote("SCHEDULE_SKIPPED", {"schedule": name, "instants": rest, "reason": "missed"}))
    return tuple(notes)


def _draft(row: JobScheduleRow, instant: int, policy: JobPolicy, chance: bytes) -> JobDraft:
    name = f"schedule/{row.name.decode()}/{instant_text(instant)}"
    return JobDraft(
        principal=row.owner,
        key=pack(name.encode()),
        key_prefix=key_prefix(name),
        payload_hash=payload_hash(row.kind, row.params),
        kind=row.kind,
        params=row.params,
        queue=row.queue,
        priority=row.priority,
        client=b"",
        start=b"",
        delay_ms=0,
        run_at=None,
        max_attempts=row.max_attempts or policy.max_attempts,
        lease_ms=policy.lease_ms,
        retries_failed=False,
        given=frozenset(),
        chance=chance,
    )


def _demand(counters: JobCounters, draft: JobDraft) -> None:
    """Load the rows of the submission: the key of an instant is known only now."""
    place = (draft.priority, draft.queue)
    keys: list[tuple[AnyTable, Key]] = [(JOB_LINE, place), (JOB_KIND, (draft.kind, *place))]
    keys += [
        (JOB_TENANT, (draft.principal,)),
        (JOB_TENANT, ALONE),
        (JOB_SHARE, (draft.principal,)),
        (JOB_QUEUE, (draft.queue,)),
    ]
    demand(counters.view, [*keys, (JOB_RECORD, (draft.principal, draft.key))])
    record = counters.view.get(JOB_RECORD, (draft.principal, draft.key))
    if record is not None:
        demand(counters.view, [(JOB, (record.job,))])


def to_promote(until: int, most: int) -> tuple[Range, Range]:
    """Scheduled jobs that are ready by then, and jobs that were not counted yet."""
    return (
        Range(JOB, "later", (WAITING, AS_SCHEDULED), most, stop=(until + 1,)),
        Range(JOB, "later", (WAITING, NOT_COUNTED), most),
    )


def promote_needs(command: PromoteJobs) -> Generator[Stage, View, None]:
    """The jobs; then the counts that they change."""
    ranges = to_promote(command.until, command.most)
    view = yield Stage(ranges=ranges)
    yield Stage(keys=[pair for wanted in ranges for job in view.range(wanted) for pair in counted_keys(job)])


def promote(view: View, command: PromoteJobs, policy: JobPolicy, now: Now) -> DecisionResult:
    """Count these jobs by their present state."""
    counters = JobCounters(view, policy, now)
    ready, uncounted = (view.range(wanted) for wanted in to_promote(command.until, command.most))
    jobs: list[JobRow] = [*(job for job in ready if job.ready_at <= counters.now.ms), *uncounted]
    for job in jobs:
        counters.promote(job)
    counters.store()
    return DecisionResult(JobsAffected(len(jobs)))
