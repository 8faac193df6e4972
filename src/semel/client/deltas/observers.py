"""Who is told when rows of a replica change: watched queries, and iterators that wait for lost writes.

Changed rows are noted inside the transaction, and observers are woken after its commit. A note of a transaction that
was rolled back does no harm: the row is read again and is the same.
"""

from __future__ import annotations

import threading
from weakref import WeakSet

from semel.client.transport.network import Bell

MOST_NOTED = 10_000
"""Above this number of changed rows a query reads its whole table again."""


class ReplicaBells:
    """The bells of the iterators of one replica."""

    def __init__(self) -> None:
        self._bells: set[Bell] = set()
        self.is_closed = False
        """Whether the replica has been closed: iterators end."""

    def add(self, bell: Bell) -> None:
        """Ring this bell from now on."""
        self._bells.add(bell)

    def remove(self, bell: Bell) -> None:
        """Ring this bell no more."""
        self._bells.discard(bell)

    def ring(self) -> None:
        """Wake all."""
        for bell in tuple(self._bells):
            bell.ring()

    def close(self) -> None:
        """Wake all, to end."""
        self.is_closed = True
        self.ring()


class ChangedRows:
    """The rows of one table that have changed since a query was last evaluated."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._rows: set[str] | None = None
        self._lock = threading.Lock()

    def note(self, row: str | None) -> None:
        """Note a row, by the canonical JSON of its id; None for the whole table."""
        with self._lock:
            if row is None:
                self._rows = None
            elif self._rows is not None:
                self._rows.add(row)
                if len(self._rows) > MOST_NOTED:
                    self._rows = None

    def take(self) -> set[str] | None:
        """The changed rows; None if the whole table must be read."""
        with self._lock:
            rows, self._rows = self._rows, set()
            return rows


class ReplicaObservers:
    """The observers of one replica."""

    def __init__(self) -> None:
        self.bells = ReplicaBells()
        self._queries: WeakSet[ChangedRows] = WeakSet()
        self._has_news = False

    def watch(self, table: str) -> ChangedRows:
        """The changed rows of a table, noted as long as the result is referred to."""
        query = ChangedRows(table)
        self._queries.add(query)
        return query

    def note(self, table: str | None = None, row: str | None = None) -> None:
        """Note a row that changed in this transaction, a whole table, or all; also that a write was lost."""
        self._has_news = True
        for query in tuple(self._queries):
            if table is None or query.table == table:
                query.note(row)

    def committed(self) -> None:
        """A transaction was committed: wake the observers if it has changed rows."""
        if self._has_news:
            self._has_news = False
            self.bells.ring()
