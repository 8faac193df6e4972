"""Immutable argument and result types of calls.

Instants are aware datetimes in UTC. Lease tokens are kept out of representations, because they are as good as the job.
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
    """A job to submit. Without a key it gets a fresh one, so that a repeated call cannot submit it twice."""

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
    """Seconds that a worker may be silent."""
    timeout: float | None = None
    """Seconds that one run may take; 0 is no limit, None is what the queue says."""
    on_failed: Literal["return", "retry"] | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue: its limits, and how much is in it."""

    name: str
    max_inflight: int
    """Jobs that may be worked on at once; 0 is no limit."""
    default_timeout: float
    """Seconds that a run may take, for jobs without a limit of their own; 0 is no limit."""
    inflight: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: a result, or an error. Its checksum has been verified."""

    job_id: str
    ok: bool
    result: Any = None
    error: Mapping[str, Any] | None = None
    sha256: str = ""
    is_signed: bool = False
    """Whether it has a signature that matches the client's key."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a submission. `dedup` is False only for the call that made the job."""

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
    """When the key expires; None while the job has not ended."""
    outcome: Outcome | None
    """Of a job that has ended, unless it was too large to be sent along: `JobsClient.result` gets it whole."""
    facts: Mapping[str, Any] = field(repr=False)
    """All that the server said."""


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
        """Whether it is completed or failed for good."""
        return self.state in ("completed", "failed")


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The answer to a cancellation. A waiting job has failed; a running one continues until its worker is informed."""

    state: State
    cancel_requested: bool
    facts: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lease:
    """A job in a worker's hands."""

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
    """How long it may run, from the claim on; 0 for as long as it takes."""
    offer_ms: int = 0
    """How long the server waits for the first call with this token before it gives the job to another worker."""


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
    """A report was taken; `dedup` if it had been taken before."""

    status: Status | None
    dedup: bool
    next_run: datetime | None
    """When the job runs again, if it does."""
    facts: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """The stored result of a step: `known` is False, and there is no result, when there is none."""

    known: bool
    result: Any
    dedup: bool
