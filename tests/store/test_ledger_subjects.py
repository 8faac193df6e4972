"""Data of a ledger from before relationships were found by their subject is carried along."""

from __future__ import annotations

from typing import NamedTuple

from semel.store.protocol import Range
from semel.store.table import U64, Table
from semel.surfaces.ledger.migrations import LEDGER_SUBJECTS_MIGRATION
from semel.surfaces.ledger.rules.chain import relationship_key
from semel.surfaces.ledger.tables import LEDGER_ENTITY, LEDGER_PAST, EntityRow, PastRow
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.store.conformance import PersistentPlace, everything, scan, write

MANY = 4_500
"""More than are filled in at once."""
SUBJECTS = (b"user:1", b"group:7#member", b"user:" + "\u00e9".encode() * 100, b"")


class OldEntityRow(NamedTuple):
    """As it was."""

    org: int
    vault: int
    key: bytes
    value: bytes
    size: int
    expires_at: U64
    version: int


class OldPastRow(NamedTuple):
    """As it was."""

    org: int
    vault: int
    key: bytes
    until: int
    value: bytes
    size: int
    expires_at: U64
    version: int


OLD_ENTITY = Table("ledger_entity", OldEntityRow, key=3, bulky=True)
OLD_PAST = Table("ledger_past", OldPastRow, key=4, bulky=True)


def key_of(number: int) -> tuple[bytes, bytes]:
    """The key of an entity or a relationship, and its subject."""
    subject = SUBJECTS[number % len(SUBJECTS)]
    if not subject:
        return b"entity:%d" % number, subject
    return relationship_key(b"doc:%d" % number, b"viewer" * (number % 5 + 1), subject), subject


def test_e3_older_relationships_are_found_by_their_subject_after_the_migration(lasting: PersistentPlace) -> None:
    before = MIGRATIONS[: LEDGER_SUBJECTS_MIGRATION.number - 1]
    store = lasting.open((OLD_ENTITY, OLD_PAST), before)
    named = [(number % 3 + 1, *key_of(number)) for number in range(MANY)]
    old = [OldEntityRow(org, 9, key, b"v", 1, 2**63, 5) for org, key, _ in named]
    past = [OldPastRow(org, 9, key, until, b"v", 1, 2**63, 5) for org, key, _ in named for until in (3, 2**40)]
    write(store, [*((OLD_ENTITY, row) for row in old), *((OLD_PAST, row) for row in past)])
    store = lasting.reopen(TABLES, MIGRATIONS)
    subjects = {(org, key): subject for org, key, subject in named}
    entities = sorted(EntityRow(*row, subjects[row.org, row.key]) for row in old)
    ended = sorted(PastRow(*row, subjects[row.org, row.key]) for row in past)
    assert everything(store, LEDGER_ENTITY) == entities
    assert everything(store, LEDGER_PAST) == ended
    wanted = Range(LEDGER_ENTITY, "subject", (2, 9, SUBJECTS[1]), MANY, (b"\0",), (b"\1",))
    of_one = [row for row in entities if (row.org, row.subject) == (2, SUBJECTS[1])]
    assert of_one
    assert scan(store, wanted) == of_one
    with store.read() as snapshot:
        keys = snapshot.distinct(wanted._replace(table=LEDGER_PAST))
    assert keys == [row.key for row in of_one]
