"""Inspection of a schema without a trace: nothing is created, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg

from semel.store.postgres.address import Address
from semel.store.postgres.failures import BROKEN, sentence
from semel.store.postgres.line import connect
from semel.store.postgres.schema import version_of
from semel.store.postgres.statements import DIALECT, GENERATIONS
from semel.store.protocol import AnyTable, Glimpse, StoreError


def glimpse(address: Address, tables: Sequence[AnyTable]) -> Glimpse:
    """The version of the data, and a table with rows if one of these has any."""
    try:
        with closing(connect(address)) as wire:
            version = version_of(wire.connection, address.schema)
            if version is None:
                return Glimpse(0, None)
            return Glimpse(version, next(_occupied(wire.connection, tables), None))
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
