"""Whether another program has committed to the file since this process last looked.

One process writes to the file by its own rules, and keeps in memory what it knows of it: places of keys, rows, which
generation is the younger. Other programs may commit too: Litestream after each of its checkpoints, a person with the
`sqlite3` shell. So each write transaction begins with the question whether anybody else has committed. It is the
first read of the transaction, which fixes what the transaction sees: an answer from before BEGIN would say nothing of a
commit that comes between the two.

`PRAGMA data_version` answers it. It stays the same through commits of the connection that asks, and through checkpoints
of other connections of this process.
"""

from __future__ import annotations

import apsw


class FileWatch:
    """What the writer's connection last saw of the file. Made inside a transaction, before anything else is read."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.accept()

    def is_changed(self) -> bool:
        """Whether another connection has committed since; the first read of a transaction."""
        return bool(self._pragma("data_version") != self._data_version)

    def has_other_schema(self) -> bool:
        """Whether more has happened to the schema than that other programs have made tables of their own.

        VACUUM counts up the version of the schema, and so does each CREATE. Litestream makes its two tables when it
        meets a file for the first time.
        """
        made = sum(table not in self._tables for table in self._objects())
        return bool(self._pragma("schema_version") != self._schema_version + made)

    def accept(self) -> None:
        """Take what is there now for what this process knows; inside a transaction."""
        self._data_version = self._pragma("data_version")
        self._schema_version = self._pragma("schema_version")
        self._tables = frozenset(self._objects())

    def _objects(self) -> list[str]:
        """The table of each table, index, view and trigger that a statement has made."""
        return [name for (name,) in self._connection.execute("SELECT tbl_name FROM sqlite_schema WHERE sql NOT NULL")]

    def _pragma(self, name: str) -> int:
        return self._connection.execute(f"PRAGMA {name}").get  # type: ignore[no-any-return]
