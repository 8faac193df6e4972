"""Reads a database beside the nodes that use it: one snapshot, or an inspection; nothing is created or written.

Unlike the readers of a node, this connection does not begin with a commit. After a crash of the database it may show
commits that a standby does not have yet, which is acceptable because an export promises nothing to a client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg

from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import PgConnection, Trust, connect
from semel.store.postgres.pipeline import BROKEN, sentence
from semel.store.postgres.schema import is_moved, version_of
from semel.store.postgres.snapshot import PgSnapshot
from semel.store.postgres.statements import DIALECT, GENERATIONS, PgStatements
from semel.store.protocol import AnyTable, StoreError, StoreInspection

MAX_SCHEMAS = 1_000
IDLE_MS = 600_000
"""The database ends a snapshot that is idle for this long, in milliseconds; a caller that reads by pages may be
slow.
"""


class ReadOnlySource:
    """A source of snapshots with one connection, for read-only access."""

    def __init__(self, address: PgAddress, tables: Sequence[AnyTable]) -> None:
        self.address = address._replace(patience_ms=max(IDLE_MS, address.patience_ms))
        self.statements = {table: [PgStatements(table, name) for name in DIALECT.names_of(table)] for table in tables}
        self._line = PgConnection(self.address, Trust(address.patience))
        # Wait for an unreachable database only as long as the URL says, not IDLE_MS.
        self._line.open(time.monotonic() + address.patience)

    def reader(self) -> PgConnection:
        """The connection."""
        return self._line

    def free_reader(self, line: PgConnection) -> None:
        """Close the connection, because its only snapshot has ended."""
        line.drop()

    def scannable(self, table: AnyTable) -> PgStatements:
        """The statements for ranges of a table; a generational table cannot be read by range."""
        if table.generational:
            raise StoreError(f"{table.name} can be read by key only")
        return self.statements[table][0]


@contextmanager
def read_snapshot(address: PgAddress, tables: Sequence[AnyTable]) -> Iterator[PgSnapshot]:
    """One snapshot, open until the block ends."""
    with PgSnapshot(ReadOnlySource(address, tables)) as snapshot:
        yield snapshot


def inspect(address: PgAddress, tables: Sequence[AnyTable]) -> StoreInspection:
    """The schema version of the data, and one of these tables that has rows, if any."""
    try:
        with closing(connect(address)) as wire:
            version = version_of(wire.connection, address.schema)
            if version is None:
                return StoreInspection(0, None)
            occupied = next(_occupied(wire.connection, tables), None)
            return StoreInspection(version, occupied, is_moved(wire.connection))
    except (psycopg.Error, *BROKEN) as error:
        raise StoreError(sentence(error)) from error


def schemas_below(address: PgAddress, mark: str) -> list[str]:
    """The schemas whose names begin with that of this store and this mark."""
    start = f"{address.schema}_{mark}"
    query = "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname::text, %s) ORDER BY nspname LIMIT %s"
    try:
        with closing(connect(address)) as wire:
            return [str(row[0]) for row in wire.connection.execute(query, (start, MAX_SCHEMAS)).fetchall()]
    except (psycopg.Error, *BROKEN) as error:
        raise StoreError(sentence(error)) from error


def index_flaws(address: PgAddress, tables: Sequence[AnyTable]) -> Iterator[str]:
    """What the extension amcheck finds wrong with the indexes; nothing if the database does not have it."""
    try:
        with closing(connect(address)) as wire:
            connection = wire.connection
            if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'").fetchone() is None:
                return
            names = [name for table in tables for name in DIALECT.names_of(table)]
            asked = b"SELECT indexrelid FROM pg_index WHERE indrelid = to_regclass(%s) AND indisvalid"
            for name in names:
                for (index,) in connection.execute(asked, (f'"{name}"',)).fetchall():
                    try:
                        connection.execute(b"SELECT bt_index_check(%s, true)", (index,))
                    except psycopg.errors.DataCorrupted as error:
                        yield sentence(error)
    except (psycopg.Error, *BROKEN) as error:
        yield sentence(error)


def _occupied(connection: psycopg.Connection, tables: Sequence[AnyTable]) -> Iterator[str]:
    numbers = {name.decode(): number for name, number in connection.execute("SELECT * FROM semel_generation")}
    made = {name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema")}
    for table in tables:
        # The third generation is waiting to be truncated: its rows are dropped already.
        dropped = (numbers.get(table.name, 0) + 1) % GENERATIONS if table.generational else None
        for number, name in enumerate(DIALECT.names_of(table)):
            if number == dropped or name not in made:
                continue
            if connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1'.encode()).fetchone() is not None:
                yield table.name
