"""Plain writes: the common case of a surface, decided for a whole batch at once and without a view.

A contract may have a second, faster decision for its plain writes besides its full rules. A write whose loaded rows
show that it is not plain goes to the full rules in the next batch. The result is the same either way; a differential
test of the surface compares both. Plain writes and other writes share one transaction. A plain write whose lock another
write of the batch needs is decided by the full rules too, so that the two paths never change the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from semel.engine.caller import WaitingCaller
from semel.engine.contract import Contract, Write
from semel.engine.group_commit import QueuedWrite
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Changes, Row
from semel.store.table import Key

LoadedByKey = Mapping[AnyTable, Mapping[Key, Row]]


class PlainWrite(WaitingCaller):
    """A plain write and its caller in one object. `settle` or `fail` is called once, after the commit."""

    __slots__ = ("contract", "lock", "size")

    cost = 1
    is_large = False

    def __init__(self, contract: PlainContract, lock: bytes, size: int, principal: str = "") -> None:
        super().__init__(principal)
        self.contract = contract
        self.lock = lock
        """The name of the lock that protects its rows."""
        self.size = size
        """Bytes that the write holds in memory while it waits."""

    def full(self) -> Write:
        """The same write for the full rules."""
        raise NotImplementedError


class PlainResult(NamedTuple):
    """The decisions on the plain writes of one contract in a batch."""

    decided: Sequence[tuple[PlainWrite, Any]]
    """The decided writes, each with its answer."""
    left: Sequence[PlainWrite]
    """Writes that are left to the full rules."""
    inserts: Mapping[AnyTable, Sequence[Row]]
    steady: Mapping[AnyTable, Sequence[Row]]
    """Rows that replace others and change no indexed column."""
    topics: Iterable[bytes]
    """Topics whose live readers are woken after the commit."""


class PlainContract(Contract, Protocol):
    """A contract that decides its plain writes."""

    def plain_keys(self, writes: Sequence[Any]) -> Mapping[AnyTable, Iterable[Key]]:
        """The rows that the decision needs."""

    def decide_plain(self, rows: LoadedByKey, writes: Sequence[Any], now: Now) -> PlainResult:
        """Decide the writes in their order; pure."""


def without_plain(
    batch: Sequence[QueuedWrite | PlainWrite],
) -> tuple[Sequence[QueuedWrite], Sequence[PlainWrite]]:
    """The writes of a batch for the full rules, in their order, and its plain writes.

    A plain write whose lock another write of the batch needs, or whose caller has left, is a write for the full rules.
    """
    held = {lock.name for one in batch if isinstance(one, QueuedWrite) for lock in one.locks}
    full: list[QueuedWrite] = []
    plain: list[PlainWrite] = []
    for one in batch:
        if isinstance(one, QueuedWrite):
            full.append(one)
        elif one.gone or one.lock in held:
            full.append(QueuedWrite(one.full(), one))
        else:
            plain.append(one)
    return full, plain


def merged(changes: Changes, plain: PlainResult) -> Changes:
    """The changes of a batch and those of its plain writes, which have no row in common."""
    if not (changes.inserts or changes.steady):
        return changes._replace(inserts=plain.inserts, steady=plain.steady)
    inserts, steady = dict(changes.inserts), dict(changes.steady)
    for table, rows in plain.inserts.items():
        inserts[table] = [*inserts[table], *rows] if table in inserts else rows
    for table, rows in plain.steady.items():
        steady[table] = [*steady[table], *rows] if table in steady else rows
    return changes._replace(inserts=inserts, steady=steady)
