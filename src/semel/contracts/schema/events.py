"""Migration 2: events, as they were first made; never changed."""

from __future__ import annotations

from semel.store.migrations import CreateTable, Migration
from semel.store.table import Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

EVENTS = Migration(
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
)
