"""`once.migrate`: makes the table of receipts, in the caller's own database.

Run it where an application makes its own tables; `once.ddl()` is the same as text, for a migration of Alembic or
Django, and `semel once init URL` the same as a command. It may be run again: a table that is there stays as it is. A
crash here leaves the table, or none.
"""

from __future__ import annotations

from typing import Any

from semel.once.drivers.base import AsyncDriver
from semel.once.errors import UnsupportedConnection
from semel.once.table import TABLE, Statement, ddl
from semel.once.transaction import driver_of


def migrate(target: Any, *, table: str = TABLE) -> None:
    """Make the table of receipts.

    `target` is an engine of SQLAlchemy, where it is committed, or a connection or session that `once.transaction`
    takes, where it is part of the caller's transaction. With an asynchronous connection of SQLAlchemy write
    `await connection.run_sync(once.migrate)`; with others run the text of `once.ddl()`.
    """
    if hasattr(target, "begin") and hasattr(target, "dispose"):  # an engine
        if not hasattr(target, "raw_connection") or hasattr(target, "sync_engine"):
            raise UnsupportedConnection("This engine is asynchronous: `await connection.run_sync(once.migrate)`.")
        with target.begin() as connection:
            migrate(connection, table=table)
        return
    driver = driver_of(target)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: run the text of once.ddl() with it.")
    for sql in ddl(driver.dialect.value, table).split(";\n"):
        if sql:
            driver.perform(Statement(sql))
