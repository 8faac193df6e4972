"""Migration 1: generations and streams, as they were first made. Never changed: stores have gone this way."""

from __future__ import annotations

from semel.store.migrations import CreateTable, Migration
from semel.store.table import Column, Kind, Shape

_I64, _BYTES = Kind.I64, Kind.BYTES

STREAMS = Migration(
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
)
