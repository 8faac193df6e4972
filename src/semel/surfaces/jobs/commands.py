"""The commands of jobs, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.surfaces.jobs.limits import Reach
from semel.surfaces.jobs.maintenance_commands import (
    CancelMembers,
    ForgetClaims,
    ForgetJobs,
    ForgetRecords,
    PromoteJobs,
    ReapLeases,
    RenewLeases,
)
from semel.surfaces.jobs.schedule_table import JobScheduleRow
from semel.surfaces.jobs.tables import NO_TIMEOUT_GIVEN, JobGroupRow, JobRow


class JobNote(NamedTuple):
    """An event of a decision that is counted and written to the audit log after the commit."""

    event: str
    details: Mapping[str, Any]


class SingleRule(NamedTuple):
    """The request that one job stands for several submissions: unique or debounced."""

    name: bytes
    """The name of the row of the key."""
    key: str
    """The key as it was given; empty if the payload is the key."""
    states: frozenset[str] = frozenset()
    """Unique: the states in which an earlier job stands for this submission."""
    for_ms: int = 0
    """Unique: how long after its submission it does; 0 without a limit."""
    debounces: bool = False
    delay_ms: int = 0
    """Debounced: the time from the last submission to the start, in milliseconds."""
    max_ms: int = 0
    """Debounced: the longest time from the first submission to the start; 0 without a limit."""


class GroupPlace(NamedTuple):
    """The place of a new job in groups: whom it is a member or a child of, and whether it waits for members."""

    of: bytes = b""
    """The job that waits for it: the join of a group, or its parent."""
    token: bytes = b""
    """The lease token of the parent; empty for a member of a group."""
    child: str = ""
    """The name of a child."""
    joins: bool = False
    size: int = 0
    """Of a join: the number of members; 0 if the group is closed by a call."""
    cancels: bool = False
    """Of a join: whether the first failure of a member cancels the others."""


class JobDraft(NamedTuple):
    """One job as it was submitted."""

    principal: bytes
    key: bytes
    """Packed; empty for a job without a key."""
    key_prefix: str
    payload_hash: bytes
    kind: bytes
    params: bytes
    queue: bytes
    priority: int
    client: bytes
    start: bytes
    delay_ms: int
    run_at: int | None
    max_attempts: int
    lease_ms: int
    retries_failed: bool
    given: frozenset[str]
    """The names of the request's fields that are not part of the hash."""
    chance: bytes
    """8 random bytes for the id."""
    timeout_ms: int = NO_TIMEOUT_GIVEN
    single: SingleRule | None = None
    place: GroupPlace | None = None
    is_generated: bool = False
    """Whether the client has made up the key for this one call."""


class SubmitJobs(NamedTuple):
    """Submit jobs; each is decided separately, in order."""

    drafts: tuple[JobDraft, ...]


class ClaimJobs(NamedTuple):
    """Lease jobs that are ready."""

    principal: bytes
    worker: bytes
    most: int
    kinds: tuple[bytes, ...]
    """Empty for every kind."""
    queues: tuple[bytes, ...]
    """Empty for every queue within reach."""
    reach: Reach | None
    """The queues that the caller may reach; None for all."""
    lease_ms: int | None
    claim: bytes
    """Packed; empty for a claim without a name."""
    reap_until: int
    """Expired leases are reaped first, unless the decision comes after this steady time; see `ReapLeases`."""
    asked_at: int
    secret: bytes
    """Becomes the secret of the lease tokens, if the store has none yet."""
    waits: bool = False
    """Whether this is a long poll; its caller may have disconnected, so its leases are offers."""


class JobHeartbeat(NamedTuple):
    """Extend a lease."""

    id: bytes
    token: bytes
    progress: bytes | None


class JobReport(NamedTuple):
    """The end of a run: done, or failed."""

    id: bytes
    token: bytes | None
    ok: bool
    value: bytes
    """The canonical result or error."""
    digest: bytes
    error_code: str = ""
    error_message: str = ""
    """The message of a failure, cut to the limit of the history."""
    retryable: bool = True
    retry_after_ms: int | None = None
    flaw: str = ""
    """Why the checksum is wrong; empty if it is correct."""
    mode: str = "sha256"
    """The kind of checksum that the settings require."""
    is_foreign: bool = False
    """Whether the report may conclude a job that was never claimed."""
    reach: Reach | None = None
    """The queues that a caller without a lease may reach; None for all."""


class DeferJob(NamedTuple):
    """Return a job to its queue for a delay; the attempt is not counted."""

    id: bytes
    token: bytes
    delay_ms: int
    digest: bytes
    waits_children: bool = False
    """Whether the job waits until its children have ended; then the delay is not used."""


class JobStep(NamedTuple):
    """Read the result of a step, or store it."""

    id: bytes
    token: bytes
    key: bytes
    result: bytes | None


class CancelJob(NamedTuple):
    """Cancel a job, for its owner or an administrator."""

    id: bytes
    principal: bytes
    is_admin: bool
    forces: bool
    with_members: bool = False
    """Whether the members or children that the job waits for are cancelled too."""


class CloseGroup(NamedTuple):
    """Admit no further members to a group, for its owner or an administrator."""

    id: bytes
    principal: bytes
    is_admin: bool


class RequeueJob(NamedTuple):
    """Run a failed job again."""

    id: bytes
    by: str


class ReleaseKey(NamedTuple):
    """Release a key."""

    principal: bytes
    key: bytes
    key_prefix: str
    forces: bool


class RateLimit(NamedTuple):
    """At most `starts` leases in `per_ms` milliseconds; 0 is no limit."""

    starts: int
    per_ms: int


class LimitQueue(NamedTuple):
    """Limit the leases of a queue, the time of a run, or the starts in a period; 0 removes a limit, None keeps it."""

    queue: bytes
    max_inflight: int | None
    default_timeout_ms: int | None = None
    rate: RateLimit | None = None


class PutSchedule(NamedTuple):
    """Create a schedule, or change it."""

    name: bytes
    owner: bytes
    cron: bytes
    kind: bytes
    params: bytes
    queue: bytes
    priority: int
    max_attempts: int
    catch_up: bytes
    paused: bool
    time_zone: bytes = b""
    """The IANA time zone of the cron expression; empty for UTC."""


class DropSchedule(NamedTuple):
    """Delete a schedule."""

    name: bytes


class FireSchedule(NamedTuple):
    """Submit the due jobs of a schedule."""

    name: bytes
    chance: bytes


# Answers.


class JobAdmitted(NamedTuple):
    """The job of a submission, new or existing; `rule` names the row of the submission table that applied."""

    rule: str
    job: JobRow
    expires_at: int | None
    """When the key expires; None while the key is pinned, or without a key."""
    ignored: tuple[str, ...] = ()
    notes: tuple[JobNote, ...] = ()
    alias: int = 0
    """Why the job of another submission stands for this one; 0 if it is its own."""


class JobKeyCollision(NamedTuple):
    """The key was used for another payload."""

    id: bytes
    old_hash: bytes
    notes: tuple[JobNote, ...] = ()


class JobRefused(NamedTuple):
    """The command was refused and nothing was stored."""

    refusal: Refusal
    notes: tuple[JobNote, ...] = ()


class JobLease(NamedTuple):
    """A leased job."""

    job: JobRow
    token: bytes


class JobsClaimed(NamedTuple):
    """The leases of a claim, perhaps none."""

    leases: tuple[JobLease, ...]
    now_ms: int
    steady_ms: int = 0
    is_saturated: bool = False
    notes: tuple[JobNote, ...] = ()
    is_silenced: bool = False
    """Whether the claim is empty because another lease or offer of its worker expired while it waited."""
    token_wait_ms: int = 0
    """If the claim is empty because of rate limits: the time until a queue may give a job again, in milliseconds."""


class LeaseExtended(NamedTuple):
    """The lease was extended."""

    until_ms: int
    is_cancelled: bool


class JobReported(NamedTuple):
    """The report was accepted, now or earlier (`dedup`)."""

    job: JobRow
    dedup: bool
    notes: tuple[JobNote, ...] = ()
    ran_ms: int | None = None


class JobStepResult(NamedTuple):
    """The stored result of a step; None when there is none."""

    result: bytes | None
    dedup: bool


class JobChanged(NamedTuple):
    """A job after an admin command, and the time of the decision."""

    job: JobRow
    now: Now
    notes: tuple[JobNote, ...] = ()


class JobsAffected(NamedTuple):
    """The command changed `number` rows."""

    number: int = 1
    notes: tuple[JobNote, ...] = ()


class GroupClosed(NamedTuple):
    """The join of a group and the group, after it was closed."""

    job: JobRow
    group: JobGroupRow
    now: Now


class ScheduleSaved(NamedTuple):
    """The current state of a schedule."""

    row: JobScheduleRow
    is_new: bool


class ScheduleFired(NamedTuple):
    """The effect of `FireSchedule`; `again` if more jobs are due now."""

    again: bool
    notes: tuple[JobNote, ...] = ()
    submitted: int = 0


JobCommand = (
    SubmitJobs
    | ClaimJobs
    | JobHeartbeat
    | JobReport
    | DeferJob
    | JobStep
    | CancelJob
    | CloseGroup
    | CancelMembers
    | RequeueJob
    | ReleaseKey
    | LimitQueue
    | PutSchedule
    | DropSchedule
    | FireSchedule
    | PromoteJobs
    | ReapLeases
    | RenewLeases
    | ForgetRecords
    | ForgetJobs
    | ForgetClaims
)
