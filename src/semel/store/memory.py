"""The in-memory store, with the same protocol: for simulation and for users' own tests.

The rows are lost when the process ends. A commit is atomic for readers: an open snapshot keeps the rows that later
commits replace.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from semel.store.protocol import (
    AnyTable,
    Changes,
    JoinedColumn,
    LoadedRows,
    Lock,
    Range,
    Row,
    StoreError,
    Touch,
)
from semel.store.scopes import ProbedScopes, ScopeProbe
from semel.store.sole_node import SoleNode
from semel.store.table import Key, Table, bytes_of
from semel.store.usage import StoreUsage

R = TypeVar("R", bound=tuple[Any, ...])


class _Heap:
    """The rows of one table, and the sorted positions of each index."""

    def __init__(self, table: AnyTable) -> None:
        self.table = table
        self.rows: dict[Key, Row] = {}
        self.older: set[Key] = set()
        self.places: dict[str, list[Key]] = {index: [] for index in ("", *table.indexes)}

    def set(self, key: Key, row: Row | None) -> None:
        old = self.rows.pop(key, None)
        if old is not None:
            for index, places in self.places.items():
                del places[bisect_left(places, self.table.index_key(index, old))]
        if row is not None:
            self.rows[key] = row
            for index, places in self.places.items():
                insort(places, self.table.index_key(index, row))

    def scan(self, wanted: Range) -> Iterator[Row]:
        if not self.table.has_order(wanted.by):
            raise StoreError(f"{self.table.name} can be read by key only")
        places = self.places[wanted.by]
        low = bisect_left(places, wanted.prefix + wanted.start)
        step = range(low, len(places))
        if wanted.reverse:
            high = low
            while high < len(places) and wanted.holds(places[high]):
                high += 1
            step = range(high - 1, low - 1, -1)
        names = self.table.ordering(wanted.by)
        for at in step:
            if not wanted.holds(places[at]):
                return
            yield self.rows[self._key_at(names, places[at])]

    def _key_at(self, names: tuple[str, ...], place: Key) -> Key:
        return tuple(place[names.index(name)] for name in self.table.key_columns)


class MemoryStore(SoleNode):
    """The in-memory store. It has one lane; readers do not wait."""

    lanes = 1
    readers = 4

    def __init__(self, tables: Sequence[AnyTable], wall_ms: Callable[[], int]) -> None:
        self._heaps = {table: _Heap(table) for table in tables}
        self._wall_ms = wall_ms
        self._guard = threading.RLock()
        self._writing = threading.Lock()
        self._snapshots: set[_MemorySnapshot] = set()

    def begin(self, locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> _MemoryTx:
        """Begin a transaction. Only one can be open, so it holds every named lock."""
        self._writing.acquire()
        return _MemoryTx(self, self._wall_ms())

    def read(self) -> _MemorySnapshot:
        """A snapshot of the current rows."""
        return _MemorySnapshot(self, self._wall_ms())

    def tidy(self) -> None:
        """Does nothing: there is no housekeeping."""

    def usage(self) -> StoreUsage:
        """The rows of the log tables; there is no file."""
        return StoreUsage(log_rows={table.name: len(heap.rows) for table, heap in self._heaps.items() if table.log})

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class _MemoryTx:
    """Collects changes, and applies all of them at the commit."""

    def __init__(self, store: MemoryStore, now_ms: int) -> None:
        self._store = store
        self._steps: list[Callable[[], None]] = []
        self._flushed: dict[tuple[AnyTable, Key], Row | None] = {}
        self._open = True
        self.now_ms = now_ms

    def load(self, keys: Mapping[AnyTable, Iterable[Key]], ranges: Sequence[Range]) -> LoadedRows:
        heaps = self._store._heaps
        rows = {
            table: {key: row for key in wanted if (row := self._row(table, key)) is not None}
            for table, wanted in keys.items()
        }
        return LoadedRows(rows, [_first(heaps[wanted.table].scan(wanted), wanted.limit) for wanted in ranges])

    def _row(self, table: AnyTable, key: Key) -> Row | None:
        return self._flushed[table, key] if (table, key) in self._flushed else self._store._heaps[table].rows.get(key)

    def flush(self, changes: Changes) -> None:
        self._check(changes)
        self._flushed.update(((table, key), None) for table, gone in changes.deletes.items() for key in gone)
        narrow = [
            (table, [self._narrowed(table, columns, row) for row in rows])
            for table, groups in changes.narrow.items()
            for columns, rows in groups
        ]
        written = [*changes.updates.items(), *changes.steady.items(), *narrow, *changes.inserts.items()]
        self._flushed.update(((table, table.key_of(row)), row) for table, some in written for row in some)
        for table, gone in changes.deletes.items():
            self._steps += [partial(self._set, table, key, None) for key in gone]
        for table, rows in written:
            self._steps += [partial(self._set, table, table.key_of(row), row) for row in rows]
        self._steps += [partial(self._touch, touch) for touch in changes.touches]

    def _narrowed(self, table: AnyTable, columns: tuple[str, ...], row: Row) -> Row:
        """The stored row with these columns of another one: what is not named does not change."""
        before = self._row(table, table.key_of(row))
        if before is None:
            raise StoreError(f"a narrow update of {table.name} found no row")
        return before._replace(**{column: row[table.position(column)] for column in columns})

    def _check(self, changes: Changes) -> None:
        try:
            for table, rows in (*changes.inserts.items(), *changes.replaced()):
                for row in rows:
                    table.check(row)
        except ValueError as error:
            raise StoreError(str(error)) from error
        for table, rows in changes.inserts.items():
            keys = [table.key_of(row) for row in rows]
            gone = changes.deletes.get(table, ())
            if len(set(keys)) < len(keys) or any(self._row(table, key) is not None for key in keys if key not in gone):
                raise StoreError(f"an insert into {table.name} found an existing row")

    def rotate(self, table: AnyTable) -> None:
        for key in self._store._heaps[table].older:
            self._flushed.setdefault((table, key), None)
        self._steps.append(partial(self._rotate, table))

    def commit(self) -> tuple[()]:
        with self._store._guard:
            for step in self._steps:
                step()
        self._end()
        return ()

    def check(self) -> None:
        """Nothing to find out: the rows are here."""

    def rollback(self) -> None:
        self._end()

    def _set(self, table: AnyTable, key: Key, row: Row | None) -> None:
        heap = self._store._heaps[table]
        self._keep_older(heap)
        for snapshot in self._store._snapshots:
            snapshot._kept.setdefault(table, {}).setdefault(key, heap.rows.get(key))
        heap.set(key, row)
        heap.older.discard(key)

    def _touch(self, touch: Touch) -> None:
        heap = self._store._heaps[touch.table]
        row = heap.rows.get(touch.key)
        row = row if row is not None and touch.means(row) else None
        known = None if row is None else getattr(row, touch.column)
        if row is not None and known is not None and known < touch.value:
            was_older = touch.key in heap.older
            self._set(touch.table, touch.key, touch.raised(row))
            if was_older:
                heap.older.add(touch.key)

    def _rotate(self, table: AnyTable) -> None:
        heap = self._store._heaps[table]
        self._keep_older(heap)
        for key in list(heap.older):
            self._set(table, key, None)
        heap.older = set(heap.rows)

    def _keep_older(self, heap: _Heap) -> None:
        if heap.table.generational:
            for snapshot in self._store._snapshots:
                snapshot._older.setdefault(heap.table, frozenset(heap.older))

    def _end(self) -> None:
        self._steps.clear()  # they refer back to this transaction
        if self._open:
            self._open = False
            self._store._writing.release()


class _MemorySnapshot:
    def __init__(self, store: MemoryStore, now_ms: int) -> None:
        self._store = store
        self._kept: dict[AnyTable, dict[Key, Row | None]] = {}
        self._older: dict[AnyTable, frozenset[Key]] = {}
        self.now_ms = now_ms

    def __enter__(self) -> _MemorySnapshot:
        with self._store._guard:
            self._store._snapshots.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._store._guard:
            self._store._snapshots.discard(self)

    def get(self, table: Table[R], key: Key) -> R | None:
        with self._store._guard:
            kept = self._kept.get(table, {})
            return kept[key] if key in kept else self._store._heaps[table].rows.get(key)

    def find(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        found = ((key, self.get(table, key)) for key in keys)
        return {key: row for key, row in found if row is not None}

    def latest(self, table: Table[R], prefixes: Sequence[Key], below: Any) -> dict[Key, R]:
        found = ((prefix, self.range(Range(table, "", prefix, 1, stop=(below,), reverse=True))) for prefix in prefixes)
        return {prefix: rows[0] for prefix, rows in found if rows}

    def earliest(self, table: Table[R], prefixes: Sequence[Key], least: Any) -> dict[Key, R]:
        found = ((prefix, self.range(Range(table, "", prefix, 1, start=(least,)))) for prefix in prefixes)
        return {prefix: rows[0] for prefix, rows in found if rows}

    def distinct(self, wanted: Range) -> list[Any]:
        place = len(wanted.prefix)
        rows = self.range(wanted._replace(limit=sys.maxsize))
        values = dict.fromkeys(wanted.table.index_key(wanted.by, row)[place] for row in rows)
        return list(values)[: wanted.limit]

    def range(self, wanted: Range) -> list[Row]:
        table = wanted.table
        with self._store._guard:
            kept = self._kept.get(table, {})
            if not kept:
                return _first(self._store._heaps[table].scan(wanted), wanted.limit)
            rows = [row for row in self._store._heaps[table].scan(wanted) if table.key_of(row) not in kept]
            old = [row for row in kept.values() if row is not None]
        rows += [row for row in old if wanted.holds(table.index_key(wanted.by, row))]
        rows.sort(key=lambda row: table.index_key(wanted.by, row), reverse=wanted.reverse)
        return rows[: wanted.limit]

    def joined(self, wanted: Range, column: str, between: bytes) -> JoinedColumn | None:
        rows = self.range(wanted)
        if not rows:
            return None
        last = wanted.table.key_of(rows[-1])[-1]
        return JoinedColumn(last, len(rows), between.join(getattr(row, column) for row in rows))

    def keys(self, wanted: Range) -> list[Key]:
        return [wanted.table.key_of(row) for row in self.range(wanted)]

    def keys_each(self, wanted: Sequence[Range]) -> list[list[Key]]:
        return [self.keys(one) for one in wanted]

    def probe(self, scopes: Range, probes: Sequence[ScopeProbe]) -> ProbedScopes:
        rows = self.range(scopes)
        keys = [scopes.table.key_of(row) for row in rows]
        found = [
            {
                key: row
                for key, row in self.find(probe.table, [key + probe.rest for key in keys]).items()
                if probe.means(row)
            }
            for probe in probes
        ]
        return ProbedScopes(len(rows), scopes.table.index_key(scopes.by, rows[-1]) if rows else (), found)

    def keys_ending(self, table: AnyTable, last: Any, most_rows: int) -> list[Key] | None:
        keys = self.page_keys(table, 0, None, most_rows + 1)
        return None if len(keys) > most_rows else [key for key in keys if key[-1] == last]

    def page(self, table: Table[R], age: int, behind: Key | None, limit: int, most_bytes: int) -> list[R]:
        rows: list[R] = []
        for key in self.page_keys(table, age, behind, limit):
            row = self.get(table, key)
            assert row is not None
            rows.append(row)
            most_bytes -= bytes_of(row)
            if most_bytes <= 0:
                break
        return rows

    def page_keys(self, table: AnyTable, age: int, behind: Key | None, limit: int) -> list[Key]:
        with self._store._guard:
            heap = self._store._heaps[table]
            older = self._older.get(table, heap.older)
            rows = {**heap.rows, **self._kept.get(table, {})}
            keys = [key for key, row in rows.items() if row is not None and (key in older) == (age == 1)]
        return sorted(key for key in keys if behind is None or key > behind)[:limit]


def _first(rows: Iterator[Row], limit: int) -> list[Row]:
    return [row for row, _ in zip(rows, range(limit), strict=False)]
