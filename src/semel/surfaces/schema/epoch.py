"""Migration 8: epochs. Never changed: stores have gone this way."""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, Migration
from semel.store.table import ColumnKind, TableColumn, TableLayout

_I64, _BYTES = ColumnKind.I64, ColumnKind.BYTES

EPOCHS = Migration(
    8,
    "epochs",
    (
        CreateTable(
            TableLayout(
                "epoch", (TableColumn("name", _BYTES), TableColumn("number", _I64), TableColumn("past", _BYTES)), key=1
            ),
        ),
        AddColumn("stream", TableColumn("epoch", _I64), 0),
        AddColumn("stream", TableColumn("past_epochs", _BYTES), b""),
        CreateTable(
            TableLayout(
                "event_gap",
                (TableColumn("first_id", _I64), TableColumn("agreed_id", _I64), TableColumn("epoch", _I64)),
                key=1,
                indexes={"epoch": ("epoch",)},
            )
        ),
        AddColumn("delta_gateway", TableColumn("epoch", _I64), 0),
        AddColumn("delta_gateway", TableColumn("gaps", _BYTES), b""),
    ),
)
