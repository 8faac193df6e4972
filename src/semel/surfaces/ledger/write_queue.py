"""The queue of transactions: what arrives in one pass of the event loop is committed in groups, not one by one.

A group is one command of the engine with many transactions of one organization. Each has its own verdict, and a
transaction that is refused changes nothing for the others. The loading of rows, the engine's work and the statements
are shared. A group is small enough to be decided on the event loop.

Within a group the transactions of a client are sorted by their sequences. A transaction with a gap before it waits in
the queue while all sequences between are in the queue too. The queue is memory only: after a crash, every transaction
is committed completely or not at all, and no caller was told of one that is not committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from semel.engine.batch import MAX_DEFERRALS
from semel.engine.caller import RequestOrigin, WaitingCaller
from semel.engine.contract import EngineError, FaultError, Order, Write
from semel.engine.engine import Engine
from semel.engine.loop_queue import LIGHT_COST
from semel.surfaces.ledger.commands import WriteCommand, WriteMany, WriteWaits
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.rules.group_rows import PageCache
from semel.surfaces.ledger.rules.plain_write import PlainGroup, may_be_plain
from semel.surfaces.ledger.rules.write import ManyAnswers, order_of

GROUP_BYTES = 32 * 1024
"""Limit of bytes of operations in one group, unless it is a single transaction."""
COST_OF_ONE = 2
"""The cost of a transaction of one operation; the cost of a group is at most `LIGHT_COST`."""
_COST_EACH = 8
"""The cost of each operation of a larger transaction: the rows that it may read or write."""


class Verdicts(Protocol):
    """What receives the verdict of a transaction, by the number under which it was queued."""

    def settle(self, number: int, answer: Any) -> None:
        """The transaction was decided, and its commit is on disk."""

    def fail(self, number: int, error: BaseException) -> None:
        """The transaction was not stored, or its outcome is unknown."""


class QueuedTransaction:
    """A transaction in the queue."""

    __slots__ = (
        "command",
        "cost",
        "deferrals",
        "may_be_plain",
        "name",
        "number",
        "order",
        "origin",
        "principal",
        "size",
        "verdicts",
    )

    def __init__(
        self,
        command: WriteCommand,
        principal: str,
        verdicts: Verdicts,
        number: int,
        origin: RequestOrigin | None = None,
    ) -> None:
        write = command.write
        self.command = command
        self.principal = principal
        self.verdicts = verdicts
        self.number = number
        self.origin = origin
        self.size = len(write.encoded)
        count = len(write.operations)
        self.cost = COST_OF_ONE if count == 1 else _COST_EACH * (1 + count)
        self.may_be_plain = may_be_plain(command)
        self.order = order_of(command)
        self.name = (write.place, write.client, write.key) if write.key else None
        """Its key and where the key counts; None without one."""
        self.deferrals = 0


class WriteQueue:
    """The queue of one process. Used on the event loop only."""

    def __init__(self, engine: Engine, ledger: LedgerContract) -> None:
        self._engine = engine
        self.ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._waiting: list[QueuedTransaction] = []
        self._is_due = False
        self._orders: dict[Order, int] = {}
        """The sequences of all transactions that are not decided."""
        self._plain: dict[int, int] = {}
        """The number of plain groups that are not decided, by organization."""
        ledger.is_queued = self._orders.__contains__
        if not engine.is_shared:
            ledger.pages = PageCache()

    def add(
        self,
        command: WriteCommand,
        principal: str,
        verdicts: Verdicts,
        number: int = 0,
        origin: RequestOrigin | None = None,
    ) -> None:
        """Queue a transaction. Its verdict is delivered later, exactly once; `origin` is for log lines."""
        one = QueuedTransaction(command, principal, verdicts, number, origin)
        order = one.order
        if order is not None:
            self._orders[order] = self._orders.get(order, 0) + 1
        self._waiting.append(one)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._submit_all)

    def _submit_all(self) -> None:
        """Pass everything that waits to the engine."""
        self._is_due = False
        waiting, self._waiting = self._waiting, []
        for group in groups_of(waiting):
            self._submit(group)

    def _submit(self, group: Sequence[QueuedTransaction]) -> None:
        ordered = in_sequence(group)
        command = WriteMany(tuple([one.command for one in ordered]), ordered[0].deferrals < MAX_DEFERRALS)
        size, cost = sum([one.size for one in ordered]), sum([one.cost for one in ordered])
        principal, org = ordered[0].principal, ordered[0].command.write.place.org
        is_plain = all(one.may_be_plain for one in ordered)
        try:
            if is_plain or org in self._plain:  # the engine keeps the order of plain writes, and of others behind them
                plain = _PlainGroupCaller(self, ordered, command, size, cost, principal, is_plain=is_plain)
                self._engine.admit_plain(plain)
                self._plain[org] = self._plain.get(org, 0) + 1
            else:
                self._engine.admit(Write(self.ledger, command, size, cost), _GroupCaller(self, ordered, principal))
        except EngineError as error:
            self.fail(ordered, error)

    def end_plain(self, org: int) -> None:
        """A plain group of an organization has ended."""
        count = self._plain.pop(org) - 1
        if count:
            self._plain[org] = count

    def settle(self, group: Sequence[QueuedTransaction], decided: ManyAnswers) -> None:
        """Pass the verdicts on; the commit is on disk."""
        self.ledger.pages.take(decided.tree)
        again = []
        for one, answer in zip(group, decided.answers, strict=True):
            if answer.__class__ is WriteWaits:
                one.deferrals += 1
                again.append(one)
            else:
                self._forget(one)
                one.verdicts.settle(one.number, answer)
        if again:
            self._waiting.extend(again)
            self._schedule()

    def fail(self, group: Sequence[QueuedTransaction], error: BaseException) -> None:
        """Pass an error on. If a group failed for a fault, each is tried alone."""
        if isinstance(error, FaultError) and len(group) > 1:
            for one in group:  # nothing was stored: alone, only the faulty one fails, and replays are answered
                self._submit((one,))
            return
        for one in group:
            self._forget(one)
            one.verdicts.fail(one.number, error)

    def _forget(self, one: QueuedTransaction) -> None:
        order = one.order
        if order is not None:
            count = self._orders.pop(order) - 1
            if count:
                self._orders[order] = count


def groups_of(waiting: Iterable[QueuedTransaction]) -> list[list[QueuedTransaction]]:
    """Groups of transactions of one organization and principal, in order of arrival, each within the limits.

    No group has the same sequence or key of a client twice: the second is decided when the first is committed. A
    transaction that was deferred too often is a group alone.
    """
    groups: list[list[QueuedTransaction]] = []
    open_groups: dict[tuple[int, str], _OpenGroup] = {}
    for one in waiting:
        name = (one.command.write.place.org, one.principal)
        group = open_groups.get(name)
        if group is None or one.deferrals >= MAX_DEFERRALS or not group.has_room(one):
            group = open_groups[name] = _OpenGroup()
            groups.append(group.members)
        group.add(one)
    return groups


class _OpenGroup:
    def __init__(self) -> None:
        self.members: list[QueuedTransaction] = []
        self._identities: set[Any] = set()
        self._size = self._cost = 0

    def has_room(self, one: QueuedTransaction) -> bool:
        return (
            self._size + one.size <= GROUP_BYTES
            and self._cost + one.cost <= LIGHT_COST
            and one.order not in self._identities
            and one.name not in self._identities
            and self.members[0].deferrals < MAX_DEFERRALS
        )

    def add(self, one: QueuedTransaction) -> None:
        self.members.append(one)
        self._size += one.size
        self._cost += one.cost
        if one.order is not None:
            self._identities.add(one.order)
        if one.name is not None:
            self._identities.add(one.name)


def in_sequence(group: Sequence[QueuedTransaction]) -> Sequence[QueuedTransaction]:
    """The transactions in order of arrival; those of one client swap places so that their sequences rise."""
    places: dict[bytes, list[int]] = {}
    last: dict[bytes, int] = {}
    is_sorted = True
    for place, one in enumerate(group):
        if one.order is not None:
            sequence, number = one.order
            is_sorted = is_sorted and last.get(sequence, 0) <= number
            last[sequence] = number
            places.setdefault(sequence, []).append(place)
    if is_sorted:
        return group
    ordered = list(group)
    for taken in places.values():
        members = sorted((group[place] for place in taken), key=_number)
        for place, member in zip(taken, members, strict=True):
            ordered[place] = member
    return ordered


def _number(one: QueuedTransaction) -> int:
    assert one.order is not None
    return one.order.number


def _origins_of(group: Sequence[QueuedTransaction]) -> Sequence[RequestOrigin]:
    """Each request once, however many of its transactions are in the group."""
    found = {id(one.origin): one.origin for one in group if one.origin is not None}
    return list(found.values())


class _GroupCaller(WaitingCaller):
    """The caller of a group: it passes the verdicts on."""

    __slots__ = ("_group", "_queue")

    def __init__(self, queue: WriteQueue, group: Sequence[QueuedTransaction], principal: str) -> None:
        super().__init__(principal)
        self._queue = queue
        self._group = group

    def origins(self) -> Sequence[RequestOrigin]:
        """The requests of the group."""
        return _origins_of(self._group)

    def settle(self, answer: ManyAnswers) -> None:
        """Pass the verdicts on."""
        self._queue.settle(self._group, answer)

    def fail(self, error: BaseException) -> None:
        """Pass the error on."""
        self._queue.fail(self._group, error)


class _PlainGroupCaller(PlainGroup):
    """The same for a group that the engine decides in order with plain ones."""

    __slots__ = ("_group", "_queue")

    def __init__(
        self,
        queue: WriteQueue,
        group: Sequence[QueuedTransaction],
        command: WriteMany,
        size: int,
        cost: int,
        principal: str,
        *,
        is_plain: bool,
    ) -> None:
        super().__init__(queue.ledger, command, size, cost, principal, is_plain=is_plain)
        self._queue = queue
        self._group = group

    def origins(self) -> Sequence[RequestOrigin]:
        """The requests of the group."""
        return _origins_of(self._group)

    def settle(self, answer: ManyAnswers) -> None:
        """Pass the verdicts on."""
        self._queue.end_plain(self.commands[0].write.place.org)
        self._queue.settle(self._group, answer)

    def fail(self, error: BaseException) -> None:
        """Pass the error on."""
        self._queue.end_plain(self.commands[0].write.place.org)
        self._queue.fail(self._group, error)
