"""A cursor in the application's own transaction: an event takes effect once, whatever crashes.

The cursor is a row of a small table in the application's database. `ack` moves it in the open transaction, so the
effect of an event and the cursor commit together. A crash before the commit leaves neither, and the event is handed
over again; a crash after it leaves both, and it is not. The drivers are those of `semel.once`: sqlite3, apsw,
psycopg 3, asyncpg, SQLAlchemy 2 and Django.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.client.events.cursors import CursorStore
from semel.client.events.errors import CursorMovedError
from semel.client.events.values import START, Cursor
from semel.client.transport.network import Network
from semel.once.cursor_table import TABLE, CursorRow, StoredCursor, cursor_ddl, cursor_form
from semel.once.drivers.base import Driver
from semel.once.transaction import create_tables, driver_of


class TransactionCursor(CursorStore):
    """A cursor in a table of the database of `connection`: a connection or a session.

    `name` names the reader; each reader has its own. `start` is where a new one begins. `ack(using=...)` moves it in
    the transaction of another connection to the same database, for programs that take connections from a pool.
    """

    is_undoable = True

    def __init__(self, connection: Any, name: str, *, start: Cursor = START, table: str = TABLE) -> None:
        self._connection = connection
        self._row = CursorRow(name, table)
        self._start = start
        self._absent_at: Cursor | None = None
        """Where this reader begins, if there was no row; None if there was one."""
        self.is_async = not isinstance(driver_of(connection), Driver)

    @staticmethod
    def ddl(dialect: str = "postgresql", table: str = TABLE) -> str:
        """SQL that creates the table, for your own migrations; `dialect` is `postgresql` or `sqlite`."""
        return cursor_ddl(dialect, table)

    @staticmethod
    def migrate(target: Any, *, table: str = TABLE) -> None:
        """Create the table, in the transaction of a connection or session, or on a SQLAlchemy engine."""
        create_tables(target, cursor_form(table))

    async def load(self, network: Network) -> Cursor:
        """Read the row. No transaction is left open."""
        driver = driver_of(self._connection)
        if isinstance(driver, Driver):
            found = self._row.load(driver)
        else:
            found = await self._row.load_async(driver)
        self._absent_at = self._start if found is None else None
        return self._start if found is None else Cursor(*found)

    async def save(self, network: Network, before: Sequence[Cursor], cursor: Cursor, using: Any) -> None:
        """Move the row in the open transaction, from where this follower left it."""
        driver = driver_of(self._connection if using is None else using)
        # An interrupted call is rolled back with its transaction.
        stored = before[0]
        left = None if stored == self._absent_at else StoredCursor(stored.epoch, stored.committed_id)
        after = StoredCursor(cursor.epoch, cursor.committed_id)
        if isinstance(driver, Driver):
            is_moved = self._row.move(driver, left, after)
        else:
            is_moved = await self._row.move_async(driver, left, after)
        if not is_moved:
            raise CursorMovedError(
                f"The cursor {self._row.name!r} is not at {stored.text()}: another process follows with it, an earlier "
                "transaction was rolled back, or this one repeats a committed one. Roll back, and follow again."
            )
