"""Migrations of the tables of the ledger. A released migration never changes.

Rows from before migration 7 have no stored bucket roots for their heights. None are added: a proof at such a height
reads more rows. Rows from before migration 10 have the subject of a relationship in the key alone: the migration takes
it from there, row by row. Organizations from before it have no quota.
"""

from __future__ import annotations

from semel.store.migrations import AddColumn, CreateTable, FillColumn, MakeIndex, Migration
from semel.store.table import Below, ColumnKind, TableColumn, TableLayout

_I64, _U64, _BYTES = ColumnKind.I64, ColumnKind.U64, ColumnKind.BYTES

LEDGER_MIGRATION = Migration(
    4,
    "ledger",
    (
        CreateTable(
            TableLayout(
                "ledger_term",
                (
                    TableColumn("name", _BYTES),
                    TableColumn("term", _I64),
                    TableColumn("era", _BYTES),
                    TableColumn("secret", _BYTES),
                    TableColumn("orgs", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_org",
                (
                    TableColumn("org", _I64),
                    TableColumn("name", _BYTES),
                    TableColumn("status", _I64),
                    TableColumn("entries", _I64),
                    TableColumn("at_seconds", _I64),
                    TableColumn("at_nanos", _I64),
                    TableColumn("interval", _I64),
                    TableColumn("ttl_seconds", _I64),
                    TableColumn("fence", _I64),
                    TableColumn("cut", _I64),
                    TableColumn("client_cut", _I64),
                    TableColumn("vaults", _I64),
                    TableColumn("created_seconds", _I64),
                    TableColumn("created_nanos", _I64),
                    TableColumn("second", _I64),
                    TableColumn("in_second", _I64),
                ),
                key=1,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_entry",
                (
                    TableColumn("org", _I64),
                    TableColumn("entry", _I64),
                    TableColumn("kind", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("at_seconds", _I64),
                    TableColumn("at_nanos", _I64),
                    TableColumn("detail", _BYTES),
                ),
                key=2,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_place",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("status", _I64),
                    TableColumn("height", _I64),
                    TableColumn("tip_hash", _BYTES),
                    TableColumn("state_root", _BYTES),
                    TableColumn("retain", _I64),
                    TableColumn("freed", _I64),
                    TableColumn("created_seconds", _I64),
                    TableColumn("created_nanos", _I64),
                    TableColumn("created_term", _I64),
                    TableColumn("created_index", _I64),
                ),
                key=2,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_stream",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("client", _BYTES),
                    TableColumn("life", _I64),
                    TableColumn("last", _U64),
                    TableColumn("last_seen", _I64),
                    TableColumn("last_height", _I64),
                    TableColumn("last_key", _BYTES),
                ),
                key=3,
                indexes={"seen": ("org", "last_seen")},
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_commit",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("client", _BYTES),
                    TableColumn("life", _I64),
                    TableColumn("sequence", _U64),
                    TableColumn("height", _I64),
                    TableColumn("at", _I64),
                    TableColumn("key", _BYTES),
                    TableColumn("hash", _BYTES),
                ),
                key=5,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_key",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("client", _BYTES),
                    TableColumn("key", _BYTES),
                    TableColumn("life", _I64),
                    TableColumn("sequence", _U64),
                ),
                key=4,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_block",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("height", _I64),
                    TableColumn("previous_hash", _BYTES),
                    TableColumn("tx_root", _BYTES),
                    TableColumn("state_root", _BYTES),
                    TableColumn("at_seconds", _I64),
                    TableColumn("at_nanos", _I64),
                    TableColumn("term", _I64),
                    TableColumn("committed_index", _I64),
                    TableColumn("leader", _BYTES),
                    TableColumn("size", _I64),
                    TableColumn("stale", _BYTES),
                ),
                key=3,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_body",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("height", _I64),
                    TableColumn("id", _BYTES),
                    TableColumn("client", _BYTES),
                    TableColumn("life", _I64),
                    TableColumn("sequence", _U64),
                    TableColumn("key", _BYTES),
                    TableColumn("actor", _BYTES),
                    TableColumn("with_proof", _I64),
                    TableColumn("operations", _BYTES),
                ),
                key=3,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_entity",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("key", _BYTES),
                    TableColumn("value", _BYTES),
                    TableColumn("size", _I64),
                    TableColumn("expires_at", _U64),
                    TableColumn("version", _I64),
                ),
                key=3,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_past",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("key", _BYTES),
                    TableColumn("until", _I64),
                    TableColumn("value", _BYTES),
                    TableColumn("size", _I64),
                    TableColumn("expires_at", _U64),
                    TableColumn("version", _I64),
                ),
                key=4,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_value",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("version", _I64),
                    TableColumn("key", _BYTES),
                    TableColumn("value", _BYTES),
                ),
                key=4,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_tops",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("roots", _BYTES),
                    TableColumn("heights", _BYTES),
                ),
                key=2,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_bucket",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("bucket", _I64),
                    TableColumn("height", _I64),
                    TableColumn("root", _BYTES),
                ),
                key=4,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_page",
                (
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                    TableColumn("height", _I64),
                    TableColumn("path", _BYTES),
                    TableColumn("slots", _BYTES),
                ),
                key=4,
                bulky=True,
            )
        ),
        CreateTable(
            TableLayout(
                "ledger_made",
                (
                    TableColumn("owner", _BYTES),
                    TableColumn("key", _BYTES),
                    TableColumn("digest", _BYTES),
                    TableColumn("org", _I64),
                    TableColumn("vault", _I64),
                ),
                key=2,
            )
        ),
    ),
)


LEDGER_ROOTS_MIGRATION = Migration(
    7,
    "roots of ledger buckets",
    (
        CreateTable(
            TableLayout(
                "ledger_roots",
                (
                    TableColumn("org", ColumnKind.I64),
                    TableColumn("vault", ColumnKind.I64),
                    TableColumn("height", ColumnKind.I64),
                    TableColumn("roots", ColumnKind.BYTES),
                    TableColumn("heights", ColumnKind.BYTES),
                ),
                key=3,
                bulky=True,
            )
        ),
    ),
)


_RELATIONSHIPS = Below("key", b"\1")
_ENTITY = (
    TableColumn("org", ColumnKind.I64),
    TableColumn("vault", ColumnKind.I64),
    TableColumn("key", ColumnKind.BYTES),
)
_PAST = (*_ENTITY, TableColumn("until", ColumnKind.I64))
_SUBJECT = TableColumn("subject", ColumnKind.BYTES)
_INDEX = ("org", "vault", "subject", "key")
_QUOTA = ("quota_bytes", "quota_vaults", "quota_writes", "used_bytes")


def _subject(key: bytes) -> bytes:
    """The third field of a relationship's key: a zero byte, then three fields, each behind its length."""
    place = 1
    for _ in range(2):
        place += 4 + int.from_bytes(key[place : place + 4], "little")
    return key[place + 4 :]


LEDGER_SUBJECTS_MIGRATION = Migration(
    10,
    "subjects of ledger relationships, and quotas",
    (
        *(AddColumn("ledger_org", TableColumn(name, ColumnKind.I64), 0) for name in _QUOTA),
        AddColumn("ledger_entity", _SUBJECT, b""),
        AddColumn("ledger_past", _SUBJECT, b""),
        FillColumn("ledger_entity", _ENTITY, "subject", "key", _RELATIONSHIPS, _subject),
        FillColumn("ledger_past", _PAST, "subject", "key", _RELATIONSHIPS, _subject),
        MakeIndex("ledger_entity", ("org", "vault", "key"), "subject", _INDEX, _RELATIONSHIPS),
        MakeIndex("ledger_past", ("org", "vault", "key", "until"), "subject", (*_INDEX, "until"), _RELATIONSHIPS),
    ),
)
