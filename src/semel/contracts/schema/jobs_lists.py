"""Migration 12: ids of jobs that came from other stores, and indexes of what lists show; never changed."""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration, SetColumn
from semel.store.table import Below, Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

JOBS_LISTS = Migration(
    12,
    "ids of jobs that came from other stores, and indexes of what lists show",
    (
        CreateTable(Shape("job_name", (Column("name", _BYTES), Column("id", _BYTES)), key=1)),
        # Failed, unless one of these holds: no reason, so completed; not done, so leased; waiting; and that for later.
        AddColumn("job", Column("listed", _I64), 3),
        SetColumn("job", "listed", 2, (Below("reason", b"\0"),)),
        SetColumn("job", "listed", 1, (Below("phase", 2),)),
        SetColumn("job", "listed", 0, (Below("phase", 1), Below("counted", 2))),
        # SQLite orders by the id from an index only if it is named there: a large row has a key of another kind.
        MakeIndex("job", ("id",), "listed", ("listed", "kind", "queue", "id")),
        MakeIndex("job", ("id",), "owner", ("principal", "listed", "kind", "queue", "id")),
    ),
)
