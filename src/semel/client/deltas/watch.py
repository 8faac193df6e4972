"""Live queries over rows, and lost writes as they come.

A watched query keeps the ids of its result and 16 bytes for each row. Changes that come while the application is busy
are not queued: the next change set is the difference to the one before, however many changes there were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semel.client.deltas.drafts import row_id, table_name, value_texts
from semel.client.deltas.follow import ReplicaFollower
from semel.client.deltas.iterators import ReplicaIterator
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.values import LostWrite, RowChanges
from semel.client.transport.network import Bell, Network
from semel.kernel.hashes import json_text
from semel.kernel.json.canonical import parse

Predicate = Callable[[Mapping[str, Any]], bool]
Where = Predicate | Mapping[str, Any] | None
"""A function of a row's columns, or the values that columns must have; None for all rows."""


def predicate_of(where: Where) -> Predicate:
    """The function of a condition. Raises ValueError or TypeError for values that no column can have."""
    if where is None:
        return lambda columns: True
    if not isinstance(where, Mapping):
        return where
    texts = value_texts(where)
    return lambda columns: all(json_text(columns.get(name)) == text for name, text in texts.items())


class RowWatch(ReplicaIterator[RowChanges]):
    """Iterator over the changes of a query's result: `async for changes in db.watch("todos", {"done": False})`."""

    def __init__(
        self, local: LocalReplica, network: Network, table: str, where: Where, follower: ReplicaFollower | None
    ) -> None:
        super().__init__(network, local.observers.bells)
        self._local = local
        self._table = table_name(table)
        self._matches = predicate_of(where)
        self._follower = follower
        self._changed = local.observers.watch(table)
        self._result: dict[str, bytes] = {}
        """Digests of the matching rows."""
        self._is_first = True

    async def aclose(self) -> None:
        """End it."""
        await super().aclose()
        if self._follower is not None:
            await self._follower.aclose()

    async def _step(self, bell: Bell) -> None:
        """Evaluate the query again; if its result is the same, wait for changed rows, in sync if it follows."""
        changes = self._evaluated()
        if self._is_first or changes.added or changes.changed or changes.removed:
            self._is_first = False
            self._ready.append(changes)
        elif self._follower is not None:
            await self._follower.advance_silently()
        else:
            await self._woken(bell)

    def _evaluated(self) -> RowChanges:
        with self._local.file.own_reading():
            rows = self._changed.take()
            try:
                if rows is None:
                    return self._compared(self._local.scan(self._table), is_whole=True)
                return self._compared(self._local.found(self._table, rows), is_whole=False)
            except BaseException:
                self._changed.note(None)  # the next evaluation reads the whole table
                raise

    def _compared(self, rows: Iterable[tuple[str, str | None]], *, is_whole: bool) -> RowChanges:
        """The difference of the result to these rows, which it has then; `is_whole` if other rows do not exist."""
        added: dict[str, Mapping[str, Any]] = {}
        changed: dict[str, Mapping[str, Any]] = {}
        removed: list[str] = []
        digests: dict[str, bytes] = {}
        for row, text in rows:
            name, before = row_id(row), self._result.get(row_id(row))
            columns: Any = None if text is None else parse(text.encode())
            if text is not None and self._matches(columns):
                digests[name] = hashlib.blake2b(text.encode(), digest_size=16).digest()
                if before is None:
                    added[name] = columns
                elif before != digests[name]:
                    changed[name] = columns
            elif before is not None:
                removed.append(name)
        if is_whole:
            gone = set(removed)
            removed += [name for name in self._result if name not in digests and name not in gone]
        for name in removed:
            del self._result[name]
        self._result |= digests
        return RowChanges(added, changed, tuple(removed))


class LostWriteWatch(ReplicaIterator[LostWrite]):
    """Iterator over own writes that lost: `async for lost in db.lost_writes()`.

    A loss is removed from the file when the next one is asked for, so one that was being handled when the process died
    is handed over again.
    """

    def __init__(self, local: LocalReplica, network: Network) -> None:
        super().__init__(network, local.observers.bells)
        self._local = local
        self._given = 0

    async def _step(self, bell: Bell) -> None:
        if self._given:
            with self._local.file.own_transaction():
                self._local.lost.remove(self._given)
        found = self._local.lost.first(1, self._given)
        if not found:
            await self._woken(bell)
            return
        [(self._given, lost)] = found
        self._ready.append(lost)
