"""The commands of jobs, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.surfaces.jobs.limits import Reach
from semel.surfaces.jobs.tables import NO_TIMEOUT_GIVEN, JobRow, JobScheduleRow


class JobNote(NamedTuple):
    """An event of a decision that is counted and written to the audit log after the commit."""

    event: str
    details: Mapping[str, Any]


class JobDraft(NamedTuple):
    """One job as it was submitted."""

    principal: bytes
    key: bytes
    """Packed; empty without one."""
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
    """The names of the fields outside the hash that the request had."""
    chance: bytes
    """Eight bytes for the id."""
    timeout_ms: int = NO_TIMEOUT_GIVEN


class SubmitJobs(NamedTuple):
    """Submit jobs, each decided by itself, in order."""

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
    """The queues that the caller is limited to, each a name or (True) a prefix; None for all."""
    lease_ms: int | None
    claim: bytes
    """Packed; empty for a claim without a name."""
    reap_until: int
    """Leases are reaped first, unless this time has passed when the claim is judged: see `ReapLeases`."""
    asked_at: int
    secret: bytes
    """Becomes the secret of the store's tokens, if it has none."""
    waits: bool = False
    """Whether the caller waits for its answer: then it may have disconnected, and leases are offers."""


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
    """Why its checksum is not believed; empty when it is."""
    mode: str = "sha256"
    """The kind of checksum that was requested."""
    is_foreign: bool = False
    """Whether it may conclude a job that was never claimed."""
    reach: Reach | None = None
    """The queues that a caller without a lease is limited to; None for all."""


class DeferJob(NamedTuple):
    """Give a job back for a while, without counting the attempt."""

    id: bytes
    token: bytes
    delay_ms: int
    digest: bytes


class JobStep(NamedTuple):
    """Read the result of a step, or store it."""

    id: bytes
    token: bytes
    key: bytes
    result: bytes | None


class CancelJob(NamedTuple):
    """End a job that its owner, or an administrator, no longer wants."""

    id: bytes
    principal: bytes
    is_admin: bool
    forces: bool


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


class LimitQueue(NamedTuple):
    """Limit the leases of a queue, or the time of its runs; 0 removes a limit, None leaves it."""

    queue: bytes
    max_inflight: int | None
    default_timeout_ms: int | None = None


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
    """Whose clocks the line is about; empty for UTC."""


class DropSchedule(NamedTuple):
    """Delete a schedule."""

    name: bytes


class FireSchedule(NamedTuple):
    """Fire what is due of a schedule."""

    name: bytes
    chance: bytes


class PromoteJobs(NamedTuple):
    """Count jobs as queued that were scheduled and are ready by now, and count those that were not counted yet."""

    most: int
    until: int
    """About now: jobs that become ready later are ignored."""


class ReapLeases(NamedTuple):
    """End expired leases, and fail jobs that waited too long.

    Only until a time, in steady time: a command that was held up by an outage must not reap the workers whose
    heartbeats were held up by the same outage.
    """

    most: int
    until: int


class RenewLeases(NamedTuple):
    """Make up for a time without heartbeats: it is added to these leases, or they begin anew."""

    ids: tuple[bytes, ...]
    since: int | None
    """When it began, in steady time; None when that is unknown, as after a start."""


class ForgetRecords(NamedTuple):
    """Free keys that have expired."""

    keys: tuple[tuple[bytes, bytes], ...]


class ForgetJobs(NamedTuple):
    """Free jobs whose retention is over, each with the keys of its steps."""

    jobs: tuple[tuple[bytes, tuple[bytes, ...]], ...]


class ForgetClaims(NamedTuple):
    """Free named claims whose leases are over."""

    keys: tuple[tuple[bytes, bytes], ...]


class ImportedJobRecord(NamedTuple):
    """A key from another store, with the end of its job."""

    principal: bytes
    key: bytes
    """Packed."""
    payload_hash: bytes
    id: bytes
    """Sixteen bytes: those of the request id, when it was a UUID; and the name of the job there, if it had one."""
    created_at: int
    finished_at: int
    ok: bool
    value: bytes
    """The canonical result or error."""
    digest: bytes
    """SHA-256 of the report that such an end would have had."""


class ImportJobRecords(NamedTuple):
    """Import keys from another store; existing keys are left alone."""

    records: tuple[ImportedJobRecord, ...]


# Answers.


class JobAdmitted(NamedTuple):
    """A job, new or known. `rule` names the row of the submission table that applied."""

    rule: str
    job: JobRow
    expires_at: int | None
    """When its key expires; None while it is pinned or without one."""
    ignored: tuple[str, ...] = ()
    notes: tuple[JobNote, ...] = ()


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
    """Whether it ends empty because its worker has let another lease or offer run out meanwhile."""


class LeaseExtended(NamedTuple):
    """The lease was extended."""

    until_ms: int
    is_cancelled: bool


class JobReported(NamedTuple):
    """A report was accepted now, or earlier (`dedup`)."""

    job: JobRow
    dedup: bool
    notes: tuple[JobNote, ...] = ()
    ran_ms: int | None = None


class JobStepResult(NamedTuple):
    """The stored result of a step; None when there is none."""

    result: bytes | None
    dedup: bool


class JobChanged(NamedTuple):
    """A job after an admin command, and the time of it."""

    job: JobRow
    now: Now
    notes: tuple[JobNote, ...] = ()


class JobsAffected(NamedTuple):
    """A command was carried out on `number` things."""

    number: int = 1
    notes: tuple[JobNote, ...] = ()


class ScheduleSaved(NamedTuple):
    """The current state of a schedule."""

    row: JobScheduleRow
    is_new: bool


class ScheduleFired(NamedTuple):
    """The effect of a tick; `again` when more is due at once."""

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
    | ImportJobRecords
)
