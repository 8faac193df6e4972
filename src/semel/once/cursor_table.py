"""The table of cursors: how far readers of a log have come, in the application's own database.

| column | holds |
|---|---|
| `name` | the reader |
| `epoch`, `committed_id` | the last event whose effect is committed |

A cursor moves in the transaction of the effect, and only from where its reader left it. So an effect and its cursor
commit together or not at all, and of two readers with one name the second is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from semel.once.drivers.base import AsyncDriver, Driver, drive, drive_async, raise_meant, raised_for
from semel.once.errors import InvalidKey, TableMissing
from semel.once.identity import OnceIdentity
from semel.once.rules import Flow, in_savepoint
from semel.once.table import OnceDialect, Row, Statement, TableForm, checked

TABLE = "semel_cursor"
MAX_NAME = 255
ADVICE = "create it with TransactionCursor.migrate, or add TransactionCursor.ddl() to your migrations"


class StoredCursor(NamedTuple):
    """A position of a log."""

    epoch: int
    committed_id: int


def cursor_ddl(dialect: str = "postgresql", table: str = TABLE) -> str:
    """SQL that creates the table, for your own migrations. It may be run again."""
    name, kind = checked(table), OnceDialect(dialect)
    number, tail = ("bigint", "") if kind is OnceDialect.POSTGRESQL else ("integer", " WITHOUT ROWID")
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (\n"
        "  name text NOT NULL PRIMARY KEY,\n"
        f"  epoch {number} NOT NULL,\n"
        f"  committed_id {number} NOT NULL\n"
        f"){tail};\n"
    )


COLUMNS = frozenset(re.findall(r"^  ([a-z_]+) ", cursor_ddl("sqlite"), re.MULTILINE))


def cursor_form(table: str) -> TableForm:
    """The form of a table of cursors."""
    return TableForm(checked(table), COLUMNS, cursor_ddl, ADVICE)


class CursorRow:
    """The statements on the row of one reader."""

    def __init__(self, name: str, table: str = TABLE) -> None:
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise InvalidKey(f"The name of a cursor must have 1 to {MAX_NAME} printable characters.")
        self.name = name
        self.table = checked(table)

    def load(self, driver: Driver) -> StoredCursor | None:
        """The stored cursor; None if there is none. It leaves no transaction open."""
        try:
            return _cursor(driver.read(self._find()))
        except Exception as error:  # noqa: BLE001 - any driver's error
            raise_meant(error, self._meant(error))

    async def load_async(self, driver: AsyncDriver) -> StoredCursor | None:
        """`load` for an asynchronous connection or session."""
        try:
            return _cursor(await driver.read(self._find()))
        except Exception as error:  # noqa: BLE001 - any driver's error
            raise_meant(error, self._meant(error))

    def move(self, driver: Driver, before: StoredCursor | None, after: StoredCursor) -> bool:
        """Move the cursor in the open transaction; False if it is not at `before`, which is None for a new one."""
        try:
            return drive(driver, in_savepoint(self._moved(before, after)))
        except Exception as error:  # noqa: BLE001 - any driver's error
            raise_meant(error, self._meant(error))

    async def move_async(self, driver: AsyncDriver, before: StoredCursor | None, after: StoredCursor) -> bool:
        """`move` for an asynchronous connection or session."""
        try:
            return await drive_async(driver, in_savepoint(self._moved(before, after)))
        except Exception as error:  # noqa: BLE001 - any driver's error
            raise_meant(error, self._meant(error))

    def _find(self) -> Statement:
        return Statement(f"SELECT epoch, committed_id FROM {self.table} WHERE name = ?", (self.name,))

    def _moved(self, before: StoredCursor | None, after: StoredCursor) -> Flow[bool]:
        if before is None:
            insert = f"INSERT INTO {self.table} (name, epoch, committed_id) VALUES (?, ?, ?)"
            rows = yield Statement(f"{insert} ON CONFLICT (name) DO NOTHING RETURNING name", (self.name, *after))
        else:
            update = f"UPDATE {self.table} SET epoch = ?, committed_id = ? WHERE name = ? AND epoch = ?"
            values = (*after, self.name, *before)
            rows = yield Statement(f"{update} AND committed_id = ? RETURNING name", values)
        return bool(rows)

    def _meant(self, error: Exception) -> BaseException:
        found = raised_for(error, OnceIdentity("", self.name), self.table)
        return TableMissing(self.table, ADVICE) if isinstance(found, TableMissing) else found


def _cursor(rows: Sequence[Row]) -> StoredCursor | None:
    return StoredCursor(int(rows[0][0]), int(rows[0][1])) if rows else None
