"""The state machine of a job: states and transitions, as one table.

A job that waits is `scheduled` until it is ready and `queued` from then on: a function of the time, not a transition
that anybody commits. Everything else is one durable commit. Whatever is not in the table does not happen.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from semel.contracts.jobs.tables import DONE, LEASED, JobRow


class State(Enum):
    """The state of a job."""

    NONE = ""
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    LEASED = "leased"
    COMPLETED = "completed"
    FAILED = "failed"


class Event(Enum):
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


class Guard(Enum):
    """A condition of a transition."""

    ALWAYS = ""
    BUDGET_LEFT = "attempts left"
    BUDGET_SPENT = "no attempts left"
    PERMANENT = "not retryable"
    CANCEL_ASKED = "cancel requested"
    NEVER_CLAIMED = "never claimed"


class Reason(Enum):
    """The reason of a failure."""

    EXHAUSTED = "exhausted"
    PERMANENT = "permanent"
    LEASE_EXHAUSTED = "lease_exhausted"
    CANCELLED = "cancelled"
    QUEUE_TTL = "queue_ttl"


class End(Enum):
    """How a lease, or a job without one, ended."""

    NONE = 0
    COMPLETED = 1
    FAILED = 2
    DEFERRED = 3
    REAPED = 4
    CANCELLED = 5
    REVIVED = 6
    CONCLUDED = 7
    """By a report from outside, before any claim."""
    CONCLUDED_FAILED = 8
    LAPSED = 9
    """The lease was offered, and the worker did not confirm it."""


class Transition(NamedTuple):
    """One row of the table."""

    source: State
    event: Event
    guard: Guard
    target: State
    reason: Reason | None = None


_S, _E, _G = State, Event, Guard

TRANSITIONS = (
    Transition(_S.NONE, _E.SUBMIT, _G.ALWAYS, _S.QUEUED),
    Transition(_S.NONE, _E.SUBMIT_DELAYED, _G.ALWAYS, _S.SCHEDULED),
    Transition(_S.SCHEDULED, _E.TIME, _G.ALWAYS, _S.QUEUED),
    Transition(_S.QUEUED, _E.CLAIM, _G.ALWAYS, _S.LEASED),
    Transition(_S.LEASED, _E.COMPLETE, _G.ALWAYS, _S.COMPLETED),
    Transition(_S.LEASED, _E.FAIL, _G.CANCEL_ASKED, _S.FAILED, Reason.CANCELLED),
    Transition(_S.LEASED, _E.FAIL, _G.PERMANENT, _S.FAILED, Reason.PERMANENT),
    Transition(_S.LEASED, _E.FAIL, _G.BUDGET_LEFT, _S.SCHEDULED),
    Transition(_S.LEASED, _E.FAIL, _G.BUDGET_SPENT, _S.FAILED, Reason.EXHAUSTED),
    Transition(_S.LEASED, _E.DEFER, _G.CANCEL_ASKED, _S.FAILED, Reason.CANCELLED),
    Transition(_S.LEASED, _E.DEFER, _G.ALWAYS, _S.SCHEDULED),
    Transition(_S.LEASED, _E.LEASE_ENDED, _G.CANCEL_ASKED, _S.FAILED, Reason.CANCELLED),
    Transition(_S.LEASED, _E.LEASE_ENDED, _G.BUDGET_LEFT, _S.QUEUED),
    Transition(_S.LEASED, _E.LEASE_ENDED, _G.BUDGET_SPENT, _S.FAILED, Reason.LEASE_EXHAUSTED),
    Transition(_S.LEASED, _E.OFFER_ENDED, _G.CANCEL_ASKED, _S.FAILED, Reason.CANCELLED),
    Transition(_S.LEASED, _E.OFFER_ENDED, _G.ALWAYS, _S.QUEUED),
    Transition(_S.LEASED, _E.TIMED_OUT, _G.CANCEL_ASKED, _S.FAILED, Reason.CANCELLED),
    Transition(_S.LEASED, _E.TIMED_OUT, _G.BUDGET_LEFT, _S.SCHEDULED),
    Transition(_S.LEASED, _E.TIMED_OUT, _G.BUDGET_SPENT, _S.FAILED, Reason.EXHAUSTED),
    Transition(_S.LEASED, _E.CANCEL, _G.ALWAYS, _S.LEASED),
    Transition(_S.LEASED, _E.FORCE, _G.ALWAYS, _S.FAILED, Reason.CANCELLED),
    Transition(_S.QUEUED, _E.CANCEL, _G.ALWAYS, _S.FAILED, Reason.CANCELLED),
    Transition(_S.SCHEDULED, _E.CANCEL, _G.ALWAYS, _S.FAILED, Reason.CANCELLED),
    Transition(_S.QUEUED, _E.FORCE, _G.ALWAYS, _S.FAILED, Reason.CANCELLED),
    Transition(_S.SCHEDULED, _E.FORCE, _G.ALWAYS, _S.FAILED, Reason.CANCELLED),
    Transition(_S.QUEUED, _E.TOO_OLD, _G.NEVER_CLAIMED, _S.FAILED, Reason.QUEUE_TTL),
    Transition(_S.SCHEDULED, _E.TOO_OLD, _G.NEVER_CLAIMED, _S.FAILED, Reason.QUEUE_TTL),
    Transition(_S.QUEUED, _E.CONCLUDE, _G.NEVER_CLAIMED, _S.COMPLETED),
    Transition(_S.SCHEDULED, _E.CONCLUDE, _G.NEVER_CLAIMED, _S.COMPLETED),
    Transition(_S.QUEUED, _E.CONCLUDE_FAILED, _G.NEVER_CLAIMED, _S.FAILED, Reason.PERMANENT),
    Transition(_S.SCHEDULED, _E.CONCLUDE_FAILED, _G.NEVER_CLAIMED, _S.FAILED, Reason.PERMANENT),
    Transition(_S.FAILED, _E.REVIVE, _G.ALWAYS, _S.QUEUED),
)

_BY_CAUSE = {(row.source, row.event, row.guard): row for row in TRANSITIONS}

DEAD_REASONS = frozenset({Reason.EXHAUSTED, Reason.PERMANENT, Reason.LEASE_EXHAUSTED})
"""Reasons of failures that an operator should look at."""


def state_of(job: JobRow, now_ms: int) -> State:
    """Where a job is at this time."""
    if job.phase == DONE:
        return State.FAILED if job.reason else State.COMPLETED
    if job.phase == LEASED:
        return State.LEASED
    return State.QUEUED if job.ready_at <= now_ms else State.SCHEDULED


def transition(job: JobRow, event: Event, now_ms: int, *, is_permanent: bool = False) -> Transition | None:
    """The transition of this job; None when there is none. A requested cancel goes first."""
    source = state_of(job, now_ms)
    budget = Guard.BUDGET_LEFT if job.attempt < job.max_attempts else Guard.BUDGET_SPENT
    guards = [Guard.CANCEL_ASKED] if job.cancel else []
    guards += [Guard.PERMANENT] if is_permanent else [Guard.ALWAYS, budget]
    if job.epoch == 0:
        guards.append(Guard.NEVER_CLAIMED)
    return next((row for guard in guards if (row := _BY_CAUSE.get((source, event, guard)))), None)


def status_of(job: JobRow) -> str:
    """The status of a job as its key reports it."""
    if job.phase == DONE:
        return "failed" if job.reason else "completed"
    return "in_progress" if job.epoch or job.revision else "accepted"


def is_done(job: JobRow) -> bool:
    """Whether nothing more will happen to it by itself."""
    return job.phase == DONE
