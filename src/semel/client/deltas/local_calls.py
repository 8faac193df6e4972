"""The calls of a replica that need no network: rows, transactions, the queue and dead letters.

They are plain functions, may come from any thread, and are on disk when they return.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from semel.client.deltas.observers import ReplicaBells
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.values import DeadLetter, LostWrite, PendingDelta

D = TypeVar("D", str, str | None)


class ReplicaRows:
    """Rows of a replica, and changes that are queued or refused."""

    def __init__(self, local: LocalReplica, bells: ReplicaBells, gateway: str, client_id: str) -> None:
        self._local = local
        self._bells = bells
        self.gateway = gateway
        self.client_id = client_id
        """The unique name of this replica."""

    def get(self, table: str, row_id: str) -> dict[str, Any] | None:
        """The columns of a row, without those that are None; None if the row does not exist."""
        return self._local.get(table, row_id)

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        """All rows of a table, by their ids."""
        return self._local.rows(table)

    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return self._local.tables()

    def insert(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str:
        """Insert a row and return the id of its delta. Raises `RowExistsError` if the row exists."""
        return self._wrote(self._local.insert(table, row_id, columns))

    def update(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str | None:
        """Change some columns of a row; None clears one. Returns the delta's id, or None if nothing changes.

        Raises `RowMissingError` if the row does not exist.
        """
        return self._wrote(self._local.update(table, row_id, columns))

    def put(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str | None:
        """Insert the row, or update it if it exists."""
        return self._wrote(self._local.put(table, row_id, columns))

    def delete(self, table: str, row_id: str) -> str | None:
        """Delete a row. Returns the delta's id, or None if the row does not exist."""
        return self._wrote(self._local.delete(table, row_id))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run several writes as one transaction, on disk when the block ends. Do not await inside it."""
        with self._local.file.transaction():
            yield
        self._bells.ring()

    def pending(self) -> list[PendingDelta]:
        """Own changes that the server has not acknowledged, oldest first."""
        return self._local.outbox.pending()

    def dead(self) -> list[DeadLetter]:
        """Own changes that the server has permanently refused, oldest first."""
        return self._local.outbox.dead()

    def retry_dead(self, delta_id: str) -> None:
        """Put a refused change back into the queue with its old timestamp. Raises KeyError for an unknown id."""
        self._local.exhume(delta_id, again=True)
        self._bells.ring()

    def discard_dead(self, delta_id: str) -> None:
        """Delete a refused change. Raises KeyError for an unknown id."""
        self._local.exhume(delta_id, again=False)

    def take_lost(self, limit: int = 100) -> list[LostWrite]:
        """Remove and return own writes that lost to other replicas, oldest first; at most `limit`.

        Inside `transaction()` the removal and your own writes are one step, so each is handled exactly once.
        """
        return self._local.lost.take(limit)

    def restamp(self) -> int:
        """Give new timestamps to changes that were refused with `ClockSkewError`. Returns how many.

        Call it after the clock was corrected. The changes keep their order.
        """
        return self._local.restamp()

    def start_over(self) -> None:
        """Drop the server's state; the next pull fetches everything again. Own changes stay."""
        self._local.start_over()

    def _wrote(self, delta_id: D) -> D:
        if delta_id is not None:
            self._bells.ring()
        return delta_id
