"""Every table of every surface, and the numbered way from an empty store to them."""

from __future__ import annotations

from semel.contracts.events import tables as events
from semel.contracts.jobs import tables as jobs
from semel.contracts.streams import tables as streams
from semel.engine.generations import GENERATION
from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import AnyTable
from semel.store.table import Column, Kind, Shape

TABLES: tuple[AnyTable, ...] = (GENERATION, *streams.TABLES, *events.TABLES, *jobs.TABLES)

_I64, _BYTES = Kind.I64, Kind.BYTES

MIGRATIONS = (
    Migration(
        1,
        "generations and streams",
        (
            CreateTable(
                Shape(
                    "generation",
                    (
                        Column("table_name", _BYTES),
                        Column("opened_at", _I64),
                        Column("window_ms", _I64),
                        Column("older_window_ms", _I64),
                    ),
                    key=1,
                )
            ),
            CreateTable(
                Shape(
                    "stream",
                    (
                        Column("scope", _BYTES),
                        Column("path", _BYTES),
                        Column("id", _BYTES),
                        Column("content_type", _BYTES),
                        Column("ttl_seconds", _I64, nullable=True),
                        Column("expires_at", _I64, nullable=True),
                        Column("expires_text", _BYTES, nullable=True),
                        Column("deadline", _I64),
                        Column("created_at", _I64),
                        Column("updated_at", _I64),
                        Column("tail", _I64),
                        Column("closed", _I64),
                        Column("last_seq", _BYTES, nullable=True),
                        Column("closer_id", _BYTES, nullable=True),
                        Column("closer_epoch", _I64, nullable=True),
                        Column("closer_seq", _I64, nullable=True),
                    ),
                    key=1,
                    indexes={"deadline": ("deadline",), "path": ("path",)},
                )
            ),
            CreateTable(
                Shape(
                    "chunk",
                    (
                        Column("id", _BYTES),
                        Column("end_at", _I64),
                        Column("data", _BYTES),
                        Column("messages", _I64),
                        Column("committed_at", _I64),
                    ),
                    key=2,
                    bulky=True,
                )
            ),
            CreateTable(
                Shape(
                    "producer",
                    (
                        Column("scope", _BYTES),
                        Column("producer", _BYTES),
                        Column("id", _BYTES),
                        Column("epoch", _I64),
                        Column("seq", _I64),
                    ),
                    key=2,
                    indexes={"life": ("id",)},
                )
            ),
            CreateTable(
                Shape(
                    "receipt",
                    (
                        Column("scope", _BYTES),
                        Column("key", _BYTES),
                        Column("id", _BYTES),
                        Column("fingerprint", _BYTES),
                        Column("expires_at", _I64),
                        Column("status", _I64),
                        Column("tail", _I64),
                        Column("closed", _I64),
                        Column("epoch", _I64, nullable=True),
                        Column("seq", _I64, nullable=True),
                    ),
                    key=2,
                    generational=True,
                    bulky=True,
                )
            ),
            CreateTable(Shape("grave", (Column("id", _BYTES), Column("ended_at", _I64)), key=1)),
        ),
    ),
    Migration(
        2,
        "events",
        (
            CreateTable(
                Shape(
                    "event",
                    (
                        Column("committed_id", _I64),
                        Column("id", _BYTES),
                        Column("client_id", _BYTES),
                        Column("origin", _BYTES),
                        Column("committed_at", _I64),
                        Column("partitions", _BYTES),
                        Column("event", _BYTES),
                    ),
                    key=1,
                    bulky=True,
                )
            ),
            CreateTable(
                Shape(
                    "event_id",
                    (
                        Column("key", _BYTES),
                        Column("committed_id", _I64),
                        Column("committed_at", _I64),
                        Column("digest", _BYTES),
                    ),
                    key=1,
                    bulky=True,
                )
            ),
            CreateTable(Shape("event_place", (Column("name", _BYTES), Column("committed_id", _I64)), key=2)),
            CreateTable(
                Shape(
                    "event_head",
                    (
                        Column("name", _BYTES),
                        Column("last_id", _I64),
                        Column("updated_at", _I64),
                        Column("pruned_to", _I64),
                    ),
                    key=1,
                )
            ),
        ),
    ),
    Migration(
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
    ),
)
