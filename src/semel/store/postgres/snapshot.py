"""Snapshot reads: the rows of one instant, on a reader connection, always from the primary.

A primary that was replaced while it hung does not know it. So at the end of a snapshot a commit must have been
confirmed on its server: one that was sent shortly before, or else one that is sent now.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import PgConnection
from semel.store.postgres.pipeline import BROKEN, UNFIT, Filled, Rows, meaning, sentence
from semel.store.postgres.scope_statements import about_rows, keys_ending, probed_rows, scope_page
from semel.store.postgres.statements import GENERATIONS, NOW_MS, PgStatements
from semel.store.protocol import AnyTable, JoinedColumn, Range, Row, StoreError, TryAgainError
from semel.store.scopes import ProbedScopes, ScopeProbe
from semel.store.table import Key, Table

R = TypeVar("R", bound=tuple[Any, ...])

_BEGIN: Filled = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())
_CLOCK: Filled = (f"SELECT {NOW_MS}", ())
_END: Filled = ("COMMIT", ())
_CLUSTER = "(SELECT system_identifier FROM pg_control_system())::text"
_TIMELINE = "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
_TABLES = "'semel_schema'::regclass::oid::text"  # loading a dump creates the tables anew, with other ids
_ERA: Filled = (f"SELECT convert_to(concat_ws('/', {_CLUSTER}, {_TIMELINE}, {_TABLES}), 'UTF8')", ())
_NUMBER = "SELECT number FROM semel_generation WHERE name = $1"


class Source(Protocol):
    """The part of a store that a snapshot needs."""

    @property
    def address(self) -> PgAddress:
        """The address of the database."""

    @property
    def statements(self) -> Mapping[AnyTable, list[PgStatements]]:
        """The statements of each table, one entry for each generation."""

    def reader(self) -> PgConnection:
        """Take a free reader connection."""

    def free_reader(self, line: PgConnection) -> None:
        """Return a reader connection after its snapshot."""

    def scannable(self, table: AnyTable) -> PgStatements:
        """The statements for ranges of a table."""


class PgSnapshot:
    """A snapshot; holds a reader connection while the block runs."""

    def __init__(self, store: Source) -> None:
        self._store = store
        self._taken_at = 0.0
        self._youngest: dict[AnyTable, int] = {}
        """The number of the younger generation, of each table that was asked for."""
        self.now_ms = 0

    def __enter__(self) -> PgSnapshot:
        self._line = self._store.reader()
        try:
            self._line.open(time.monotonic() + self._store.address.patience)
            # The server takes the snapshot at the first query.
            self.now_ms = self._ask(_BEGIN, _CLOCK)[1][0][0]
            self._taken_at = time.monotonic()
        except BaseException:
            self._line.drop()
            self._store.free_reader(self._line)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_current = self._line.is_current(self._taken_at)
        try:
            self._end(is_current)
            if not is_current and not isinstance(error, StoreError):
                self._line.verify()  # a value that was found, and an error that says what was not found
        except BROKEN as failure:
            self._line.drop()
            raise TryAgainError(sentence(failure)) from failure
        finally:
            self._store.free_reader(self._line)

    def _end(self, is_current: bool) -> None:
        try:
            self._line.exchange([_END])
        except BROKEN:
            self._line.drop()
            if not is_current:
                raise
            # Otherwise what was read before is valid.

    def era(self) -> bytes:
        """The identity of the cluster, of its timeline and of our tables, as this server reports them."""
        return bytes(self._ask(_ERA)[0][0][0])

    def get(self, table: Table[R], key: Key) -> R | None:
        for made in self._lookup(table):
            found = self._ask(self._filled(lambda made=made: made.find([key])))[0]
            if found:
                return made.unsigned.row_in(found[0])  # type: ignore[no-any-return]
        return None

    def find(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        found: dict[Key, R] = {}
        for made in self._lookup(table):
            missing = [key for key in keys if key not in found]
            if missing:
                rows = self._ask(self._filled(lambda made=made, missing=missing: made.find(missing)))[0]
                found.update((table.key_of(row), row) for row in map(made.unsigned.row_in, rows))
        return found

    def latest(self, table: Table[R], prefixes: Sequence[Key], below: Any) -> dict[Key, R]:
        if not prefixes:
            return {}
        made = self._store.scannable(table)
        rows = self._ask(self._filled(lambda: made.latest(prefixes, below)))[0]
        return {row[: table.key - 1]: row for row in map(made.unsigned.row_in, rows)}

    def earliest(self, table: Table[R], prefixes: Sequence[Key], least: Any) -> dict[Key, R]:
        if not prefixes:
            return {}
        made = self._store.scannable(table)
        rows = self._ask(self._filled(lambda: made.earliest(prefixes, least)))[0]
        return {row[: table.key - 1]: row for row in map(made.unsigned.row_in, rows)}

    def distinct(self, wanted: Range) -> list[Any]:
        made = self._store.scannable(wanted.table)
        column = wanted.table.ordering(wanted.by)[len(wanted.prefix)]
        found = self._ask(self._filled(lambda: made.distinct(wanted)))[0]
        return [made.unsigned.value_in(column, value) for (value,) in found]

    def range(self, wanted: Range) -> list[Row]:
        made = self._store.scannable(wanted.table)
        return [made.unsigned.row_in(row) for row in self._ask(self._filled(lambda: made.scan(wanted)))[0]]

    def joined(self, wanted: Range, column: str, between: bytes) -> JoinedColumn | None:
        made = self._store.scannable(wanted.table)
        [(last, count, data)] = self._ask(self._filled(lambda: made.joined(wanted, column, between)))[0]
        return JoinedColumn(last, count, data or b"") if count else None

    def keys(self, wanted: Range) -> list[Key]:
        return self.keys_each([wanted])[0]

    def keys_each(self, wanted: Sequence[Range]) -> list[list[Key]]:
        if not wanted:
            return []
        made = [self._store.scannable(one.table) for one in wanted]
        asked = [
            self._filled(lambda one=one, each=each: each.scan(one, keys_only=True))
            for each, one in zip(made, wanted, strict=True)
        ]
        answers = self._ask(*asked)
        return [[each.unsigned.key_in(key) for key in keys] for each, keys in zip(made, answers, strict=True)]

    def probe(self, scopes: Range, probes: Sequence[ScopeProbe]) -> ProbedScopes:
        made = self._store.scannable(scopes.table)
        steps = [(place, other) for place, probe in enumerate(probes) for other in self._lookup(probe.table)]
        asked = [self._filled(lambda: scope_page(made, scopes))]
        for place, other in steps:
            asked.append(self._filled(lambda place=place, other=other: probed_rows(made, scopes, other, probes[place])))
        page, *answers = self._ask(*asked)
        found: list[dict[Key, Row]] = [{} for _ in probes]
        for (place, other), rows in zip(steps, answers, strict=True):
            for row in map(other.unsigned.row_in, rows):
                found[place].setdefault(other.table.key_of(row), row)  # the younger generation comes first
        found = [
            {key: row for key, row in some.items() if probe.means(row)}
            for probe, some in zip(probes, found, strict=True)
        ]
        if not page:
            return ProbedScopes(0, (), found)
        order = scopes.table.ordering(scopes.by)
        last = tuple(made.unsigned.value_in(name, value) for name, value in zip(order, page[0][1:], strict=True))
        return ProbedScopes(page[0][0], last, found)

    def keys_ending(self, table: AnyTable, last: Any, most_rows: int) -> list[Key] | None:
        [made] = self._store.statements[table]
        if self._ask(about_rows(made))[0][0][0] > most_rows:
            return None
        column = table.key_columns[-1]
        found = self._ask(self._filled(lambda: keys_ending(made, made.scalar(column, last))))[0]
        return [made.unsigned.key_in(key) for key in found]

    def page(self, table: Table[R], age: int, behind: Key | None, limit: int, most_bytes: int) -> list[R]:
        found = []
        for made in self._lookup(table)[age : age + 1]:
            rows = self._ask(self._filled(lambda made=made: made.page(behind, limit, most_bytes)))[0]
            found += [made.unsigned.row_in(row) for row in rows]
        return found

    def page_keys(self, table: AnyTable, age: int, behind: Key | None, limit: int) -> list[Key]:
        found = []
        for made in self._lookup(table)[age : age + 1]:
            keys = self._ask(self._filled(lambda made=made: made.page_keys(behind, limit)))[0]
            found += [made.unsigned.key_in(key) for key in keys]
        return found

    def _lookup(self, table: Table[Any]) -> list[PgStatements]:
        made = self._store.statements[table]
        if not table.generational:
            return made
        number = self._youngest.get(table)
        if number is None:
            # Read inside the snapshot which generation is the younger: another node may have rotated since.
            found = self._ask((_NUMBER, (table.name.encode(),)))[0]
            number = self._youngest[table] = found[0][0] if found else 0
        return [made[number], made[(number - 1) % GENERATIONS]]

    def _filled(self, fill: Any) -> Filled:
        try:
            return fill()  # type: ignore[no-any-return]
        except UNFIT as error:
            raise meaning(error) from error

    def _ask(self, *statements: Filled) -> list[Rows]:
        try:
            return self._line.exchange(statements)
        except BROKEN as error:
            raise meaning(error) from error
