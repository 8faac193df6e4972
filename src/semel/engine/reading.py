"""Snapshot reads: the rows of one instant, with the soft changes applied that are not stored yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.store.protocol import JoinedColumn, Range, Row, Snapshot
from semel.store.scopes import ProbedScopes, ScopeProbe
from semel.store.table import Key, Table

R = TypeVar("R", bound=tuple[Any, ...])


class Reading:
    """A snapshot read of the store."""

    def __init__(self, snapshot: Snapshot, soft: SoftChanges, now: Now) -> None:
        self._snapshot = snapshot
        self._soft = soft
        self.now = now

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""
        row = self._snapshot.get(table, key)
        return None if row is None else self._soft.over(table, row)

    def find(self, table: Table[R], keys: Sequence[Key]) -> Mapping[Key, R]:
        """Rows by their keys, in one query; absent keys are left out."""
        found = self._snapshot.find(table, keys)
        return {key: self._soft.over(table, row) for key, row in found.items()}

    def latest(self, table: Table[R], prefixes: Sequence[Key], below: Any) -> Mapping[Key, R]:
        """For each key prefix, the last row whose last key column is below a limit; in one query."""
        found = self._snapshot.latest(table, prefixes, below)
        return {prefix: self._soft.over(table, row) for prefix, row in found.items()}

    def earliest(self, table: Table[R], prefixes: Sequence[Key], least: Any) -> Mapping[Key, R]:
        """For each key prefix, the first row whose last key column is at least a limit; in one query."""
        found = self._snapshot.earliest(table, prefixes, least)
        return {prefix: self._soft.over(table, row) for prefix, row in found.items()}

    def distinct(self, wanted: Range) -> Sequence[Any]:
        """The distinct values of the column after the prefix of a range, in order."""
        return self._snapshot.distinct(wanted)

    def range(self, wanted: Range) -> Sequence[Row]:
        """The rows of a range."""
        return [self._soft.over(wanted.table, row) for row in self._snapshot.range(wanted)]

    def stored(self, wanted: Range) -> Sequence[Row]:
        """As `range`, without soft changes, which may have moved rows in their index: for reading an index by pages."""
        return self._snapshot.range(wanted)

    def joined(self, wanted: Range, column: str, between: bytes) -> JoinedColumn | None:
        """One column of bytes of the rows of a range, joined in their order; without soft changes."""
        return self._snapshot.joined(wanted, column, between)

    def keys(self, wanted: Range) -> Sequence[Key]:
        """The keys of the rows of a range, without their payloads."""
        return self._snapshot.keys(wanted)

    def keys_each(self, wanted: Sequence[Range]) -> Sequence[Sequence[Key]]:
        """As `keys` for several ranges, in one round trip."""
        return self._snapshot.keys_each(wanted)

    def probe(self, scopes: Range, probes: Sequence[ScopeProbe]) -> ProbedScopes:
        """For each row of a range, the rows that these probes find; in one query for each."""
        found = self._snapshot.probe(scopes, probes)
        rows = [
            {key: self._soft.over(probe.table, row) for key, row in some.items()}
            for probe, some in zip(probes, found.rows, strict=True)
        ]
        return found._replace(rows=rows)

    def keys_ending(self, table: Table[Any], last: Any, most_rows: int) -> Sequence[Key] | None:
        """All keys of a log table whose last column has this value; None if the table has more rows than about
        `most_rows`.
        """
        return self._snapshot.keys_ending(table, last, most_rows)
