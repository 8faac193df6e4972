"""Plain writes: the common case of a surface, decided for a whole batch at once and without a view.

A contract may have a second, faster decision for its plain writes besides its full rules. A write whose loaded rows
show that it is not plain goes to the full rules in the next batch. The result is the same either way; a differential
test of the surface compares both. Plain writes and other writes share one transaction. A plain write whose lock another
write of the batch needs is decided by the full rules too, so that the two paths never change the same rows. If a write
that waits for a later batch needs the lock, the plain write waits behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from semel.engine.caller import WaitingCaller
from semel.engine.contract import Contract, Write
from semel.engine.group_commit import QueuedWrite
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Changes, LoadedRows, NarrowRows, Range, Row, Touch
from semel.store.table import Key

T = TypeVar("T")

LoadedByKey = Mapping[AnyTable, Mapping[Key, Row]]
LoadPlain = Callable[[Mapping[AnyTable, Iterable[Key]], Sequence[Range]], LoadedRows]
"""Loads rows by key and ranges, as a transaction does."""


class PlainWrite(WaitingCaller):
    """A plain write and its caller in one object. `settle` or `fail` is called once, after the commit."""

    __slots__ = ("contract", "lock", "size")

    cost = 1
    """The number of things that the write adds."""
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
    updates: Mapping[AnyTable, Sequence[Row]] = MappingProxyType({})
    """Rows that replace others and may change an indexed column."""
    deletes: Mapping[AnyTable, Sequence[Key]] = MappingProxyType({})
    touches: Sequence[Touch] = ()
    """Soft changes."""
    narrow: Mapping[AnyTable, Sequence[NarrowRows]] = MappingProxyType({})
    """Rows that replace others and differ from them in few columns."""


class PlainContract(Contract, Protocol):
    """A contract that decides its plain writes."""

    def plain_keys(self, writes: Sequence[Any]) -> Mapping[AnyTable, Iterable[Key]]:
        """The rows that the decision needs."""

    def decide_plain(self, rows: LoadedByKey, writes: Sequence[Any], now: Now) -> PlainResult:
        """Decide the writes in their order; pure."""


class StagedPlainContract(ABC):
    """The base of a contract whose plain writes need rows that are known only when others have been loaded.

    An ordinary class, because a check against a protocol takes as long as several decisions.
    """

    def plain_keys(self, writes: Sequence[Any]) -> Mapping[AnyTable, Iterable[Key]]:
        """None: the rows are loaded in stages."""
        return {}

    @abstractmethod
    def load_plain(self, load: LoadPlain, writes: Sequence[Any]) -> Any:
        """The rows that the decision needs, loaded in stages, with soft changes applied. They are passed to
        `decide_plain` in place of the rows by key.
        """


def plain_rows(contract: PlainContract, load: LoadPlain, soft: SoftChanges, writes: Sequence[PlainWrite]) -> Any:
    """Load the rows that the decision on these writes needs."""
    if not isinstance(contract, StagedPlainContract):
        return load(contract.plain_keys(writes), ()).rows

    def load_softened(keys: Mapping[AnyTable, Iterable[Key]], ranges: Sequence[Range]) -> LoadedRows:
        loaded = load(keys, ranges)
        return soft.over_loaded(loaded, ranges) if len(soft) else loaded

    return contract.load_plain(load_softened, writes)


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
        elif one.has_left or one.lock in held:
            full.append(QueuedWrite(one.full(), one))
        else:
            plain.append(one)
    return full, plain


def merged(changes: Changes, plain: PlainResult) -> Changes:
    """The changes of a batch and those of its plain writes, which have no row in common."""
    return changes._replace(
        inserts=_joined(changes.inserts, plain.inserts),
        updates=_joined(changes.updates, plain.updates),
        steady=_joined(changes.steady, plain.steady),
        narrow=_joined(changes.narrow, plain.narrow),
        deletes=_joined(changes.deletes, plain.deletes),
    )


def _joined(
    some: Mapping[AnyTable, Sequence[T]], more: Mapping[AnyTable, Sequence[T]]
) -> Mapping[AnyTable, Sequence[T]]:
    if not more or not some:
        return more or some
    return {**some, **{table: [*some.get(table, ()), *rows] for table, rows in more.items()}}
