"""Migration 3: jobs, as they were first made; and migration 6: lighter indexes of theirs. Never changed."""

from __future__ import annotations

from semel.store.migrations import CreateTable, MakeIndex, Migration
from semel.store.table import Below, Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

JOBS = Migration(
    3,
    "jobs",
    (
        CreateTable(
            Shape(
                "job",
                (
                    Column("id", _BYTES),
                    Column("principal", _BYTES),
                    Column("key", _BYTES),
                    Column("kind", _BYTES),
                    Column("queue", _BYTES),
                    Column("priority", _I64),
                    Column("phase", _I64),
                    Column("ready_at", _I64),
                    Column("due_at", _I64),
                    Column("created_at", _I64),
                    Column("finished_at", _I64),
                    Column("attempt", _I64),
                    Column("max_attempts", _I64),
                    Column("epoch", _I64),
                    Column("revision", _I64),
                    Column("deferrals", _I64),
                    Column("lease_ms", _I64),
                    Column("held_ms", _I64),
                    Column("claimed_at", _I64),
                    Column("worker", _BYTES),
                    Column("holder", _BYTES),
                    Column("ended_by", _I64),
                    Column("cancel", _I64),
                    Column("reason", _BYTES),
                    Column("report", _BYTES),
                    Column("params_bytes", _I64),
                    Column("params", _BYTES),
                    Column("result_bytes", _I64),
                    Column("result", _BYTES),
                    Column("client", _BYTES),
                    Column("start", _BYTES),
                    Column("progress", _BYTES),
                    Column("errors", _BYTES),
                    Column("steps", _I64),
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
            Shape(
                "job_part",
                (
                    Column("id", _BYTES),
                    Column("part", _I64),
                    Column("data", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "job_record",
                (
                    Column("principal", _BYTES),
                    Column("key", _BYTES),
                    Column("fingerprint", _BYTES),
                    Column("job", _BYTES),
                    Column("created_at", _I64),
                    Column("seen_at", _I64),
                    Column("expires_at", _I64),
                ),
                key=2,
                indexes={"expires": ("expires_at",)},
            )
        ),
        CreateTable(
            Shape(
                "job_totals",
                (
                    Column("name", _BYTES),
                    Column("seq", _I64),
                    Column("updated_at", _I64),
                    Column("waiting", _I64),
                    Column("leased", _I64),
                    Column("records", _I64),
                    Column("dead", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "job_line",
                (
                    Column("priority", _I64),
                    Column("queue", _BYTES),
                    Column("waiting", _I64),
                    Column("ready_at", _I64),
                ),
                key=2,
                indexes={"ready": ("ready_at",)},
            )
        ),
        CreateTable(
            Shape(
                "job_kinds",
                (
                    Column("kind", _BYTES),
                    Column("priority", _I64),
                    Column("queue", _BYTES),
                    Column("waiting", _I64),
                    Column("ready_at", _I64),
                ),
                key=3,
                indexes={"ready": ("kind", "ready_at")},
            )
        ),
        CreateTable(
            Shape(
                "job_queue",
                (
                    Column("queue", _BYTES),
                    Column("leased", _I64),
                    Column("max_inflight", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "job_tenant",
                (
                    Column("principal", _BYTES),
                    Column("records", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "job_dead",
                (
                    Column("died_at", _I64),
                    Column("id", _BYTES),
                ),
                key=2,
            )
        ),
        CreateTable(
            Shape(
                "job_step",
                (
                    Column("id", _BYTES),
                    Column("key", _BYTES),
                    Column("result", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "job_claim",
                (
                    Column("worker", _BYTES),
                    Column("claim", _BYTES),
                    Column("until", _I64),
                    Column("leases", _BYTES),
                ),
                key=2,
                indexes={"until": ("until",)},
            )
        ),
        CreateTable(
            Shape(
                "job_seal",
                (
                    Column("name", _BYTES),
                    Column("secret", _BYTES),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "job_schedule",
                (
                    Column("name", _BYTES),
                    Column("owner", _BYTES),
                    Column("cron", _BYTES),
                    Column("kind", _BYTES),
                    Column("params", _BYTES),
                    Column("queue", _BYTES),
                    Column("priority", _I64),
                    Column("max_attempts", _I64),
                    Column("catch_up", _BYTES),
                    Column("paused", _I64),
                    Column("changed_at", _I64),
                    Column("last_instant", _I64),
                    Column("last_fired", _I64),
                    Column("next_at", _I64),
                ),
                key=1,
                indexes={"next": ("next_at",)},
            )
        ),
    ),
)

_WAITING = Below("phase", 1)

LIGHTER_JOBS = Migration(
    6,
    "indexes of the jobs that wait and of the keys that expire, without the others",
    (
        MakeIndex("job", ("id",), "ready", ("phase", "queue", "priority", "ready_at"), _WAITING),
        MakeIndex("job", ("id",), "kind", ("phase", "kind", "queue", "priority", "ready_at"), _WAITING),
        MakeIndex("job_record", ("principal", "key"), "expires", ("expires_at",), Below("expires_at", 2**63 - 1)),
    ),
)
