"""Cursors of clients that have pulled and never pushed, kept in memory only.

Nothing rests on it. A client that is not in it, because the process is a new one or because too many came after it, is
told everything again when it pushes for the first time; that does no harm. It is kept by a process for itself, so it is
of no use where a client may go back to an older cursor at another one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from semel.contracts.deltas.model import Replica

MAX_SHOWN = 65_536
"""Limit of remembered clients, the most recent ones."""


class _Visit(NamedTuple):
    turn: int
    shown: int


class ShownCursors:
    """Cursors by client; used on the event loop only."""

    def __init__(self, most: int = MAX_SHOWN) -> None:
        self._most = most
        self._turns = 0
        self._visits: OrderedDict[Replica, _Visit] = OrderedDict()

    def begin(self, replica: Replica) -> int:
        """A pull of a client begins; what was known is void until it has shown where it is. The number of its turn."""
        self._turns += 1
        self._visits[replica] = _Visit(self._turns, 0)
        self._visits.move_to_end(replica)
        if len(self._visits) > self._most:
            self._visits.popitem(last=False)
        return self._turns

    def note(self, replica: Replica, turn: int, shown: int) -> None:
        """A client of which nothing is stored has shown a cursor in a turn, if that was its last one."""
        if self.turn(replica) == turn:
            self._visits[replica] = _Visit(turn, shown)

    def turn(self, replica: Replica) -> int:
        """The number of a client's last turn; 0 when it is not remembered."""
        visit = self._visits.get(replica)
        return 0 if visit is None else visit.turn

    def of(self, replica: Replica) -> int:
        """The acknowledged position of a client; 0 when that is not known."""
        visit = self._visits.get(replica)
        return 0 if visit is None else visit.shown
