"""Named locks as advisory locks of PostgreSQL, held until the transaction ends.

The server has room for a bounded number of them, so names are hashed into slots: two names in one slot wait for each
other, which costs time and nothing else. Slots are taken in order, so that no two transactions wait in a circle. Each
schema has locks of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from semel.store.postgres.encoding import number_array
from semel.store.postgres.wire import Filled
from semel.store.protocol import AnyTable, Lock

SLOTS = 1_024


class Kind(Enum):
    """The kinds of locks; they are taken in this order."""

    MARK = 0
    """The transaction of one line: a process that gets this lock knows that the transaction has ended."""
    GENERATION = 1
    """Shared by all writers of a generational table, so that its generations rotate between their transactions."""
    NAME = 2
    MIGRATION = 3
    LEADER = 4


class Slot(NamedTuple):
    """One advisory lock, inside a schema."""

    kind: Kind
    number: int
    shared: bool = False


_TAKE = """
SELECT CASE WHEN shared = 1 THEN pg_advisory_xact_lock_shared(kind::int4, number::int4)
            ELSE pg_advisory_xact_lock(kind::int4, number::int4) END
FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS wanted (kind, number, shared)
"""


def slots_of(locks: Iterable[Lock]) -> list[Slot]:
    """The slots of named locks; where an exclusive and a shared one meet, the exclusive one counts."""
    found: dict[int, bool] = {}
    for name, shared in locks:
        number = crc32(name) % SLOTS
        found[number] = found.get(number, True) and shared
    return [Slot(Kind.NAME, number, shared) for number, shared in sorted(found.items())]


def slot_of_table(table: AnyTable, *, shared: bool) -> Slot:
    """The lock slot of a generational table's rotation."""
    return Slot(Kind.GENERATION, crc32(table.name.encode()) & 0x7FFFFFFF, shared)


def take(schema: str, slots: Sequence[Slot]) -> Filled:
    """Take all of these, waiting where need be."""
    return _TAKE, [
        number_array([space(schema, slot.kind) for slot in slots]),
        number_array([slot.number for slot in slots]),
        number_array([int(slot.shared) for slot in slots]),
    ]


def space(schema: str, kind: Kind) -> int:
    """The first half of an advisory lock's name: a signed number of 32 bits."""
    return crc32(f"semel:{schema}:{kind.value}".encode()) - 2**31
