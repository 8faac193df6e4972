"""Tables of jobs.

A job is one row that moves through three phases; record and job are written in one commit. The record of a key points
to its job and copies nothing of it: status and result are those of the job. Counters are rows too, so that queue
depth, leases and records are checked in the commit that changes them.

All rows are under one lock. Look-ups: a job by its id (JOB);
waiting jobs by queue and priority or by kind (JOB "ready", "kind"); jobs that become ready (JOB "later"); due jobs by
phase (JOB "due": a lease that expires, a job whose retention ends); lists by state, kind and queue (JOB "listed", and
"owner" for one principal; see `lists`); a key by principal (JOB_RECORD); keys by expiry (JOB_EXPIRY, and JOB_BRIEF for
generated ones); the callers with most jobs (JOB_SHARE); dead letters by age (JOB_DEAD); schedules by their next instant
(JOB_SCHEDULE "next"); the latest job of a unique or debounce key (JOB_UNIQUE), and the keys that point to a job they
have not made (JOB_ALIAS); a group by the job that waits for it (JOB_GROUP), its members (JOB_MEMBER), and children by
their names (JOB_CHILD). Jobs that do not wait are not in the indexes of claims. The record of a key is written once:
its expiry is a column of its job, and the end of the job appends a row to JOB_EXPIRY or JOB_BRIEF. So a claim or a
completion writes few pages.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.kernel.verdict import NEVER
from semel.store.table import Below, Table
from semel.surfaces.jobs.schedule_table import JOB_SCHEDULE

WAITING, LEASED, DONE = 0, 1, 2
"""The phases of a job. Whether a waiting job is scheduled or queued depends on the time."""

INLINE_BYTES = 1_024
"""Params and results up to this many bytes are stored in the row of the job; larger ones in separate rows."""

NOT_COUNTED, AS_SCHEDULED, AS_QUEUED = 0, 1, 2
"""How a waiting job is counted; rows older than these counts are not counted yet. Other jobs have the last value."""

LISTED_SCHEDULED, LISTED_ACTIVE, LISTED_COMPLETED, LISTED_FAILED = 0, 1, 2, 3
"""Index values for lists. Queued and leased jobs share one, so that a claim does not change it."""

NO_TIMEOUT_GIVEN = -1
"""The time limit of a job that uses the limit of its queue."""

PARAMS, RESULT = 0, 1
"""The parts of a job that may be large."""

ALIAS_UNIQUE, ALIAS_DEBOUNCED = 1, 2
"""Why the record of a key points to a job that another submission made."""

GENERATED = -1
"""The record of a key that the client has made up for one call, and that made the job it points to."""


class JobRow(NamedTuple):
    """One job."""

    id: bytes
    """See `ids`."""
    principal: bytes
    key: bytes
    """The packed idempotency key; empty without one."""
    kind: bytes
    queue: bytes
    priority: int
    phase: int
    ready_at: int
    due_at: int
    """Leased: when the lease expires, in steady time. Done: when the row may be deleted. Waiting: when it has waited
    too long.
    """
    created_at: int
    finished_at: int
    attempt: int
    max_attempts: int
    epoch: int
    revision: int
    deferrals: int
    lease_ms: int
    held_ms: int
    """The length of the current lease in milliseconds."""
    claimed_at: int
    """When the current lease began, in steady time."""
    worker: bytes
    holder: bytes
    """The principal of the worker."""
    ended_by: int
    """How the last lease ended, or the job; see `rules.states`."""
    cancel: int
    reason: bytes
    report: bytes
    """SHA-256 of the last report, which identifies a repeated one."""
    params_bytes: int
    params: bytes
    result_bytes: int
    result: bytes
    """The canonical result or error, if it is small; `result_bytes` is its size wherever it is stored."""
    client: bytes
    start: bytes
    """The delay or instant of the first submission, as it was given."""
    progress: bytes
    errors: bytes
    """The last few errors as JSON."""
    steps: int
    offered: int
    """1 while the lease is only offered: its claim waited, and its worker has not confirmed it."""
    timeout_ms: int
    """Time limit of a run in milliseconds; 0 is none; below 0 the limit of the queue."""
    timeout_at: int
    """The limit of the current lease in steady time, which no heartbeat extends; 0 without a limit."""
    lease: bytes
    """The id of the current lease, empty without one: soft changes of a lease must not apply to a later one."""
    beat_at: int
    """When `progress` was set, in steady time; each value is greater than the one before."""
    counted: int
    """How a waiting job is counted, by caller and queue: scheduled, queued, or not yet."""
    listed: int
    """The index value for lists."""
    key_until: int
    """When the job's key expires: `NEVER` until the job ends. 0 if it has no key, or has lost it. A generated key has
    the same number below 0.
    """
    links: bytes = b""
    """What binds the job to others, packed by `rules.links`; empty for most."""
    checksum: int = 0


class JobPartRow(NamedTuple):
    """A large part of a job."""

    id: bytes
    part: int
    data: bytes
    checksum: int = 0


class JobRecordRow(NamedTuple):
    """The use of an idempotency key. When it expires is told by its job; see `rules.uniqueness` for an alias."""

    principal: bytes
    key: bytes
    fingerprint: bytes
    job: bytes
    created_at: int
    seen_at: int
    alias: int = 0
    """Why the key points to a job that it has not made; 0 if it has made it, and `GENERATED` if the client has made up
    the key besides.
    """
    checksum: int = 0


class JobAliasRow(NamedTuple):
    """A key that points to a job which another submission made."""

    id: bytes
    principal: bytes
    key: bytes


class JobUniqueRow(NamedTuple):
    """The latest job of a unique or debounce key."""

    principal: bytes
    name: bytes
    job: bytes
    checksum: int = 0


class JobGroupRow(NamedTuple):
    """The members of a group by its join, which waits for them, or children by their parent; see `rules.groups`."""

    id: bytes
    size: int
    """The declared number of members; 0 if the group is closed by a call."""
    is_closed: int
    """Whether no further members may be submitted; children are submitted under the lease of their parent."""
    members: int
    ended: int
    failed: int
    is_held: int
    """Whether the job waits for its members now."""
    on_failure: int
    is_settled: int
    """0 if members have to be cancelled."""
    checksum: int = 0


class JobMemberRow(NamedTuple):
    """A member of a group, or a child and its name; the outcome is 0 before its end."""

    group: bytes
    id: bytes
    outcome: int
    name: bytes
    checksum: int = 0


class JobChildRow(NamedTuple):
    """A child by its name: what makes its submission idempotent over all attempts of its parent."""

    parent: bytes
    name: bytes
    fingerprint: bytes
    job: bytes
    checksum: int = 0


class JobExpiryRow(NamedTuple):
    """The key of an ended job, in the order of expiry: named keys in JOB_EXPIRY, generated ones in JOB_BRIEF."""

    expires_at: int
    id: bytes
    principal: bytes
    key: bytes
    checksum: int = 0


class JobTotalsRow(NamedTuple):
    """Counts over all jobs, and the time of the last decision."""

    name: bytes
    seq: int
    updated_at: int
    waiting: int
    leased: int
    records: int
    """The number of keys that callers named."""
    dead: int
    scheduled: int
    """The number of waiting jobs that are counted as scheduled."""
    checksum: int = 0


class JobLineRow(NamedTuple):
    """The number of jobs of a priority that wait in a queue, and an instant before which none is ready."""

    priority: int
    queue: bytes
    waiting: int
    ready_at: int
    checksum: int = 0


class JobKindRow(NamedTuple):
    """As `JobLineRow`, for one kind."""

    kind: bytes
    priority: int
    queue: bytes
    waiting: int
    ready_at: int
    checksum: int = 0


class JobQueueRow(NamedTuple):
    """Counts and limits of a queue: leases, their limit, the time limit of a run, and waiting jobs; 0 is no limit."""

    queue: bytes
    leased: int
    max_inflight: int
    default_timeout_ms: int
    queued: int
    scheduled: int
    rate_count: int = 0
    """At most this number of leases are given in `rate_ms` milliseconds; see `rules.rate_limit`."""
    rate_ms: int = 0
    rate_full_at: int = 0
    """When all tokens are back, in lease time and units of 1/`rate_count` ms."""
    checksum: int = 0


class JobTenantRow(NamedTuple):
    """The number of keys of a principal: those that it named, and generated ones.

    The row without a name counts the generated keys of all principals; the named ones are in `JobTotalsRow`.
    """

    principal: bytes
    records: int
    generated: int = 0


class JobShareRow(NamedTuple):
    """The number of waiting jobs of a principal."""

    principal: bytes
    queued: int
    scheduled: int


class JobDeadRow(NamedTuple):
    """An entry of the dead letter queue."""

    died_at: int
    id: bytes


class JobStepRow(NamedTuple):
    """The stored result of one step of a job, which later attempts get."""

    id: bytes
    key: bytes
    result: bytes
    checksum: int = 0


class JobClaimRow(NamedTuple):
    """The answer to a named claim: jobs and epochs, packed by `rules.claim`."""

    worker: bytes
    claim: bytes
    until: int
    leases: bytes
    checksum: int = 0


class JobSealRow(NamedTuple):
    """The secret of lease tokens; stored, so that all nodes and later starts share it."""

    name: bytes
    secret: bytes
    checksum: int = 0


JOB = Table(
    "job",
    JobRow,
    key=1,
    indexes={
        "ready": ("phase", "queue", "priority", "ready_at", "id"),
        "kind": ("phase", "kind", "queue", "priority", "ready_at"),
        "due": ("phase", "due_at"),
        "owner": ("principal", "listed", "kind", "queue", "id"),
        "later": ("phase", "counted", "ready_at"),
        "listed": ("listed", "kind", "queue", "id"),
    },
    bulky=True,
    partial={
        "ready": Below("phase", LEASED),
        "kind": Below("phase", LEASED),
        "due": Below("due_at", NEVER),
        "later": Below("counted", AS_QUEUED),
    },
    recent=Below("phase", DONE),
    floors=("due",),
    unsummed=("due_at", "beat_at", "progress"),
    unsummed_if=lambda row: row.phase == LEASED,  # only the heartbeats of a lease change them softly
)
JOB_PART = Table("job_part", JobPartRow, key=2, bulky=True)
JOB_RECORD = Table("job_record", JobRecordRow, key=2, log=True, unsummed=("seen_at",))
JOB_ALIAS = Table("job_alias", JobAliasRow, key=3)
JOB_UNIQUE = Table("job_unique", JobUniqueRow, key=2)
JOB_GROUP = Table(
    "job_group",
    JobGroupRow,
    key=1,
    indexes={"unsettled": ("is_settled",)},
    partial={"unsettled": Below("is_settled", 1)},
)
JOB_MEMBER = Table("job_member", JobMemberRow, key=2, indexes={"outcome": ("group", "outcome", "id")})
JOB_CHILD = Table("job_child", JobChildRow, key=2)
LINKED = (JOB_ALIAS, JOB_UNIQUE, JOB_GROUP, JOB_MEMBER, JOB_CHILD)
JOB_EXPIRY = Table("job_expiry", JobExpiryRow, key=2)
JOB_BRIEF = Table("job_brief", JobExpiryRow, key=2)
JOB_TOTALS = Table("job_totals", JobTotalsRow, key=1, cached=True)
JOB_LINE = Table("job_line", JobLineRow, key=2, indexes={"ready": ("ready_at",)}, cached=True)
JOB_KIND = Table("job_kinds", JobKindRow, key=3, indexes={"ready": ("kind", "ready_at")}, cached=True)
JOB_QUEUE = Table("job_queue", JobQueueRow, key=1, cached=True)
JOB_TENANT = Table("job_tenant", JobTenantRow, key=1, cached=True)
JOB_SHARE = Table(
    "job_share", JobShareRow, key=1, indexes={"queued": ("queued",), "scheduled": ("scheduled",)}, cached=True
)
JOB_DEAD = Table("job_dead", JobDeadRow, key=2)
JOB_STEP = Table("job_step", JobStepRow, key=2, bulky=True)
JOB_CLAIM = Table("job_claim", JobClaimRow, key=2, indexes={"until": ("until",)})
JOB_SEAL = Table("job_seal", JobSealRow, key=1, cached=True)

ALONE = (b"",)
"""The key of the row of a table that has one row."""
NO_TOTALS = JobTotalsRow(b"", 0, 0, 0, 0, 0, 0, 0)

TABLES = (
    JOB,
    JOB_PART,
    JOB_RECORD,
    *LINKED,
    JOB_EXPIRY,
    JOB_BRIEF,
    JOB_TOTALS,
    JOB_LINE,
    JOB_KIND,
    JOB_QUEUE,
    JOB_TENANT,
    JOB_SHARE,
    JOB_DEAD,
    JOB_STEP,
    JOB_CLAIM,
    JOB_SEAL,
    JOB_SCHEDULE,
)
