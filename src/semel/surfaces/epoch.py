"""The epoch of a store: which of several histories its logs belong to, after a restore from backup.

A restored backup lacks the writes that were acknowledged after the backup, and its logs then continue with other
writes. A position in the lost history looks like a position in the new history but means something else. So every log
has an epoch, which is 0 until `semel epoch raise` is run on a restored store. Streams store the epoch in their offsets,
events beside their ids, gateways of deltas as a jump of their clock, and the ledger in its term.

The number of an epoch is the time of the raise in milliseconds since 1970. A counter would not do: if one backup is
restored twice, two histories would get the same number.

The store has one epoch row. A surface reads it in the same transaction or snapshot as the rest of its answer.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeVar

from semel.store.table import Key, Table

R = TypeVar("R", bound=tuple[Any, ...])

_NUMBER = Struct(">Q")
_PAIR = Struct(">QQ")
_KEPT = 4_096


class EpochRow(NamedTuple):
    """The epoch of all logs of the store."""

    name: bytes
    number: int
    past: bytes
    """The earlier epoch numbers, oldest first, 8 bytes each, without the initial 0."""
    checksum: int = 0


class Pair(NamedTuple):
    """Two positions, or an epoch and a position, as documented at each use."""

    first: int
    second: int


class Rows(Protocol):
    """The common interface of a decision's view and a snapshot read."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""


EPOCH = Table("epoch", EpochRow, key=1, cached=True)
EPOCH_KEY = (b"",)
FIRST_EPOCH = EpochRow(b"", 0, b"")
TABLES = (EPOCH,)


def epoch_of(rows: Rows) -> int:
    """The epoch of the store; 0 before the first raise."""
    row = rows.get(EPOCH, EPOCH_KEY)
    return 0 if row is None else row.number


def earlier_epochs(row: EpochRow) -> tuple[int, ...]:
    """The epoch numbers before the current one, oldest first, without the initial 0."""
    return tuple(number for (number,) in _NUMBER.iter_unpack(row.past))


def raised(row: EpochRow, now_ms: int) -> EpochRow:
    """The row of the next epoch."""
    past = row.past + _NUMBER.pack(row.number) if row.number else row.past
    return EpochRow(row.name, max(row.number + 1, now_ms), past)


@lru_cache(_KEPT)
def load_pairs(stored: bytes) -> tuple[Pair, ...]:
    """Pairs from their stored form."""
    return tuple(Pair(*pair) for pair in _PAIR.iter_unpack(stored))


def dump_pairs(pairs: tuple[Pair, ...]) -> bytes:
    """The stored form of pairs: 16 bytes each."""
    return b"".join(_PAIR.pack(*pair) for pair in pairs)
