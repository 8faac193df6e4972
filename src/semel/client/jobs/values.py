"""Immutable argument and result types of calls.

Instants are aware datetimes in UTC. Lease tokens are not in `repr`, because they give control of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

Status = Literal["accepted", "in_progress", "completed", "failed"]
State = Literal["scheduled", "queued", "leased", "completed", "failed"]
CatchUp = Literal["last", "all", "none"]
J = TypeVar("J")


@dataclass(frozen=True, slots=True)
class Unique:
    """One job for several submissions: an earlier job with the same unique key stands for a new submission."""

    key: str | None = None
    """The unique key; None means kind and params."""
    window: float | None = None
    """Seconds since its submission in which an earlier job counts; None means no limit."""
    states: tuple[State, ...] | None = None
    """In which states an earlier job counts; by default those before its end, with a window `completed` too."""


@dataclass(frozen=True, slots=True)
class Debounce:
    """One job for a burst of submissions: it starts `delay` seconds after the last one, with its params."""

    key: str
    delay: float
    longest: float | None = None
    """It starts at most this many seconds after the first submission."""


@dataclass(frozen=True, slots=True)
class Join:
    """A job that waits for the members of a group, whose id is its own job id."""

    size: int | None = None
    """The number of members; without it the group is open until it is closed."""
    on_failure: Literal["wait", "cancel"] = "wait"
    """Whether the first member that fails cancels the others."""


@dataclass(frozen=True, slots=True)
class JobMember:
    """A member of a group, or a child of a job."""

    job_id: str
    name: str | None
    """The name of a child."""
    state: State
    reason: str | None
    """Why it failed."""

    @property
    def has_ended(self) -> bool:
        """Whether it is completed or permanently failed."""
        return self.state in ("completed", "failed")


@dataclass(frozen=True, slots=True)
class QueueRate:
    """A rate limit of a queue: at most `count` jobs start in `per` seconds, after a burst of `count`."""

    count: int
    per: float = 1.0


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to submit. Without a key it gets a new one, so that a retry cannot submit it twice."""

    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    queue: str | None = None
    priority: int | str | None = None
    delay: float | None = None
    """Seconds before it may run."""
    run_at: datetime | None = None
    max_attempts: int | None = None
    lease: int | None = None
    """Lease in seconds: how long a worker may send no heartbeat."""
    timeout: float | None = None
    """Time limit of one run in seconds; 0 means no limit, None the limit of the queue."""
    on_failed: Literal["return", "retry"] | None = None
    unique: Unique | None = None
    debounce: Debounce | None = None
    join: Join | None = None
    group: str | None = None
    """The job id of the join whose group it belongs to."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue with its limits and counts."""

    name: str
    max_inflight: int
    """Maximum concurrent jobs; 0 means no limit."""
    default_timeout: float
    """Time limit of a run in seconds, for jobs without their own; 0 means no limit."""
    inflight: int
    waiting: int
    rate: QueueRate | None = None
    """The rate limit, or None."""
    rate_left: int | None = field(default=None, compare=False)
    """How many jobs may start now by the rate limit."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The server's whole answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job: a result or an error. Its checksum has been verified."""

    job_id: str
    ok: bool
    result: Any = None
    error: Mapping[str, Any] | None = None
    sha256: str = ""
    is_signed: bool = False
    """Whether it has a valid signature by the client's key."""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The server's whole answer."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a submission. `dedup` is False only for the call that created the job."""

    job_id: str
    request_id: str
    key: str
    """Its idempotency key; empty for a text that was submitted without one."""
    dedup: bool
    status: Status
    state: State
    attempt: int
    revision: int
    created: datetime
    expires: datetime | None
    """When the key expires; None until the job has ended."""
    outcome: Outcome | None
    """The outcome of a job that has ended, unless it is too large: then use `jobs.result`."""
    facts: Mapping[str, Any] = field(repr=False, compare=False)
    """The server's whole answer."""

    @property
    def is_joined(self) -> bool:
        """Whether the job of an earlier submission stands for this one, by `unique` or `debounce`."""
        return bool(self.facts.get("unique") or self.facts.get("debounced"))


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job in a list."""

    job_id: str
    request_id: str
    kind: str
    queue: str
    priority: int
    state: State
    status: Status
    attempt: int
    max_attempts: int
    revision: int
    created: datetime
    finished: datetime | None
    cancel_requested: bool
    reason: str | None
    """Why it failed."""
    facts: Mapping[str, Any] = field(repr=False, compare=False)
    """The server's whole answer."""

    @property
    def has_ended(self) -> bool:
        """Whether it is completed or permanently failed."""
        return self.state in ("completed", "failed")


@dataclass(frozen=True, slots=True)
class JobInfo(JobSummary):
    """The state of a job."""

    params: Mapping[str, Any] = field(repr=False)
    progress: Any
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class DeadJob(JobSummary):
    """A job in the list of dead letters, with its last error."""

    error: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class JobListing(Generic[J]):
    """A page of a list of jobs, newest first."""

    jobs: list[J]
    next_after: str | None
    """Pass it as `after` for the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A cron schedule."""

    name: str
    cron: str
    time_zone: str
    kind: str
    params: Mapping[str, Any] = field(repr=False)
    queue: str
    priority: int
    max_attempts: int | None
    catch_up: CatchUp
    paused: bool
    principal: str
    """Its owner, who submits its jobs."""
    last_instant: datetime | None
    """The last time that made a job."""
    next_instant: datetime | None
    facts: Mapping[str, Any] = field(repr=False, compare=False)
    """The server's whole answer."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The answer to a cancellation. A waiting job has failed; a running one continues until its worker is informed."""

    state: State
    cancel_requested: bool
    facts: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Lease:
    """A job that a worker has leased."""

    job_id: str
    request_id: str
    kind: str
    params: Mapping[str, Any] = field(repr=False)
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    epoch: int
    token: str = field(repr=False)
    lease_ms: int
    until: datetime
    created: datetime
    timeout_ms: int = 0
    """Time limit of the run from the claim on, in milliseconds; 0 means no limit."""
    offer_ms: int = 0
    """Milliseconds that the server waits for the first call with this token before another worker gets the job."""
    client: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the submitter told of itself, its trace for example."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The leases of a claim; without any, `pause` is the number of seconds to wait before the next claim."""

    leases: tuple[Lease, ...]
    pause: float


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    until: datetime
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """The answer to a report; `dedup` if the server had it before."""

    status: Status | None
    dedup: bool
    next_run: datetime | None
    """When the job runs again, or None."""
    facts: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    """The stored result of a step; `known` is False if there is none."""

    known: bool
    result: Any
    dedup: bool
