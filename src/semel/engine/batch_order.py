"""The order in which the writes of a batch are decided, and the locks that they need together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from semel.engine.contract import Order
from semel.engine.group_commit import QueuedWrite
from semel.store.protocol import Lock


def in_order(submissions: Sequence[QueuedWrite]) -> list[QueuedWrite]:
    """The writes in order of arrival. Writes of one sequence swap places so that their numbers rise."""
    places: dict[bytes, list[int]] = {}
    for place, submission in enumerate(submissions):
        if submission.order is not None:
            places.setdefault(submission.order.sequence, []).append(place)
    ordered = list(submissions)
    for taken in places.values():
        if len(taken) > 1:
            members = sorted((submissions[place] for place in taken), key=_number)
            for place, member in zip(taken, members, strict=True):
                ordered[place] = member
    return ordered


def _number(submission: QueuedWrite) -> int:
    assert submission.order is not None
    return submission.order.number


def all_locks(submissions: Iterable[QueuedWrite]) -> list[Lock]:
    held: dict[bytes, bool] = {}
    for submission in submissions:
        for name, shared in submission.locks:
            held[name] = held.get(name, True) and shared
    return [Lock(name, held[name]) for name in sorted(held)]


class UndecidedSequences:
    """Writes with a sequence that are not decided yet.

    A separate object, because a view that refers to its batch would be a reference cycle, and every row of every batch
    would stay in memory until the garbage collector runs.
    """

    def __init__(self, is_admitted: Callable[[Order], bool]) -> None:
        self._is_admitted = is_admitted
        self.settled: set[Order] = set()
        self.is_believed = True
        """False after too many deferrals: a missing predecessor then counts as absent."""

    def has(self, order: Order) -> bool:
        """Whether this write was admitted but is not decided yet, in this batch or an earlier one."""
        return self.is_believed and order not in self.settled and self._is_admitted(order)
