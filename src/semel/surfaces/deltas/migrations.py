"""Migrations of the tables of deltas. A released migration never changes."""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration
from semel.store.table import Below, ColumnKind, TableColumn, TableLayout

_I64, _U64, _BYTES = ColumnKind.I64, ColumnKind.U64, ColumnKind.BYTES

DELTA_MIGRATION = Migration(
    5,
    "deltas",
    (
        CreateTable(
            TableLayout(
                "delta_gateway",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("name", _BYTES),
                    TableColumn("high_water", _U64),
                    TableColumn("entries", _I64),
                    TableColumn("deltas", _I64),
                    TableColumn("rows", _I64),
                    TableColumn("size", _I64),
                    TableColumn("authors", _BYTES),
                    TableColumn("rules", _BYTES),
                    TableColumn("rules_version", _I64),
                    TableColumn("schemas", _I64),
                    TableColumn("replicas", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_id",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("hlc", _U64),
                    TableColumn("id", _BYTES),
                    TableColumn("position", _U64),
                ),
                key=3,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_legacy_id",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("id", _BYTES),
                    TableColumn("position", _U64),
                ),
                key=2,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_log",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("position", _U64),
                    TableColumn("hlc", _U64),
                    TableColumn("id", _BYTES),
                    TableColumn("table_name", _BYTES),
                    TableColumn("row_id", _BYTES),
                    TableColumn("client", _BYTES),
                    TableColumn("pushed", _I64),
                    TableColumn("body", _BYTES),
                    TableColumn("op", _I64),
                    TableColumn("columns", _BYTES, nullable=True),
                    TableColumn("sight", _BYTES, nullable=True),
                    TableColumn("addressee", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_row",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("table_name", _BYTES),
                    TableColumn("row_key", _BYTES),
                    TableColumn("row_id", _BYTES),
                    TableColumn("state", _BYTES),
                ),
                key=3,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_replica",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("client", _BYTES),
                    TableColumn("subject", _BYTES),
                    TableColumn("seen", _U64),
                    TableColumn("muted", _U64),
                    TableColumn("aliases", _BYTES),
                ),
                key=3,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_author",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("client", _BYTES),
                    TableColumn("repaired_at", _U64),
                    TableColumn("inserted_at", _U64),
                ),
                key=2,
            )
        ),
        CreateTable(
            TableLayout(
                "delta_schema",
                (
                    TableColumn("gateway", _BYTES),
                    TableColumn("table_name", _BYTES),
                    TableColumn("columns", _BYTES),
                ),
                key=2,
            )
        ),
    ),
)

DELTA_RETENTION_MIGRATION = Migration(
    11,
    "clients of deltas that can be forgotten, and logs of deltas that can be cut",
    (
        AddColumn("delta_gateway", TableColumn("forgotten_at", _U64), 0),
        AddColumn("delta_gateway", TableColumn("cut", _U64), 0),
        AddColumn("delta_replica", TableColumn("life", _BYTES), b""),
        AddColumn("delta_replica", TableColumn("used_at", _I64), 0),
        MakeIndex(
            "delta_replica",
            ("gateway", "client", "subject"),
            "used",
            ("used_at",),
            Below("used_at", 2**63 - 1),
        ),
    ),
)
