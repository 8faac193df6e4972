"""Immutable argument and result types of calls.

Instants are aware datetimes in UTC. Lease tokens are not in `repr`, because they give control of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Status = Literal["accepted", "in_progress", "completed", "failed"]
State = Literal["scheduled", "queued", "leased", "completed", "failed"]


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


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a submission. `dedup` is False only for the call that created the job."""

    job_id: str
    request_id: str
    key: str
    dedup: bool
    status: Status
    state: State
    attempt: int
    revision: int
    created: datetime
    expires: datetime | None
    """When the key expires; None until the job has ended."""
    outcome: Outcome | None
    """The outcome of a job that has ended, unless it is too large: then use `JobsClient.result`."""
    facts: Mapping[str, Any] = field(repr=False)
    """The server's whole answer."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The state of a job."""

    job_id: str
    request_id: str
    kind: str
    params: Mapping[str, Any] = field(repr=False)
    queue: str
    priority: int
    state: State
    status: Status
    attempt: int
    max_attempts: int
    revision: int
    created: datetime
    finished: datetime | None
    progress: Any
    cancel_requested: bool
    reason: str | None
    """Why it failed."""
    outcome: Outcome | None
    facts: Mapping[str, Any] = field(repr=False)

    @property
    def has_ended(self) -> bool:
        """Whether it is completed or permanently failed."""
        return self.state in ("completed", "failed")


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The answer to a cancellation. A waiting job has failed; a running one continues until its worker is informed."""

    state: State
    cancel_requested: bool
    facts: Mapping[str, Any] = field(repr=False)


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
    """Time limit of the run from the claim on, in seconds; 0 means no limit."""
    offer_ms: int = 0
    """Seconds that the server waits for the first call with this token before another worker gets the job."""


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
    facts: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """The stored result of a step; `known` is False if there is none."""

    known: bool
    result: Any
    dedup: bool
