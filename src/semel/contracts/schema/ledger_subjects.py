"""Migration 10: the subject of a ledger's relationships with an index by it, and quotas; never changed.

Data from before has the subject in the key alone: it is taken from there, row by row, when the data is migrated. An
organization from before has no quota.
"""

from __future__ import annotations

from semel.store.migrations import AddColumn, FillColumn, MakeIndex, Migration
from semel.store.table import Below, Column, Kind

_RELATIONSHIPS = Below("key", b"\1")
_ENTITY = (Column("org", Kind.I64), Column("vault", Kind.I64), Column("key", Kind.BYTES))
_PAST = (*_ENTITY, Column("until", Kind.I64))
_SUBJECT = Column("subject", Kind.BYTES)
_INDEX = ("org", "vault", "subject", "key")
_QUOTA = ("quota_bytes", "quota_vaults", "quota_writes", "used_bytes")


def _subject(key: bytes) -> bytes:
    """The third field of a relationship's key: a zero byte, then three fields, each behind its length."""
    place = 1
    for _ in range(2):
        place += 4 + int.from_bytes(key[place : place + 4], "little")
    return key[place + 4 :]


LEDGER_SUBJECTS = Migration(
    10,
    "subjects of ledger relationships, and quotas",
    (
        *(AddColumn("ledger_org", Column(name, Kind.I64), 0) for name in _QUOTA),
        AddColumn("ledger_entity", _SUBJECT, b""),
        AddColumn("ledger_past", _SUBJECT, b""),
        FillColumn("ledger_entity", _ENTITY, "subject", "key", _RELATIONSHIPS, _subject),
        FillColumn("ledger_past", _PAST, "subject", "key", _RELATIONSHIPS, _subject),
        MakeIndex("ledger_entity", ("org", "vault", "key"), "subject", _INDEX, _RELATIONSHIPS),
        MakeIndex("ledger_past", ("org", "vault", "key", "until"), "subject", (*_INDEX, "until"), _RELATIONSHIPS),
    ),
)
