"""Named locks as advisory locks of PostgreSQL, held until the transaction ends.

The server has memory for a bounded number of them, so names are hashed into slots: two names in one slot wait for each
other, which costs only time. Slots are taken in order, so that transactions cannot deadlock. Each schema has its own
locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from semel.store.postgres.pipeline import Filled, number_array
from semel.store.protocol import AnyTable, Lock

SLOTS = 1_024


class LockKind(Enum):
    """The kinds of locks; they are taken in this order."""

    MARK = 0
    """The transaction of one connection: a process that gets this lock knows that the transaction has ended."""
    GENERATION = 1
    """Shared by all writers of a generational table, so that its generations rotate between their transactions."""
    NAME = 2
    MIGRATION = 3
    LEADER = 4


class Slot(NamedTuple):
    """One advisory lock, inside a schema."""

    kind: LockKind
    number: int
    shared: bool = False


_TAKE = """
SELECT CASE WHEN shared = 1 THEN pg_advisory_xact_lock_shared(kind::int4, number::int4)
            ELSE pg_advisory_xact_lock(kind::int4, number::int4) END
FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS wanted (kind, number, shared)
"""


def slots_of(locks: Iterable[Lock]) -> list[Slot]:
    """The slots of named locks; if an exclusive and a shared lock fall into one slot, the slot is exclusive."""
    found: dict[int, bool] = {}
    for name, shared in locks:
        number = crc32(name) % SLOTS
        found[number] = found.get(number, True) and shared
    return [Slot(LockKind.NAME, number, shared) for number, shared in sorted(found.items())]


def slot_of_table(table: AnyTable, *, shared: bool) -> Slot:
    """The slot of the lock under which a generational table rotates."""
    return Slot(LockKind.GENERATION, crc32(table.name.encode()) & 0x7FFFFFFF, shared)


def take(schema: str, slots: Sequence[Slot]) -> Filled:
    """A statement that takes all of these locks and waits for each."""
    return _TAKE, [
        number_array([space(schema, slot.kind) for slot in slots]),
        number_array([slot.number for slot in slots]),
        number_array([int(slot.shared) for slot in slots]),
    ]


def clash_of(schemas: Iterable[str]) -> tuple[str, str] | None:
    """Two schemas whose locks are the same ones; None if each has its own.

    Names are hashed to 32 bits. Two schemas with one hash would wait for each other, and only one would have a leader.
    """
    taken: dict[int, str] = {}
    for schema in schemas:
        for kind in LockKind:
            other = taken.setdefault(space(schema, kind), schema)
            if other != schema:
                return other, schema
    return None


def space(schema: str, kind: LockKind) -> int:
    """The first half of an advisory lock's name: a signed 32-bit number."""
    return crc32(f"semel:{schema}:{kind.value}".encode()) - 2**31
