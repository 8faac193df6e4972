"""The rows of one batch: the loaded rows, under the changes of the batch so far.

Every change is written to a journal, so that one decision can be undone without the others. Loaded ranges are kept in
order under the batch's own changes: a claim sees the jobs that an earlier claim left. Nothing is written to the store
here; `changes` returns the differences from the loaded rows.

Rows of heavy tables are loaded in slices, so that their size is checked before many of them are in memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from semel.engine.contract import MissingRowsError, Order, Stage
from semel.store.protocol import AnyTable, Changes, Lock, Range, Row, Touch
from semel.store.table import Key, Table

_LIMIT = Range._fields.index("limit")


def same_rows(wanted: Range) -> tuple[Any, ...]:
    """The identity of a range without its limit."""
    return wanted[:_LIMIT] + wanted[_LIMIT + 1 :]


class LoadedRange:
    """The loaded beginning of a range, as positions in its index."""

    def __init__(self, wanted: Range, rows: Sequence[Row], edge: Key | None) -> None:
        self._wanted = wanted
        self._keys: dict[Key, Key] = {}
        self._places: list[Key] = []
        self._edge = edge
        """The position of the last row that the store returned; None if the range was loaded to its end."""
        for row in rows:
            self._add(wanted.table.key_of(row), row)

    def change(self, key: Key, before: Row | None, after: Row | None) -> None:
        """Apply the change of one row."""
        if before is not None:
            place = self._wanted.table.index_key(self._wanted.by, before)
            if place in self._keys:
                del self._keys[place]
                del self._places[bisect_left(self._places, place)]
        if after is not None:
            self._add(key, after)

    def first(self, limit: int) -> list[Key] | None:
        """The keys of the first rows; None if not enough rows are loaded."""
        if len(self._places) < limit and self._edge is not None:
            return None
        places = self._places[-limit:][::-1] if self._wanted.reverse else self._places[:limit]
        return [self._keys[place] for place in places[:limit]]

    def _add(self, key: Key, row: Row) -> None:
        place = self._wanted.table.index_key(self._wanted.by, row)
        if self._wanted.holds(place) and self._is_known(place) and place not in self._keys:
            self._keys[place] = key
            insort(self._places, place)

    def _is_known(self, place: Key) -> bool:
        if self._edge is None:
            return True
        return place >= self._edge if self._wanted.reverse else place <= self._edge


R = TypeVar("R", bound=tuple[Any, ...])


_UNSEEN: Any = ()
"""Placeholder of a row that is deleted without having been loaded."""


class InsertMetRowError(Exception):
    """An inserted row exists already: an error of the contract."""


class BatchView:
    """The view of one batch; implements `contract.View`."""

    def __init__(
        self,
        is_admitted: Callable[[Order], bool],
        soften: Callable[[AnyTable, Row], Row],
        held: Iterable[Lock] = (),
    ) -> None:
        self.is_admitted = is_admitted
        self._held = {lock.name: lock.shared for lock in held}
        self._soften = soften
        self._base: dict[AnyTable, dict[Key, Row | None]] = {}
        self._rows: dict[AnyTable, dict[Key, Row | None]] = {}
        self._ranges: dict[AnyTable, dict[tuple[Any, ...], LoadedRange]] = {}
        self._journal: list[tuple[AnyTable, Key, Row | None]] = []
        self._touched: dict[AnyTable, dict[Key, None]] = {}
        self._softened_rows: set[tuple[AnyTable, Key]] = set()
        self._rotations: list[AnyTable] = []

    def add_row(self, table: AnyTable, key: Key, row: Row | None) -> None:
        """Add a loaded row, or None for an absent one; rows that the batch already knows are kept."""
        base = self._base.setdefault(table, {})
        if key not in base:
            base[key] = self._rows.setdefault(table, {})[key] = self._softened(table, key, row)
        elif base[key] is _UNSEEN:
            base[key] = self._softened(table, key, row)

    def add_rows(self, table: AnyTable, keys: Iterable[Key], rows: Mapping[Key, Row]) -> None:
        """As `add_row`, for all these keys: a key that is not in `rows` is absent."""
        base, known = self._base.setdefault(table, {}), self._rows.setdefault(table, {})
        for key in keys:
            if key in rows or key in base:
                self.add_row(table, key, rows.get(key))
            else:
                base[key] = known[key] = None

    def add_range(self, wanted: Range, rows: Sequence[Row]) -> None:
        """Add a loaded range; rows that the batch has changed appear as changed."""
        table = wanted.table
        for row in rows:
            self.add_row(table, table.key_of(row), row)
        base = self._base.get(table, {})
        known = (base[table.key_of(row)] for row in rows)
        edge = table.index_key(wanted.by, rows[-1]) if rows and len(rows) >= wanted.limit else None
        loaded = LoadedRange(wanted, [row for row in known if row is not None], edge)
        for key in self._touched.get(table, ()):
            before = base.get(key)
            loaded.change(key, None if before is _UNSEEN else before, self._rows[table][key])
        self._ranges.setdefault(table, {})[same_rows(wanted)] = loaded

    def _softened(self, table: AnyTable, key: Key, row: Row | None) -> Row | None:
        if row is None:
            return None
        softened = self._soften(table, row)
        if softened is not row:
            self._softened_rows.add((table, key))
        return softened

    def soften(self, touches: Iterable[Touch]) -> None:
        """Let later decisions see the soft changes of an earlier one; they are not written as changes."""
        for touch in touches:
            table, key = touch.table, touch.key
            row = self.known(table).get(key)
            after = touch.raised(row) if row and touch.means(row) else row
            if after is row:
                continue
            if row is self._base[table][key]:
                self._base[table][key] = after
                self._softened_rows.add((table, key))
            self._rows[table][key] = after
            for loaded in self._ranges.get(table, {}).values():
                loaded.change(key, row, after)

    def known(self, table: AnyTable) -> Mapping[Key, Row | None]:
        """The rows of a table that the batch knows; None for absent rows."""
        return self._rows.get(table, {})

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""
        try:
            return self._rows[table][key]
        except KeyError:
            raise MissingRowsError(Stage(keys=((table, key),))) from None

    def range(self, wanted: Range) -> list[Row]:
        """The first rows of a range."""
        loaded = self._ranges.get(wanted.table, {}).get(same_rows(wanted))
        keys = None if loaded is None else loaded.first(wanted.limit)
        if keys is None:
            raise MissingRowsError(Stage(ranges=(wanted,)))
        rows = self.known(wanted.table)
        return [rows[key] for key in keys]

    def insert(self, table: Table[R], row: R) -> None:
        """Insert a row that must be new."""
        key = table.key_of(row)
        rows = self._rows.setdefault(table, {})
        before = rows.get(key, _UNSEEN)
        if before is _UNSEEN:
            self._base.setdefault(table, {})[key] = None
        elif before is not None:
            raise InsertMetRowError(f"{table.name} has a row under this key")
        self._set(table, key, before, row)

    def insert_all(self, table: Table[R], rows: Iterable[R]) -> None:
        """Insert rows that must be new; the same as `insert` for each of them."""
        if table in self._ranges:
            for row in rows:
                self.insert(table, row)
            return
        known, base = self._rows.setdefault(table, {}), self._base.setdefault(table, {})
        touched, journal, columns = self._touched.setdefault(table, {}), self._journal, table.key
        for row in rows:
            key = row[:columns]
            before = known.get(key, _UNSEEN)
            if before is _UNSEEN:
                base[key] = None
            elif before is not None:
                raise InsertMetRowError(f"{table.name} has a row under this key")
            journal.append((table, key, before))
            touched[key] = None
            known[key] = row

    def put(self, table: Table[R], row: R) -> None:
        """Insert or replace a row."""
        key = table.key_of(row)
        self._set(table, key, self.get(table, key), row)

    def delete(self, table: AnyTable, key: Key) -> None:
        """Delete a row."""
        self._set(table, key, self.get(table, key), None)

    def forget(self, table: AnyTable, key: Key) -> None:
        """Delete a row without loading it."""
        if key not in self.known(table):
            self._base.setdefault(table, {})[key] = _UNSEEN
            self._rows.setdefault(table, {})[key] = _UNSEEN
        self.delete(table, key)

    def rotate(self, table: AnyTable) -> None:
        """Drop the older generation of a generational table."""
        self._rotations.append(table)

    def holds(self, lock: Lock) -> bool:
        """Whether the batch holds this lock, exclusively if that is asked for."""
        return lock.name in self._held and (lock.shared or not self._held[lock.name])

    def mark(self) -> tuple[int, int]:
        """A savepoint."""
        return len(self._journal), len(self._rotations)

    def undo(self, mark: tuple[int, int]) -> None:
        """Undo all changes since a savepoint."""
        while len(self._journal) > mark[0]:
            table, key, before = self._journal.pop()
            self._put_back(table, key, before)
        del self._rotations[mark[1] :]

    def is_changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._journal or self._rotations)

    @property
    def rotations(self) -> Sequence[AnyTable]:
        """The tables to rotate."""
        return self._rotations

    def changes(self, touches: Iterable[Touch]) -> Changes:
        """The differences from the loaded rows; soft changes of rows that are written anyway are included."""
        inserts: dict[AnyTable, list[Row]] = {}
        updates: dict[AnyTable, list[Row]] = {}
        steady: dict[AnyTable, list[Row]] = {}
        deletes: dict[AnyTable, list[Key]] = {}
        apart = self._merge(touches)
        for table, keys in self._touched.items():
            base, rows = self._base[table], self._rows[table]
            for key in keys:
                before, after = base[key], rows[key]
                if after is None:
                    if before is not None:
                        deletes.setdefault(table, []).append(key)
                elif before is None:
                    inserts.setdefault(table, []).append(after)
                elif before is not after:
                    kind = steady if self._is_steady(table, key, before, after) else updates
                    kind.setdefault(table, []).append(after)
        return Changes(inserts, updates, deletes, apart, steady)

    def _is_steady(self, table: AnyTable, key: Key, before: Row, after: Row) -> bool:
        """Whether the stored row has the same indexed columns; if soft changes were applied to it at loading, it may
        not.
        """
        return before is not _UNSEEN and (table, key) not in self._softened_rows and table.is_steady(before, after)

    def _merge(self, touches: Iterable[Touch]) -> list[Touch]:
        """Merge soft changes into rows that are written anyway; returns the others."""
        apart = []
        for touch in touches:
            row = self.known(touch.table).get(touch.key)
            if row is None or row is self._base[touch.table][touch.key]:
                apart.append(touch)
            elif touch.means(row):
                self._rows[touch.table][touch.key] = touch.raised(row)
        return apart

    def _set(self, table: AnyTable, key: Key, before: Row | None, after: Row | None) -> None:
        self._journal.append((table, key, before))
        self._touched.setdefault(table, {})[key] = None
        self._rows[table][key] = after
        if table in self._ranges:
            for loaded in self._ranges[table].values():
                loaded.change(key, None if before is _UNSEEN else before, after)

    def _put_back(self, table: AnyTable, key: Key, before: Row | None) -> None:
        after = self._rows[table][key]
        if before is _UNSEEN:
            before = self._unsee(table, key, after)
        else:
            self._rows[table][key] = before
        if table in self._ranges:
            for loaded in self._ranges[table].values():
                loaded.change(key, after, before)

    def _unsee(self, table: AnyTable, key: Key, after: Row | None) -> Row | None:
        """Undo the change of a row that was not read before; a row loaded since is kept."""
        base = self._base[table][key]
        if after is None and base is not _UNSEEN:
            self._rows[table][key] = base
            return base
        del self._rows[table][key], self._base[table][key], self._touched[table][key]
        return None


LOADED_AT_ONCE = 32
"""Limit on the rows of a heavy table that are loaded before their bytes are counted."""


def in_slices(keys: Mapping[AnyTable, Iterable[Key]], first: int) -> Iterator[Mapping[AnyTable, Iterable[Key]]]:
    """All keys at once, if there are few keys of heavy tables; otherwise those keys in slices that double in length.

    The first slices show how large the rows are before more are loaded.
    """
    heavy = [(table, key) for table, wanted in keys.items() if table.heavy for key in wanted]
    if len(heavy) <= first:
        yield keys
        return
    some: dict[AnyTable, list[Key]] = {table: list(wanted) for table, wanted in keys.items() if not table.heavy}
    start, count = 0, first
    while start < len(heavy):
        for table, key in heavy[start : start + count]:
            some.setdefault(table, []).append(key)
        yield some
        some = {}
        start, count = start + count, min(2 * count, LOADED_AT_ONCE)
