"""Migration 9: what is known of a lease besides its end, and counts of what waits by caller and queue; never changed.

Leases of data from before are none that were only offered, and have no time limit.
"""

from __future__ import annotations

from semel.store.migrations import AddColumn, Migration
from semel.store.table import Column, Kind

_I64, _BYTES = Kind.I64, Kind.BYTES

JOBS_OFFERS = Migration(
    9,
    "offers and time limits of jobs",
    (
        AddColumn("job", Column("offered", _I64), 0),
        AddColumn("job", Column("timeout_ms", _I64), -1),
        AddColumn("job", Column("timeout_at", _I64), 0),
        AddColumn("job", Column("lease", _BYTES), b""),
        AddColumn("job", Column("beat_at", _I64), 0),
        AddColumn("job_queue", Column("default_timeout_ms", _I64), 0),
    ),
)
