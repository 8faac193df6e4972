"""The log tables inside one transaction: its loads see the rows that its own earlier flushes wrote.

Nothing here changes an index. The places of appended and deleted rows are collected; after the COMMIT the directory
takes them over, and a rollback drops them with this object. A crash at any point leaves what SQLite leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import apsw

from semel.store.protocol import AnyTable, Changes, Row, StoreError, Touch
from semel.store.sqlite.log_directory import LogApplied, LogDirectory
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.log_table import LogTable, RecentPlaces
from semel.store.sqlite.query import fetch
from semel.store.table import Key

_UNKNOWN = 0
"""No row has this place."""
MOVED_BESIDE = 32
"""Keys that a flush moves out of memory besides two for each that it adds."""


class LogPart:
    """One log table inside one transaction."""

    def __init__(self, connection: apsw.Connection, log: LogTable) -> None:
        self.log = log
        self.recent = RecentPlaces(log.next_place)
        self.highest = log.highest
        """The highest place that has a row in this transaction."""
        self.rows = log.rows
        self.moved = log.moved.state
        self.removed: list[tuple[int, int]] = []
        """Hash and place of entries that leave memory."""
        self._connection = connection
        self._made = log.made
        self._known: dict[Key, int | None] = {}
        """Places of keys that this transaction has looked up; None for a key without a row."""

    def find(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Rows by their keys."""
        known = self._known
        if self.log.is_empty and not self.recent.hashes:
            return {}
        asked = [key for key in keys if known.get(key, _UNKNOWN) is not None]
        found = self.log.locate(self._connection, asked, self.recent)
        if len(found) < len(asked):
            known.update(dict.fromkeys(asked))
        rows = {}
        for key, (place, row) in found.items():
            known[key], rows[key] = place, row
        return rows

    def insert(self, rows: Sequence[Row]) -> None:
        """Append rows; a row whose key exists already is an error, and ends the transaction."""
        keys = [row[: self._made.table.key] for row in rows]
        known = self._known
        doubtful = [key for key in keys if known.get(key, _UNKNOWN) is not None]
        if len(set(keys)) < len(keys) or (doubtful and self.log.locate(self._connection, doubtful, self.recent)):
            self._connection.execute("ROLLBACK")
            raise StoreError(f"an insert into {self._made.table.name} found an existing row")
        for sql, values in self._made.insert_at(self.recent.next_place, rows):
            self._connection.execute(sql, values)
        self.recent.extend(self.log.hashes(keys))
        if rows:
            self.highest = self.recent.next_place - 1
            self.rows += len(rows)
        if known:
            for key in keys:
                known.pop(key, None)

    def replace(self, rows: Sequence[Row], *, steady: bool) -> None:
        """Replace rows where they are; a row that is not in this table is appended."""
        keys = [row[: self._made.table.key] for row in rows]
        places = self._places(keys)
        placed = [(places[key], row) for key, row in zip(keys, rows, strict=True) if key in places]
        for sql, values in self._made.replace_at(placed, steady=steady):
            self._connection.execute(sql, values)
        self.insert([row for key, row in zip(keys, rows, strict=True) if key not in places])

    def delete(self, keys: Sequence[Key]) -> None:
        """Delete rows by their keys; absent keys are left out."""
        places = self._places(keys)
        for sql, values in self._made.delete_at(list(places.values())):
            self._connection.execute(sql, values)
        if self.highest in places.values():
            self.highest = self._made.highest(self._connection)
        self.removed += zip(self.log.hashes(places), places.values(), strict=True)
        self.rows -= len(places)
        moved = [key for key, place in places.items() if place <= self.moved.boundary]
        if moved:
            stored = list(self.log.stored_keys(moved))
            self.moved = self.log.moved.remove(self._connection, stored, [places[key] for key in moved], self.moved)
        self._known.update(dict.fromkeys(places))

    def move(self, count: int) -> None:
        """Move the entries of the oldest rows that have one in memory, at most this number."""
        rows = fetch(self._connection, self._made.some_keys_above, (self.moved.boundary, count))
        if rows:
            keys, places = [row[1:] for row in rows], [row[0] for row in rows]
            self.moved = self.log.moved.add(self._connection, keys, places, self.moved)
            self.removed += zip(map(self.log.hash_key, keys), places, strict=True)

    @property
    def unmoved(self) -> int:
        """As `LogTable.unmoved`."""
        return self.rows - self.moved.keys

    def touch(self, touches: Sequence[Touch]) -> None:
        """Apply soft changes to the rows that exist."""
        places = self._places([touch.key for touch in touches])
        for touch in touches:
            if touch.key in places:
                self._connection.execute(*self._made.touch_at(places[touch.key], touch))

    def _places(self, keys: Iterable[Key]) -> dict[Key, int]:
        unknown = [key for key in keys if key not in self._known]
        if unknown:
            self.find(unknown)
        return {key: place for key in keys if (place := self._known.get(key)) is not None}


class LogChanges:
    """The log tables inside one transaction, by their SQL names."""

    def __init__(self, connection: apsw.Connection, directory: LogDirectory) -> None:
        self._connection = connection
        self._directory = directory
        self._parts: dict[str, LogPart] = {}

    def part(self, made: LogStatements) -> LogPart:
        """The part of one SQL table."""
        part = self._parts.get(made.name)
        if part is None:
            part = self._parts[made.name] = LogPart(self._connection, self._directory.log(made.name))
        return part

    def find(self, generations: Sequence[LogStatements], keys: Iterable[Key]) -> dict[Key, Row]:
        """Rows by key; the first generation is the younger, whose rows win."""
        found: dict[Key, Row] = {}
        missing = list(keys)
        for made in generations:
            rows = self.part(made).find(missing)
            if rows:
                found.update(rows)
                missing = [key for key in missing if key not in rows]
        return found

    def flush(self, changes: Changes, generations: Callable[[AnyTable], Sequence[LogStatements]]) -> None:
        """Write the changes of the log tables; `generations` gives the SQL tables of one, the younger first."""
        for table, gone in changes.deletes.items():
            for made in generations(table) if table.log else ():
                self.part(made).delete(gone)
        for table, rows in changes.updates.items():
            if table.log:
                self.part(generations(table)[0]).replace(rows, steady=False)
        for table, rows in changes.steady.items():
            if table.log:
                self.part(generations(table)[0]).replace(rows, steady=True)
        for table, rows in changes.inserts.items():
            if table.log:
                self.part(generations(table)[0]).insert(rows)
        if changes.touches:
            self._touch(changes.touches, generations)
        self._move(generations)

    def _move(self, generations: Callable[[AnyTable], Sequence[LogStatements]]) -> None:
        """Move the oldest keys out of memory if there are too many. It takes about as long as the rest of the flush at
        most, so that no batch waits for the keys of another one; a lower limit is reached in the course of many.
        """
        logs, parts = self._directory, self._parts
        excess = logs.excess + sum(part.unmoved - logs.log(name).unmoved for name, part in parts.items())
        if excess <= 0:
            return
        added = sum(len(part.recent.hashes) for part in parts.values())

        def age_and_size(made: LogStatements) -> tuple[bool, int]:
            unmoved = parts[made.name].unmoved if made.name in parts else logs.log(made.name).unmoved
            return unmoved > 0 and made is not generations(made.table)[0], unmoved

        oldest = max((log.made for log in logs.logs()), key=age_and_size)
        self.part(oldest).move(min(excess, 2 * added + MOVED_BESIDE))

    def _touch(self, touches: Sequence[Touch], generations: Callable[[AnyTable], Sequence[LogStatements]]) -> None:
        for table in {touch.table: None for touch in touches if touch.table.log}:
            for made in generations(table):
                self.part(made).touch([touch for touch in touches if touch.table is table])

    def clear(self, made: LogStatements) -> None:
        """Delete all rows of a generation."""
        old = self.part(made)
        self._connection.execute(made.clear)
        old.log.moved.clear(self._connection)
        self._parts[made.name] = LogPart(self._connection, old.log.emptied(old.recent.next_place))

    def publish(self) -> None:
        """Show the appended rows to snapshots that begin after the COMMIT, which comes next."""
        self._directory.publishing = {name: part.recent for name, part in self._parts.items()}

    def apply(self) -> None:
        """Take the changes over into the indexes, after the COMMIT."""
        self._directory.apply(
            {
                name: LogApplied(part.log, part.recent, part.removed, part.highest, part.rows, part.moved)
                for name, part in self._parts.items()
            }
        )
