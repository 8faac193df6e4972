"""Migrations of deltas: 5, as they were first made, and 8, clients that can be forgotten and logs that can be cut."""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration
from semel.store.table import Below, Column, Kind, Shape

_I64, _U64, _BYTES = Kind.I64, Kind.U64, Kind.BYTES

DELTAS = Migration(
    5,
    "deltas",
    (
        CreateTable(
            Shape(
                "delta_gateway",
                (
                    Column("gateway", _BYTES),
                    Column("name", _BYTES),
                    Column("high_water", _U64),
                    Column("entries", _I64),
                    Column("deltas", _I64),
                    Column("rows", _I64),
                    Column("size", _I64),
                    Column("authors", _BYTES),
                    Column("rules", _BYTES),
                    Column("rules_version", _I64),
                    Column("schemas", _I64),
                    Column("replicas", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "delta_id",
                (
                    Column("gateway", _BYTES),
                    Column("hlc", _U64),
                    Column("id", _BYTES),
                    Column("position", _U64),
                ),
                key=3,
            )
        ),
        CreateTable(
            Shape(
                "delta_legacy_id",
                (
                    Column("gateway", _BYTES),
                    Column("id", _BYTES),
                    Column("position", _U64),
                ),
                key=2,
            )
        ),
        CreateTable(
            Shape(
                "delta_log",
                (
                    Column("gateway", _BYTES),
                    Column("position", _U64),
                    Column("hlc", _U64),
                    Column("id", _BYTES),
                    Column("table_name", _BYTES),
                    Column("row_id", _BYTES),
                    Column("client", _BYTES),
                    Column("pushed", _I64),
                    Column("body", _BYTES),
                    Column("op", _I64),
                    Column("columns", _BYTES, nullable=True),
                    Column("sight", _BYTES, nullable=True),
                    Column("addressee", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "delta_row",
                (
                    Column("gateway", _BYTES),
                    Column("table_name", _BYTES),
                    Column("row_key", _BYTES),
                    Column("row_id", _BYTES),
                    Column("state", _BYTES),
                ),
                key=3,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "delta_replica",
                (
                    Column("gateway", _BYTES),
                    Column("client", _BYTES),
                    Column("subject", _BYTES),
                    Column("seen", _U64),
                    Column("muted", _U64),
                    Column("aliases", _BYTES),
                ),
                key=3,
            )
        ),
        CreateTable(
            Shape(
                "delta_author",
                (
                    Column("gateway", _BYTES),
                    Column("client", _BYTES),
                    Column("repaired_at", _U64),
                    Column("inserted_at", _U64),
                ),
                key=2,
            )
        ),
        CreateTable(
            Shape(
                "delta_schema",
                (
                    Column("gateway", _BYTES),
                    Column("table_name", _BYTES),
                    Column("columns", _BYTES),
                ),
                key=2,
            )
        ),
    ),
)

BOUNDED_DELTAS = Migration(
    11,
    "clients of deltas that can be forgotten, and logs of deltas that can be cut",
    (
        AddColumn("delta_gateway", Column("forgotten_at", _U64), 0),
        AddColumn("delta_gateway", Column("cut", _U64), 0),
        AddColumn("delta_replica", Column("life", _BYTES), b""),
        AddColumn("delta_replica", Column("used_at", _I64), 0),
        MakeIndex(
            "delta_replica",
            ("gateway", "client", "subject"),
            "used",
            ("used_at",),
            Below("used_at", 2**63 - 1),
        ),
    ),
)
