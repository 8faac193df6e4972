"""Read-only access beside running nodes: one connection, one snapshot, nothing written.

Unlike a node's own readers it does not commit first, so after a crash of the database it may see commits that a
standby does not have yet: an export is no promise to a client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from semel.store.postgres.address import Address
from semel.store.postgres.line import Line, Trust
from semel.store.postgres.snapshot import PostgresSnapshot
from semel.store.postgres.statements import DIALECT, Statements
from semel.store.protocol import AnyTable, StoreError

IDLE_MS = 600_000
"""The database ends a snapshot that is idle for this long; a caller that reads a page at a time may be slow."""


class Beside:
    """A source of snapshots with one connection, for read-only access."""

    def __init__(self, address: Address, tables: Sequence[AnyTable]) -> None:
        self.address = address._replace(patience_ms=max(IDLE_MS, address.patience_ms))
        self.statements = {table: [Statements(table, name) for name in DIALECT.names_of(table)] for table in tables}
        self._line = Line(self.address, Trust(address.patience))
        # A database that is away is waited for as long as the URL says, and no longer.
        self._line.open(time.monotonic() + address.patience)

    def reader(self) -> Line:
        """The line."""
        return self._line

    def free_reader(self, line: Line) -> None:
        """The snapshot has ended, and with it the need for a connection."""
        line.drop()

    def scannable(self, table: AnyTable) -> Statements:
        """The statements for ranges of a table; a generational one has none."""
        if table.generational:
            raise StoreError(f"{table.name} is found by its key alone")
        return self.statements[table][0]


@contextmanager
def beside(address: Address, tables: Sequence[AnyTable]) -> Iterator[PostgresSnapshot]:
    """One snapshot, until the block ends."""
    with PostgresSnapshot(Beside(address, tables)) as snapshot:
        yield snapshot
