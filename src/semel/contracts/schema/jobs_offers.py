"""Migration 9: what is known of a lease besides its end, and counts of what waits by caller and queue; never changed.

Leases of data from before are none that were only offered, and have no time limit. Its waiting jobs are counted by
caller and queue when the server has started, a few at a time.
"""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration
from semel.store.table import Below, Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

JOBS_OFFERS = Migration(
    9,
    "offers and time limits of jobs, and counts by caller and queue",
    (
        AddColumn("job", Column("offered", _I64), 0),
        AddColumn("job", Column("timeout_ms", _I64), -1),
        AddColumn("job", Column("timeout_at", _I64), 0),
        AddColumn("job", Column("lease", _BYTES), b""),
        AddColumn("job", Column("beat_at", _I64), 0),
        AddColumn("job", Column("counted", _I64), 0),
        AddColumn("job_totals", Column("scheduled", _I64), 0),
        AddColumn("job_queue", Column("default_timeout_ms", _I64), 0),
        AddColumn("job_queue", Column("queued", _I64), 0),
        AddColumn("job_queue", Column("scheduled", _I64), 0),
        AddColumn("job_schedule", Column("time_zone", _BYTES), b""),
        CreateTable(
            Shape(
                "job_share",
                (Column("principal", _BYTES), Column("queued", _I64), Column("scheduled", _I64)),
                key=1,
                indexes={"queued": ("queued",), "scheduled": ("scheduled",)},
            )
        ),
        MakeIndex("job", ("id",), "later", ("phase", "counted", "ready_at"), Below("counted", 2)),
    ),
)
