"""Migration 12: ids of jobs that came from other stores; never changed."""

from __future__ import annotations

from semel.store.migrations import CreateTable, Migration
from semel.store.table import Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

JOBS_LISTS = Migration(
    12,
    "ids of jobs that came from other stores",
    (CreateTable(Shape("job_name", (Column("name", _BYTES), Column("id", _BYTES)), key=1)),),
)
