"""The baselines on PostgreSQL: what a sensible person writes first, one INSERT ... ON CONFLICT transaction an append.

The primary key says whether the key was there before, and the commit is on disk before the append is answered.
Prepared, binary, on a free connection of a small pool. In a block, as connection pools give it out (BEGIN, INSERT,
COMMIT), or lean: a single statement with autocommit, the least that a transaction can be. Both promise less than Semel:
there are no positions, no order, and a repeated key is neither compared nor given its old answer.
"""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.rows import TupleRow

_TABLE = """
CREATE TABLE naive (
    scope bytea NOT NULL, key bytea NOT NULL, fingerprint bytea NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (scope, key)
)
"""
_INSERT = (
    "INSERT INTO naive (scope, key, fingerprint, body) VALUES ($1, $2, $3, $4) ON CONFLICT (scope, key) DO NOTHING"
)


CONNECTIONS = 8
"""As many as a node of Semel has for reading and writing together; more gave the baselines nothing on two cores."""


def create(url: str) -> None:
    """The table, empty."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TABLE)


class Pool:
    """So many connections; whoever finds none free waits in line, first come first served."""

    def __init__(self, size: int, *, in_block: bool) -> None:
        self._size = size
        self._in_block = in_block
        # A queue of connections would let a task that has just given one back take it again before those who wait.
        self._turns = asyncio.Semaphore(size)
        # Cursors, not connections: one that is kept spares each append the making of another.
        self._free: list[AsyncRawCursor[TupleRow]] = []
        self._connections: list[AsyncConnection[TupleRow]] = []

    async def open(self, url: str) -> None:
        """Connect."""
        for _ in range(self._size):
            connection = await AsyncConnection.connect(url, autocommit=True, prepare_threshold=0)
            self._connections.append(connection)
            self._free.append(AsyncRawCursor(connection))

    async def append(self, scope: bytes, key: bytes, fingerprint: bytes, body: bytes) -> None:
        """One append, on disk when this returns; psycopg sends bytes in their binary form."""
        async with self._turns:
            cursor = self._free.pop()
            try:
                if self._in_block:
                    async with cursor.connection.transaction():
                        await cursor.execute(_INSERT, (scope, key, fingerprint, body))
                else:
                    await cursor.execute(_INSERT, (scope, key, fingerprint, body))
            finally:
                self._free.append(cursor)

    async def close(self) -> None:
        """Disconnect."""
        for connection in self._connections:
            await connection.close()
