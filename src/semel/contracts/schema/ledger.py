"""Migration 4: the ledger, as it was first made; never changed."""

from __future__ import annotations

from semel.store.migrations import CreateTable, Migration
from semel.store.table import Column, Kind, Shape

_I64, _U64, _BYTES = Kind.I64, Kind.U64, Kind.BYTES

LEDGER = Migration(
    4,
    "ledger",
    (
        CreateTable(
            Shape(
                "ledger_term",
                (
                    Column("name", _BYTES),
                    Column("term", _I64),
                    Column("era", _BYTES),
                    Column("secret", _BYTES),
                    Column("orgs", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "ledger_org",
                (
                    Column("org", _I64),
                    Column("name", _BYTES),
                    Column("status", _I64),
                    Column("entries", _I64),
                    Column("at_seconds", _I64),
                    Column("at_nanos", _I64),
                    Column("interval", _I64),
                    Column("ttl_seconds", _I64),
                    Column("fence", _I64),
                    Column("cut", _I64),
                    Column("client_cut", _I64),
                    Column("vaults", _I64),
                    Column("created_seconds", _I64),
                    Column("created_nanos", _I64),
                    Column("second", _I64),
                    Column("in_second", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            Shape(
                "ledger_entry",
                (
                    Column("org", _I64),
                    Column("entry", _I64),
                    Column("kind", _I64),
                    Column("vault", _I64),
                    Column("at_seconds", _I64),
                    Column("at_nanos", _I64),
                    Column("detail", _BYTES),
                ),
                key=2,
            )
        ),
        CreateTable(
            Shape(
                "ledger_place",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("status", _I64),
                    Column("height", _I64),
                    Column("tip_hash", _BYTES),
                    Column("state_root", _BYTES),
                    Column("retain", _I64),
                    Column("freed", _I64),
                    Column("created_seconds", _I64),
                    Column("created_nanos", _I64),
                    Column("created_term", _I64),
                    Column("created_index", _I64),
                ),
                key=2,
            )
        ),
        CreateTable(
            Shape(
                "ledger_stream",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("client", _BYTES),
                    Column("life", _I64),
                    Column("last", _U64),
                    Column("last_seen", _I64),
                    Column("last_height", _I64),
                    Column("last_key", _BYTES),
                ),
                key=3,
                indexes={"seen": ("org", "last_seen")},
            )
        ),
        CreateTable(
            Shape(
                "ledger_commit",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("client", _BYTES),
                    Column("life", _I64),
                    Column("sequence", _U64),
                    Column("height", _I64),
                    Column("at", _I64),
                    Column("key", _BYTES),
                    Column("hash", _BYTES),
                ),
                key=5,
            )
        ),
        CreateTable(
            Shape(
                "ledger_key",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("client", _BYTES),
                    Column("key", _BYTES),
                    Column("life", _I64),
                    Column("sequence", _U64),
                ),
                key=4,
            )
        ),
        CreateTable(
            Shape(
                "ledger_block",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("height", _I64),
                    Column("previous_hash", _BYTES),
                    Column("tx_root", _BYTES),
                    Column("state_root", _BYTES),
                    Column("at_seconds", _I64),
                    Column("at_nanos", _I64),
                    Column("term", _I64),
                    Column("committed_index", _I64),
                    Column("leader", _BYTES),
                    Column("size", _I64),
                    Column("stale", _BYTES),
                ),
                key=3,
            )
        ),
        CreateTable(
            Shape(
                "ledger_body",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("height", _I64),
                    Column("id", _BYTES),
                    Column("client", _BYTES),
                    Column("life", _I64),
                    Column("sequence", _U64),
                    Column("key", _BYTES),
                    Column("actor", _BYTES),
                    Column("with_proof", _I64),
                    Column("operations", _BYTES),
                ),
                key=3,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "ledger_entity",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("key", _BYTES),
                    Column("value", _BYTES),
                    Column("size", _I64),
                    Column("expires_at", _U64),
                    Column("version", _I64),
                ),
                key=3,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "ledger_past",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("key", _BYTES),
                    Column("until", _I64),
                    Column("value", _BYTES),
                    Column("size", _I64),
                    Column("expires_at", _U64),
                    Column("version", _I64),
                ),
                key=4,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "ledger_value",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("version", _I64),
                    Column("key", _BYTES),
                    Column("value", _BYTES),
                ),
                key=4,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "ledger_tops",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("roots", _BYTES),
                    Column("heights", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "ledger_bucket",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("bucket", _I64),
                    Column("height", _I64),
                    Column("root", _BYTES),
                ),
                key=4,
            )
        ),
        CreateTable(
            Shape(
                "ledger_page",
                (
                    Column("org", _I64),
                    Column("vault", _I64),
                    Column("height", _I64),
                    Column("path", _BYTES),
                    Column("slots", _BYTES),
                ),
                key=4,
                bulky=True,
            )
        ),
        CreateTable(
            Shape(
                "ledger_made",
                (
                    Column("owner", _BYTES),
                    Column("key", _BYTES),
                    Column("digest", _BYTES),
                    Column("org", _I64),
                    Column("vault", _I64),
                ),
                key=2,
            )
        ),
    ),
)
