"""A database read beside the nodes that use it: one snapshot, or an inspection; nothing is made or written.

Unlike a node's own readers this asks for no commit first, so after a crash of the database it may see what a standby
does not have yet: an export is no promise to a client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg

from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import PgConnection, Trust, connect
from semel.store.postgres.pipeline import BROKEN, sentence
from semel.store.postgres.schema import version_of
from semel.store.postgres.snapshot import PgSnapshot
from semel.store.postgres.statements import DIALECT, GENERATIONS, PgStatements
from semel.store.protocol import AnyTable, StoreError, StoreInspection

IDLE_MS = 600_000
"""The database ends a snapshot that is idle for this long; a caller that reads a page at a time may be slow."""


class ReadOnlySource:
    """A source of snapshots with one connection, for read-only access."""

    def __init__(self, address: PgAddress, tables: Sequence[AnyTable]) -> None:
        self.address = address._replace(patience_ms=max(IDLE_MS, address.patience_ms))
        self.statements = {table: [PgStatements(table, name) for name in DIALECT.names_of(table)] for table in tables}
        self._line = PgConnection(self.address, Trust(address.patience))
        # A database that is away is waited for as long as the URL says, and no longer.
        self._line.open(time.monotonic() + address.patience)

    def reader(self) -> PgConnection:
        """The line."""
        return self._line

    def free_reader(self, line: PgConnection) -> None:
        """The snapshot has ended, and with it the need for a connection."""
        line.drop()

    def scannable(self, table: AnyTable) -> PgStatements:
        """The statements for ranges of a table; a generational one has none."""
        if table.generational:
            raise StoreError(f"{table.name} is found by its key alone")
        return self.statements[table][0]


@contextmanager
def read_snapshot(address: PgAddress, tables: Sequence[AnyTable]) -> Iterator[PgSnapshot]:
    """One snapshot, until the block ends."""
    with PgSnapshot(ReadOnlySource(address, tables)) as snapshot:
        yield snapshot


def inspect(address: PgAddress, tables: Sequence[AnyTable]) -> StoreInspection:
    """The version of the data, and a table with rows if one of these has any."""
    try:
        with closing(connect(address)) as wire:
            version = version_of(wire.connection, address.schema)
            if version is None:
                return StoreInspection(0, None)
            return StoreInspection(version, next(_occupied(wire.connection, tables), None))
    except (psycopg.Error, *BROKEN) as error:
        raise StoreError(sentence(error)) from error


def _occupied(connection: psycopg.Connection, tables: Sequence[AnyTable]) -> Iterator[str]:
    numbers = {name.decode(): number for name, number in connection.execute("SELECT * FROM semel_generation")}
    made = {name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema")}
    for table in tables:
        # The third generation waits to be emptied: what is in it has been dropped.
        dropped = (numbers.get(table.name, 0) + 1) % GENERATIONS if table.generational else None
        for number, name in enumerate(DIALECT.names_of(table)):
            if number == dropped or name not in made:
                continue
            if connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1'.encode()).fetchone() is not None:
                yield table.name
