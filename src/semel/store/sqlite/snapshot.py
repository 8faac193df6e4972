"""Snapshot reads: the rows of one instant, on a read-only connection from a connection pool."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import apsw

from semel.store.protocol import AnyTable, JoinedColumn, Range, Row, StoreError
from semel.store.scopes import ProbedScopes, ScopeProbe
from semel.store.sqlite.log_directory import LogDirectory
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.query import fetch, sentence
from semel.store.sqlite.scope_statements import keys_ending, probed_rows
from semel.store.sqlite.statements import Filled, SqliteStatements
from semel.store.table import Key, Table, bytes_of

R = TypeVar("R", bound=tuple[Any, ...])


class ReaderPool:
    """The connection pool of read-only connections; each serves one snapshot at a time.

    Without `logs` there is no key index, and a look-up in a log table reads the whole table.
    """

    def __init__(
        self,
        statements: Mapping[AnyTable, list[SqliteStatements]],
        wall_ms: Callable[[], int],
        logs: LogDirectory | None = None,
    ) -> None:
        self.statements = statements
        self.logs = logs
        self.wall_ms = wall_ms
        self.is_closed = False
        self._free: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()

    def add(self, connection: apsw.Connection) -> None:
        """Add a connection, so that one more snapshot can be open."""
        connection.execute("PRAGMA query_only = ON")
        self._free.put(connection)

    def take(self) -> apsw.Connection:
        """Take a free connection; waits while all are in use."""
        return self._free.get()

    def give_back(self, connection: apsw.Connection) -> None:
        """Return a connection after its snapshot."""
        self._free.put(connection)

    def close(self) -> None:
        """Close the free connections; no further snapshot can be taken."""
        self.is_closed = True
        while not self._free.empty():
            self._free.get_nowait().close()


class SqliteSnapshot:
    """A snapshot; holds a connection of the pool while the block runs."""

    def __init__(self, readers: ReaderPool) -> None:
        self._readers = readers
        self._epoch = 0
        self._last_places: dict[str, tuple[Key, int]] = {}
        """The last key of the last page of each log table, and its place."""
        self.now_ms = 0

    def __enter__(self) -> SqliteSnapshot:
        if self._readers.is_closed:
            raise StoreError("The store is closed.")
        self._reader = self._readers.take()
        if self._readers.logs is not None:
            self._epoch = self._readers.logs.epochs.enter()
        try:
            self._reader.execute("BEGIN")
            # SQLite takes the snapshot at the first read: read a row before the clock.
            self._reader.execute("SELECT 1 FROM semel_schema").fetchone()
        except apsw.Error as error:
            self._let_go()
            raise StoreError(sentence(error)) from error
        self.now_ms = self._readers.wall_ms()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def _let_go(self) -> None:
        try:
            if self._reader.in_transaction:
                self._reader.execute("ROLLBACK")
        finally:
            if self._readers.logs is not None:
                self._readers.logs.epochs.leave(self._epoch)
            self._readers.give_back(self._reader)

    def get(self, table: Table[R], key: Key) -> R | None:
        if table.log:
            return self.find(table, [key]).get(key)
        for made in self._generations(table):
            found = fetch(self._reader, made.find_one, made.unsigned.key_out(key))
            if found:
                return made.unsigned.row_in(found[0])  # type: ignore[no-any-return]
        return None

    def find(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        found: dict[Key, R] = {}
        if table.log and self._readers.logs is not None:
            return self._readers.logs.find(self._reader, _logs(self._generations(table)), keys)
        for made in self._generations(table):
            missing = [key for key in keys if key not in found]
            for sql, values in made.find(missing):
                rows = map(made.unsigned.row_in, fetch(self._reader, sql, values))
                found.update((table.key_of(row), row) for row in rows)
        return found

    def latest(self, table: Table[R], prefixes: Sequence[Key], below: Any) -> dict[Key, R]:
        _refuse_unordered(table)
        [made] = self._readers.statements[table]
        return self._one_each(made, made.latest(prefixes, below))

    def earliest(self, table: Table[R], prefixes: Sequence[Key], least: Any) -> dict[Key, R]:
        _refuse_unordered(table)
        [made] = self._readers.statements[table]
        return self._one_each(made, made.earliest(prefixes, least))

    def _one_each(self, made: SqliteStatements, statements: Iterable[Filled]) -> dict[Key, Any]:
        found: dict[Key, Any] = {}
        for sql, values in statements:
            rows = map(made.unsigned.row_in, fetch(self._reader, sql, values))
            found.update((row[: made.table.key - 1], row) for row in rows)
        return found

    def distinct(self, wanted: Range) -> list[Any]:
        _refuse_unordered(wanted.table, wanted.by)
        [made] = self._readers.statements[wanted.table]
        column = wanted.table.ordering(wanted.by)[len(wanted.prefix)]
        return [made.unsigned.value_in(column, value) for (value,) in fetch(self._reader, *made.distinct(wanted))]

    def _generations(self, table: AnyTable) -> list[SqliteStatements]:
        made = self._readers.statements[table]
        if not table.generational:
            return made
        # Read inside the snapshot which generation is the younger: the writer may have rotated since.
        asked = "SELECT number FROM semel_generation WHERE name = ?"
        found = fetch(self._reader, asked, (table.name.encode(),))
        number = found[0][0] if found else 0
        return [made[number], *(other for place, other in enumerate(made) if place != number)]

    def range(self, wanted: Range) -> list[Row]:
        return scan(self._reader, self._readers.statements[wanted.table][0], wanted)

    def joined(self, wanted: Range, column: str, between: bytes) -> JoinedColumn | None:
        made = self._readers.statements[wanted.table][0]
        _refuse_unordered(wanted.table)
        [(last, count, data)] = fetch(self._reader, *made.joined(wanted, column, between))
        return JoinedColumn(last, count, data or b"") if count else None

    def keys(self, wanted: Range) -> list[Key]:
        made = self._readers.statements[wanted.table][0]
        _refuse_unordered(wanted.table, wanted.by)
        return [made.unsigned.key_in(row) for row in fetch(self._reader, *made.scan(wanted, keys_only=True))]

    def keys_each(self, wanted: Sequence[Range]) -> list[list[Key]]:
        return [self.keys(one) for one in wanted]

    def probe(self, scopes: Range, probes: Sequence[ScopeProbe]) -> ProbedScopes:
        _refuse_unordered(scopes.table, scopes.by)
        made = self._readers.statements[scopes.table][0]
        order = scopes.table.ordering(scopes.by)
        rows = fetch(self._reader, *made.positions(scopes))
        places = [order.index(column) for column in scopes.table.key_columns]
        keys = [made.unsigned.key_in([row[place] for place in places]) for row in rows]
        found = [self._probed(scopes, made, keys, probe) for probe in probes]
        last = () if not rows else tuple(map(made.unsigned.value_in, order, rows[-1]))
        return ProbedScopes(len(rows), last, found)

    def _probed(self, scopes: Range, made: SqliteStatements, keys: Sequence[Key], probe: ScopeProbe) -> dict[Key, Row]:
        table = probe.table
        if table.log:
            rows = self.find(table, [key + probe.rest for key in keys])
            return {key: row for key, row in rows.items() if probe.means(row)}
        found: dict[Key, Row] = {}
        for other in self._generations(table):
            for row in map(other.unsigned.row_in, fetch(self._reader, *probed_rows(made, scopes, other, probe))):
                found.setdefault(table.key_of(row), row)
        return {key: row for key, row in found.items() if probe.means(row)}

    def keys_ending(self, table: AnyTable, last: Any, most_rows: int) -> list[Key] | None:
        [made] = _logs(self._readers.statements[table])
        (first,), (end,) = (fetch(self._reader, sql, ())[0] for sql in (made.first_place, made.last_place))
        if (end or 0) - (first or 0) >= most_rows:
            return None
        return [made.unsigned.key_in(key) for key in fetch(self._reader, *keys_ending(made, last))]

    def page(self, table: Table[R], age: int, behind: Key | None, limit: int, most_bytes: int) -> list[R]:
        found: list[R] = []
        for made in self._generations(table)[age : age + 1]:
            try:
                for values in self._reader.execute(*self._page(made, behind, limit)):
                    found.append(made.unsigned.row_in(self._without_place(made, values)))
                    most_bytes -= bytes_of(found[-1])
                    if most_bytes <= 0:
                        break
            except (apsw.Error, OverflowError, TypeError) as error:
                raise StoreError(sentence(error)) from error
        return found

    def page_keys(self, table: AnyTable, age: int, behind: Key | None, limit: int) -> list[Key]:
        found = []
        for made in self._generations(table)[age : age + 1]:
            keys = fetch(self._reader, *self._page(made, behind, limit, keys_only=True))
            found += [made.unsigned.key_in(self._without_place(made, key)) for key in keys]
        return found

    def _page(self, made: SqliteStatements, behind: Key | None, limit: int, *, keys_only: bool = False) -> Filled:
        if not isinstance(made, LogStatements):
            return made.page(behind, limit, keys_only=keys_only)
        return made.page_above(self._place_of(made, behind), limit, keys_only=keys_only)

    def _place_of(self, made: LogStatements, key: Key | None) -> int:
        """The place of the row behind which a page begins: known if the page before ended with it."""
        if key is None:
            return 0
        known = self._last_places.get(made.name)
        if known is not None and known[0] == made.unsigned.key_out(key):
            return known[1]
        found = fetch(self._reader, *made.place_of(key))
        if not found:
            raise StoreError(f"{made.table.name} has no row behind which a page could begin")
        return found[0][0]  # type: ignore[no-any-return]

    def _without_place(self, made: SqliteStatements, values: Sequence[Any]) -> Sequence[Any]:
        if not isinstance(made, LogStatements):
            return values
        self._last_places[made.name] = tuple(values[1 : made.table.key + 1]), values[0]
        return values[1:]


def scan(connection: apsw.Connection, made: SqliteStatements, wanted: Range) -> list[Row]:
    """The rows of a range."""
    _refuse_unordered(wanted.table, wanted.by)
    return [made.unsigned.row_in(row) for row in fetch(connection, *made.scan(wanted))]


def _logs(made: Sequence[SqliteStatements]) -> list[LogStatements]:
    return [one for one in made if isinstance(one, LogStatements)]


def _refuse_unordered(table: AnyTable, by: str = "") -> None:
    if not table.has_order(by):
        raise StoreError(f"{table.name} can be read by key only")
