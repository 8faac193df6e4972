"""The state machine of a job: all states and all transitions, as one table.

A waiting job is `scheduled` until it is ready and `queued` from then on. This is a function of the time, and no commit
makes it happen. Every other transition is one durable commit. A transition that is not in the table cannot happen.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from semel.surfaces.jobs.tables import DONE, LEASED, JobRow


class JobState(Enum):
    """The state of a job."""

    NONE = ""
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    LEASED = "leased"
    COMPLETED = "completed"
    FAILED = "failed"


class JobEvent(Enum):
    """An event that changes the state."""

    SUBMIT = "submit"
    SUBMIT_DELAYED = "submit with a delay"
    TIME = "time reached"
    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL = "fail"
    DEFER = "defer"
    LEASE_ENDED = "lease ran out"
    OFFER_ENDED = "offer lapsed"
    TIMED_OUT = "ran for too long"
    CANCEL = "cancel"
    FORCE = "cancel with force"
    REVIVE = "requeue"
    TOO_OLD = "waited too long"
    CONCLUDE = "outside completion"
    CONCLUDE_FAILED = "outside failure"


class JobGuard(Enum):
    """A condition of a transition."""

    ALWAYS = ""
    BUDGET_LEFT = "attempts left"
    BUDGET_SPENT = "no attempts left"
    PERMANENT = "not retryable"
    CANCEL_ASKED = "cancel requested"
    NEVER_CLAIMED = "never claimed"


class FailureReason(Enum):
    """The reason of a failure."""

    EXHAUSTED = "exhausted"
    PERMANENT = "permanent"
    LEASE_EXHAUSTED = "lease_exhausted"
    CANCELLED = "cancelled"
    QUEUE_TTL = "queue_ttl"


class LeaseEnd(Enum):
    """How a lease, or a job without one, ended."""

    NONE = 0
    COMPLETED = 1
    FAILED = 2
    DEFERRED = 3
    REAPED = 4
    CANCELLED = 5
    REVIVED = 6
    CONCLUDED = 7
    """By an outside report, before any claim."""
    CONCLUDED_FAILED = 8
    LAPSED = 9
    """The lease was offered, and the worker did not confirm it."""


class JobTransition(NamedTuple):
    """One row of the table."""

    source: JobState
    event: JobEvent
    guard: JobGuard
    target: JobState
    reason: FailureReason | None = None


_S, _E, _G = JobState, JobEvent, JobGuard

TRANSITIONS = (
    JobTransition(_S.NONE, _E.SUBMIT, _G.ALWAYS, _S.QUEUED),
    JobTransition(_S.NONE, _E.SUBMIT_DELAYED, _G.ALWAYS, _S.SCHEDULED),
    JobTransition(_S.SCHEDULED, _E.TIME, _G.ALWAYS, _S.QUEUED),
    JobTransition(_S.QUEUED, _E.CLAIM, _G.ALWAYS, _S.LEASED),
    JobTransition(_S.LEASED, _E.COMPLETE, _G.ALWAYS, _S.COMPLETED),
    JobTransition(_S.LEASED, _E.FAIL, _G.CANCEL_ASKED, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.LEASED, _E.FAIL, _G.PERMANENT, _S.FAILED, FailureReason.PERMANENT),
    JobTransition(_S.LEASED, _E.FAIL, _G.BUDGET_LEFT, _S.SCHEDULED),
    JobTransition(_S.LEASED, _E.FAIL, _G.BUDGET_SPENT, _S.FAILED, FailureReason.EXHAUSTED),
    JobTransition(_S.LEASED, _E.DEFER, _G.CANCEL_ASKED, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.LEASED, _E.DEFER, _G.ALWAYS, _S.SCHEDULED),
    JobTransition(_S.LEASED, _E.LEASE_ENDED, _G.CANCEL_ASKED, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.LEASED, _E.LEASE_ENDED, _G.BUDGET_LEFT, _S.QUEUED),
    JobTransition(_S.LEASED, _E.LEASE_ENDED, _G.BUDGET_SPENT, _S.FAILED, FailureReason.LEASE_EXHAUSTED),
    JobTransition(_S.LEASED, _E.OFFER_ENDED, _G.CANCEL_ASKED, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.LEASED, _E.OFFER_ENDED, _G.ALWAYS, _S.QUEUED),
    JobTransition(_S.LEASED, _E.TIMED_OUT, _G.CANCEL_ASKED, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.LEASED, _E.TIMED_OUT, _G.BUDGET_LEFT, _S.SCHEDULED),
    JobTransition(_S.LEASED, _E.TIMED_OUT, _G.BUDGET_SPENT, _S.FAILED, FailureReason.EXHAUSTED),
    JobTransition(_S.LEASED, _E.CANCEL, _G.ALWAYS, _S.LEASED),
    JobTransition(_S.LEASED, _E.FORCE, _G.ALWAYS, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.QUEUED, _E.CANCEL, _G.ALWAYS, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.SCHEDULED, _E.CANCEL, _G.ALWAYS, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.QUEUED, _E.FORCE, _G.ALWAYS, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.SCHEDULED, _E.FORCE, _G.ALWAYS, _S.FAILED, FailureReason.CANCELLED),
    JobTransition(_S.QUEUED, _E.TOO_OLD, _G.NEVER_CLAIMED, _S.FAILED, FailureReason.QUEUE_TTL),
    JobTransition(_S.SCHEDULED, _E.TOO_OLD, _G.NEVER_CLAIMED, _S.FAILED, FailureReason.QUEUE_TTL),
    JobTransition(_S.QUEUED, _E.CONCLUDE, _G.NEVER_CLAIMED, _S.COMPLETED),
    JobTransition(_S.SCHEDULED, _E.CONCLUDE, _G.NEVER_CLAIMED, _S.COMPLETED),
    JobTransition(_S.QUEUED, _E.CONCLUDE_FAILED, _G.NEVER_CLAIMED, _S.FAILED, FailureReason.PERMANENT),
    JobTransition(_S.SCHEDULED, _E.CONCLUDE_FAILED, _G.NEVER_CLAIMED, _S.FAILED, FailureReason.PERMANENT),
    JobTransition(_S.FAILED, _E.REVIVE, _G.ALWAYS, _S.QUEUED),
)

_BY_CAUSE = {(row.source, row.event, row.guard): row for row in TRANSITIONS}

DEAD_REASONS = frozenset({FailureReason.EXHAUSTED, FailureReason.PERMANENT, FailureReason.LEASE_EXHAUSTED})
"""Reasons of failures that an operator should look at."""


def state_of(job: JobRow, now_ms: int) -> JobState:
    """The state of a job at this time."""
    if job.phase == DONE:
        return JobState.FAILED if job.reason else JobState.COMPLETED
    if job.phase == LEASED:
        return JobState.LEASED
    return JobState.QUEUED if job.ready_at <= now_ms else JobState.SCHEDULED


def transition(job: JobRow, event: JobEvent, now_ms: int, *, is_permanent: bool = False) -> JobTransition | None:
    """The transition of this job; None if there is none. A requested cancel takes precedence."""
    source = state_of(job, now_ms)
    budget = JobGuard.BUDGET_LEFT if job.attempt < job.max_attempts else JobGuard.BUDGET_SPENT
    guards = [JobGuard.CANCEL_ASKED] if job.cancel else []
    guards += [JobGuard.PERMANENT] if is_permanent else [JobGuard.ALWAYS, budget]
    if job.epoch == 0:
        guards.append(JobGuard.NEVER_CLAIMED)
    return next((row for guard in guards if (row := _BY_CAUSE.get((source, event, guard)))), None)


def status_of(job: JobRow) -> str:
    """The status of a job as its key reports it."""
    if job.phase == DONE:
        return "failed" if job.reason else "completed"
    return "in_progress" if job.epoch or job.revision else "accepted"


def is_done(job: JobRow) -> bool:
    """Whether the job has ended."""
    return job.phase == DONE
