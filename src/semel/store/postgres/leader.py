"""Leader election: the node whose session holds an advisory lock leads, until its session ends.

The lock saves work and protects nothing: a node that has not yet noticed that it lost the election does the same
chores as the new leader, and both are ordinary writes under their own locks.
"""

from __future__ import annotations

import threading
import time

from semel.store.postgres.encoding import number
from semel.store.postgres.failures import BROKEN
from semel.store.postgres.line import Line
from semel.store.postgres.locks import Kind, space
from semel.store.postgres.marks import FORGET_OLD
from semel.store.protocol import StoreError

_TRY = "SELECT pg_try_advisory_lock($1::int8::int4, 0)"


class Leader:
    """The candidacy of this node in the leader election."""

    def __init__(self, line: Line, schema: str) -> None:
        self._line = line
        self._space = space(schema, Kind.LEADER)
        self._guard = threading.Lock()
        self._holds = False

    def leads(self) -> bool:
        """Whether this node holds the lock, or gets it now; asks the database each time."""
        with self._guard:
            self._holds = self._holds and self._line.is_open
            try:
                self._line.open(time.monotonic())
                if self._holds:
                    self._line.exchange([(FORGET_OLD, ())])
                else:
                    self._holds = self._line.exchange([(_TRY, (number(self._space),))])[0][0][0]
            except (*BROKEN, StoreError):
                self._line.drop()
                self._holds = False
            return self._holds

    def close(self) -> None:
        """Let another node lead."""
        with self._guard:
            self._holds = False
            self._line.drop()
