"""Leader election: the node whose session holds an advisory lock leads, until its session ends.

The lock only saves work; correctness does not depend on it. A node that has lost the leadership without noticing it
runs the same chores as the new leader, and the chores of both are ordinary writes under their own locks.
"""

from __future__ import annotations

import threading
import time

from semel.store.postgres.commit_fate import FORGET_OLD
from semel.store.postgres.connection import PgConnection
from semel.store.postgres.locks import LockKind, space
from semel.store.postgres.pipeline import BROKEN, number
from semel.store.protocol import StoreError

_TRY = "SELECT pg_try_advisory_lock($1::int8::int4, 0)"


class Leader:
    """The candidacy of this node in the leader election."""

    def __init__(self, line: PgConnection, schema: str) -> None:
        self._line = line
        self._space = space(schema, LockKind.LEADER)
        self._guard = threading.Lock()
        self._holds = False

    def leads(self) -> bool:
        """Whether this node is the leader, or becomes it now; queries the database each time."""
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
        """Resign, so that another node can lead."""
        with self._guard:
            self._holds = False
            self._line.drop()
