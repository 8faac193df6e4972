"""Migration 8: epochs. Never changed: stores have gone this way."""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, Migration
from semel.store.table import Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

EPOCHS = Migration(
    8,
    "epochs",
    (
        CreateTable(
            Shape("epoch", (Column("name", _BYTES), Column("number", _I64), Column("past", _BYTES)), key=1),
        ),
        AddColumn("stream", Column("epoch", _I64), 0),
        AddColumn("stream", Column("past_epochs", _BYTES), b""),
        CreateTable(
            Shape(
                "event_gap",
                (Column("first_id", _I64), Column("agreed_id", _I64), Column("epoch", _I64)),
                key=1,
                indexes={"epoch": ("epoch",)},
            )
        ),
        AddColumn("delta_gateway", Column("epoch", _I64), 0),
        AddColumn("delta_gateway", Column("gaps", _BYTES), b""),
    ),
)
