"""Look-ups of a key whose scope is not known: the rows of other tables below each row of a range, in one round trip.

Many rows are stored under a scope and a key of their own, such as a receipt under its stream and its idempotency key.
A caller that knows the key alone probes scope after scope. The store does it where the rows are, and returns nothing of
a scope without a match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from semel.store.table import Key, Table

if TYPE_CHECKING:
    from semel.store.protocol import Range


class ScopeProbe(NamedTuple):
    """One look-up in each scope: the row whose key is the key of the scope, followed by `rest`."""

    table: Table[Any]
    rest: Key
    either: Sequence[tuple[str, Any]] = ()
    """Columns of which one must have its value, so that large rows that are not meant are not read."""
    floor: tuple[str, int] | None = None
    """A column of the scope, and a number: a scope in which it is lower surely has no match and may be passed over."""

    @property
    def chosen(self) -> Sequence[tuple[str, Any]]:
        """What a statement may choose rows by: not in a generational table, where a younger row that is not meant hides
        an older one that is.
        """
        return () if self.table.generational else self.either

    def means(self, row: Any) -> bool:
        """Whether one of the columns has its value."""
        return not self.either or any(getattr(row, column) == value for column, value in self.either)


class ProbedScopes(NamedTuple):
    """The scopes of one page that were probed, and what was found."""

    tried: int
    last: Key
    """The position of the last scope in the index of the range; empty if there was no scope."""
    rows: Sequence[Mapping[Key, Any]]
    """The rows of each probe, by key."""


class ScopedSnapshot(Protocol):
    """The part of a snapshot that finds rows by a part of their key."""

    def probe(self, scopes: Range, probes: Sequence[ScopeProbe]) -> ProbedScopes:
        """For each row of a range, in order, the rows that these probes find."""

    def keys_ending(self, table: Table[Any], last: Any, most_rows: int) -> Sequence[Key] | None:
        """All keys of a log table whose last column has this value; None, and nothing is read, if the table has more
        than about `most_rows` rows.

        Every key is compared, which takes about 50 ms for a million.
        """
