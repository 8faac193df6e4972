"""Migrations of the tables of jobs. A released migration never changes.

| migration | content |
|---|---|
| 3 | the tables of jobs |
| 6 | smaller indexes |
| 9 | offers and time limits of leases, and counts by caller and queue |
| 12 | ids of imported jobs, and indexes for lists |

After migration 9 a lease of older data is not an offer and has no time limit. The server counts the waiting jobs of
older data by caller and queue after its start, in small batches.
"""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration, SetColumn
from semel.store.table import Below, ColumnKind, TableColumn, TableLayout

_I64, _BYTES = ColumnKind.I64, ColumnKind.BYTES

JOB_MIGRATION = Migration(
    3,
    "jobs",
    (
        CreateTable(
            TableLayout(
                "job",
                (
                    TableColumn("id", _BYTES),
                    TableColumn("principal", _BYTES),
                    TableColumn("key", _BYTES),
                    TableColumn("kind", _BYTES),
                    TableColumn("queue", _BYTES),
                    TableColumn("priority", _I64),
                    TableColumn("phase", _I64),
                    TableColumn("ready_at", _I64),
                    TableColumn("due_at", _I64),
                    TableColumn("created_at", _I64),
                    TableColumn("finished_at", _I64),
                    TableColumn("attempt", _I64),
                    TableColumn("max_attempts", _I64),
                    TableColumn("epoch", _I64),
                    TableColumn("revision", _I64),
                    TableColumn("deferrals", _I64),
                    TableColumn("lease_ms", _I64),
                    TableColumn("held_ms", _I64),
                    TableColumn("claimed_at", _I64),
                    TableColumn("worker", _BYTES),
                    TableColumn("holder", _BYTES),
                    TableColumn("ended_by", _I64),
                    TableColumn("cancel", _I64),
                    TableColumn("reason", _BYTES),
                    TableColumn("report", _BYTES),
                    TableColumn("params_bytes", _I64),
                    TableColumn("params", _BYTES),
                    TableColumn("result_bytes", _I64),
                    TableColumn("result", _BYTES),
                    TableColumn("client", _BYTES),
                    TableColumn("start", _BYTES),
                    TableColumn("progress", _BYTES),
                    TableColumn("errors", _BYTES),
                    TableColumn("steps", _I64),
                ),
                key=1,
                indexes={
                    "ready": ("phase", "queue", "priority", "ready_at"),
                    "kind": ("phase", "kind", "queue", "priority", "ready_at"),
                    "due": ("phase", "due_at"),
                    "owner": ("principal",),
                },
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "job_part",
                (
                    TableColumn("id", _BYTES),
                    TableColumn("part", _I64),
                    TableColumn("data", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "job_record",
                (
                    TableColumn("principal", _BYTES),
                    TableColumn("key", _BYTES),
                    TableColumn("fingerprint", _BYTES),
                    TableColumn("job", _BYTES),
                    TableColumn("created_at", _I64),
                    TableColumn("seen_at", _I64),
                    TableColumn("expires_at", _I64),
                ),
                key=2,
                indexes={"expires": ("expires_at",)},
            )
        ),
        CreateTable(
            TableLayout(
                "job_totals",
                (
                    TableColumn("name", _BYTES),
                    TableColumn("seq", _I64),
                    TableColumn("updated_at", _I64),
                    TableColumn("waiting", _I64),
                    TableColumn("leased", _I64),
                    TableColumn("records", _I64),
                    TableColumn("dead", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "job_line",
                (
                    TableColumn("priority", _I64),
                    TableColumn("queue", _BYTES),
                    TableColumn("waiting", _I64),
                    TableColumn("ready_at", _I64),
                ),
                key=2,
                indexes={"ready": ("ready_at",)},
            )
        ),
        CreateTable(
            TableLayout(
                "job_kinds",
                (
                    TableColumn("kind", _BYTES),
                    TableColumn("priority", _I64),
                    TableColumn("queue", _BYTES),
                    TableColumn("waiting", _I64),
                    TableColumn("ready_at", _I64),
                ),
                key=3,
                indexes={"ready": ("kind", "ready_at")},
            )
        ),
        CreateTable(
            TableLayout(
                "job_queue",
                (
                    TableColumn("queue", _BYTES),
                    TableColumn("leased", _I64),
                    TableColumn("max_inflight", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "job_tenant",
                (
                    TableColumn("principal", _BYTES),
                    TableColumn("records", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "job_dead",
                (
                    TableColumn("died_at", _I64),
                    TableColumn("id", _BYTES),
                ),
                key=2,
            )
        ),
        CreateTable(
            TableLayout(
                "job_step",
                (
                    TableColumn("id", _BYTES),
                    TableColumn("key", _BYTES),
                    TableColumn("result", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "job_claim",
                (
                    TableColumn("worker", _BYTES),
                    TableColumn("claim", _BYTES),
                    TableColumn("until", _I64),
                    TableColumn("leases", _BYTES),
                ),
                key=2,
                indexes={"until": ("until",)},
            )
        ),
        CreateTable(
            TableLayout(
                "job_seal",
                (
                    TableColumn("name", _BYTES),
                    TableColumn("secret", _BYTES),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "job_schedule",
                (
                    TableColumn("name", _BYTES),
                    TableColumn("owner", _BYTES),
                    TableColumn("cron", _BYTES),
                    TableColumn("kind", _BYTES),
                    TableColumn("params", _BYTES),
                    TableColumn("queue", _BYTES),
                    TableColumn("priority", _I64),
                    TableColumn("max_attempts", _I64),
                    TableColumn("catch_up", _BYTES),
                    TableColumn("paused", _I64),
                    TableColumn("changed_at", _I64),
                    TableColumn("last_instant", _I64),
                    TableColumn("last_fired", _I64),
                    TableColumn("next_at", _I64),
                ),
                key=1,
                indexes={"next": ("next_at",)},
            )
        ),
    ),
)

_WAITING = Below("phase", 1)

JOB_INDEXES_MIGRATION = Migration(
    6,
    "indexes of the jobs that wait and of the keys that expire, without the others",
    (
        MakeIndex("job", ("id",), "ready", ("phase", "queue", "priority", "ready_at"), _WAITING),
        MakeIndex("job", ("id",), "kind", ("phase", "kind", "queue", "priority", "ready_at"), _WAITING),
        MakeIndex("job_record", ("principal", "key"), "expires", ("expires_at",), Below("expires_at", 2**63 - 1)),
    ),
)


JOB_OFFERS_MIGRATION = Migration(
    9,
    "offers and time limits of jobs, and counts by caller and queue",
    (
        AddColumn("job", TableColumn("offered", _I64), 0),
        AddColumn("job", TableColumn("timeout_ms", _I64), -1),
        AddColumn("job", TableColumn("timeout_at", _I64), 0),
        AddColumn("job", TableColumn("lease", _BYTES), b""),
        AddColumn("job", TableColumn("beat_at", _I64), 0),
        AddColumn("job", TableColumn("counted", _I64), 0),
        AddColumn("job_totals", TableColumn("scheduled", _I64), 0),
        AddColumn("job_queue", TableColumn("default_timeout_ms", _I64), 0),
        AddColumn("job_queue", TableColumn("queued", _I64), 0),
        AddColumn("job_queue", TableColumn("scheduled", _I64), 0),
        AddColumn("job_schedule", TableColumn("time_zone", _BYTES), b""),
        CreateTable(
            TableLayout(
                "job_share",
                (TableColumn("principal", _BYTES), TableColumn("queued", _I64), TableColumn("scheduled", _I64)),
                key=1,
                indexes={"queued": ("queued",), "scheduled": ("scheduled",)},
            )
        ),
        MakeIndex("job", ("id",), "later", ("phase", "counted", "ready_at"), Below("counted", 2)),
    ),
)


JOB_LISTS_MIGRATION = Migration(
    12,
    "ids of jobs that came from other stores, and indexes of what lists show",
    (
        CreateTable(TableLayout("job_name", (TableColumn("name", _BYTES), TableColumn("id", _BYTES)), key=1)),
        # Failed, unless one of these holds: no reason, so completed; not done, so leased; waiting; and that for later.
        AddColumn("job", TableColumn("listed", _I64), 3),
        SetColumn("job", "listed", 2, (Below("reason", b"\0"),)),
        SetColumn("job", "listed", 1, (Below("phase", 2),)),
        SetColumn("job", "listed", 0, (Below("phase", 1), Below("counted", 2))),
        # SQLite orders by the id from an index only if it is named there: a large row has a key of another kind.
        MakeIndex("job", ("id",), "listed", ("listed", "kind", "queue", "id")),
        MakeIndex("job", ("id",), "owner", ("principal", "listed", "kind", "queue", "id")),
    ),
)
