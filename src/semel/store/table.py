"""Table declarations: a named tuple for the row, its first columns the key, and named indexes.

A column is a signed 64-bit number, an unsigned one, or bytes; never text, so that any name from a client is stored
unchanged and order is bytewise everywhere. Every store generates its statements from this declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from semel.store.row_checksum import COLUMN, ChecksumOf, row_checksum, with_checksums

Key = tuple[Any, ...]
R = TypeVar("R", bound=tuple[Any, ...])


class ColumnKind(Enum):
    """The type of a column."""

    I64 = "i64"
    U64 = "u64"
    BYTES = "bytes"


U64 = Annotated[int, ColumnKind.U64]
"""A number from 0 to 2**64 - 1; stored as eight bytes in big-endian order if a store has no unsigned numbers."""


class TableColumn(NamedTuple):
    """One column of a table."""

    name: str
    kind: ColumnKind
    nullable: bool = False


class Below(NamedTuple):
    """The condition of a partial index: a column is below a limit."""

    column: str
    bound: int | bytes


class Above(NamedTuple):
    """The condition of a partial index: a column of unsigned numbers is above a limit."""

    column: str
    bound: int


class TableLayout(NamedTuple):
    """The schema of a table, as migrations define it and as declarations must match."""

    name: str
    columns: tuple[TableColumn, ...]
    key: int
    indexes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    generational: bool = False
    bulky: bool = False
    partial: Mapping[str, Below | Above] = MappingProxyType({})
    """The conditions of partial indexes, by their names."""
    log: bool = False


class Table(Generic[R]):
    """A declared table. `generational` rows are dropped by age, a generation at once; `bulky` rows hold payloads.

    A few rows of a `heavy` table may already be too large to hold at once, so they are read in small slices. A
    `partial` index holds only some of the rows, so that the others cost nothing there. A range benefits if its bounds
    exclude the other rows; any other range over the index is correct, but slow.

    The rows of a `log` table are small and found by their whole key, whose values arrive in no order. A store may keep
    them in order of arrival, without a key tree, so there are no ranges by key; ranges over a named index are possible.

    The rows of a `cached` table are few and needed by almost every write. A store that one process alone writes to may
    keep them in memory.

    A `recent` row, one that was changed and meets this condition, is changed again soon. A store that one process alone
    writes to may keep such rows in memory. It may also remember below which position an index of `floors` has no row: a
    range there is asked for by almost every write, and nearly always empty.

    A table whose last column is `checksum` has a checksum in each row, over all columns but those in `unsummed`:
    columns that have soft changes, and columns that a check compares with other rows. If only some rows have soft
    changes, `unsummed_if` says which. Where the time of each write counts, the surface makes the checksum with its own
    function, `checksum`, when it makes the row; otherwise the engine does.
    """

    def __init__(
        self,
        name: str,
        row: type[R],
        key: int,
        indexes: Mapping[str, tuple[str, ...]] | None = None,
        *,
        generational: bool = False,
        bulky: bool = False,
        heavy: bool = False,
        partial: Mapping[str, Below | Above] | None = None,
        log: bool = False,
        cached: bool = False,
        recent: Below | None = None,
        floors: tuple[str, ...] = (),
        unsummed: tuple[str, ...] = (),
        unsummed_if: Callable[[R], bool] | None = None,
        checksum: ChecksumOf | None = None,
    ) -> None:
        self.name = name
        self.row = row
        self.key = key
        self.indexes = MappingProxyType(dict(indexes or {}))
        self.generational = generational
        self.bulky = bulky or heavy
        self.heavy = heavy
        self.log = log
        self.cached = cached
        self.recent = recent
        self.floors = floors
        self.partial = MappingProxyType(dict(partial or {}))
        self.columns = tuple(_column(*hint) for hint in get_type_hints(row, include_extras=True).items())
        self.key_columns = tuple(column.name for column in self.columns[:key])
        if any(column.nullable for column in self.columns[:key]):
            raise TypeError(f"table {name}: a key column cannot be nullable")
        indexed = {name for named in self.indexes.values() for name in named}
        if any(column.nullable and column.name in indexed for column in self.columns):
            raise TypeError(f"table {name}: an indexed column cannot be nullable")
        above = {condition.column for condition in self.partial.values() if isinstance(condition, Above)}
        if any(column.name in above and column.kind is not ColumnKind.U64 for column in self.columns):
            raise TypeError(f"table {name}: only an unsigned column can be above the limit of a partial index")
        if cached and (generational or log or self.bulky):
            raise TypeError(f"table {name}: only an ordinary table of small rows can be cached")
        if recent is not None and (generational or log or cached):
            raise TypeError(f"table {name}: only rows of an ordinary table can be recent")
        if generational and self.indexes:
            raise TypeError(f"table {name}: a generational table cannot have indexes")
        has_checksum = self.columns[-1].name == COLUMN
        self.checksum_of = checksum or (row_checksum(self.columns, unsummed, unsummed_if) if has_checksum else None)
        """The checksum of a row; None if the rows have none."""
        self.is_summed_late = has_checksum and checksum is None
        """Whether the engine computes the checksums."""
        self._positions = {column.name: place for place, column in enumerate(self.columns)}
        self._indexed = tuple(sorted(self._positions[column] for column in indexed))
        self._index_keys = {index: self._getter(self.ordering(index)) for index in ("", *self.indexes)}

    def __repr__(self) -> str:
        return f"Table({self.name})"

    @property
    def shape(self) -> TableLayout:
        """This declaration as a `TableLayout`."""
        return TableLayout(
            self.name, self.columns, self.key, self.indexes, self.generational, self.bulky, self.partial, self.log
        )

    def has_order(self, by: str) -> bool:
        """Whether there are ranges over this index ("" is the key)."""
        return not self.generational and not (self.log and by == "")

    def key_of(self, row: R) -> Key:
        """The key of a row."""
        return row[: self.key]

    def ordering(self, index: str) -> tuple[str, ...]:
        """The columns that order an index, followed by the key so that each position is unique; "" is the key
        itself.
        """
        if index == "":
            return self.key_columns
        named = self.indexes[index]
        return named + tuple(name for name in self.key_columns if name not in named)

    @property
    def loose_columns(self) -> tuple[str, ...]:
        """The columns that are in no key and no index."""
        return tuple(
            column.name for place, column in enumerate(self.columns) if place >= self.key and place not in self._indexed
        )

    def index_key(self, index: str, row: R) -> Key:
        """The position of a row in an index."""
        return self._index_keys[index](row)  # type: ignore[no-any-return]

    def check(self, row: R) -> None:
        """Refuse a value that does not fit its column."""
        for column, value in zip(self.columns, row, strict=True):
            if not _fits(column, value):
                raise ValueError(f"{self.name}.{column.name} cannot hold {type(value).__name__} {str(value)[:32]}")

    def summed(self, rows: Sequence[R]) -> Sequence[R]:
        """These rows with their checksums, if the engine computes them."""
        if self.checksum_of is None or not self.is_summed_late:
            return rows
        return with_checksums(self.row, self.checksum_of, rows)

    def is_steady(self, before: R, after: R) -> bool:
        """Whether a change leaves every indexed column unchanged."""
        return all(before[place] == after[place] for place in self._indexed)

    def position(self, column: str) -> int:
        """The index of a column in the row."""
        return self._positions[column]

    def _getter(self, columns: tuple[str, ...]) -> Any:
        places = [self._positions[name] for name in columns]
        if len(places) == 1:
            return lambda row, place=places[0]: (row[place],)
        return itemgetter(*places)


def bytes_of(row: tuple[Any, ...]) -> int:
    """The approximate size of a row in bytes."""
    return sum(len(value) for value in row if isinstance(value, bytes))


def encoded(value: int | bytes | None) -> bytes:
    """A value in bytes, such that different rows, or sequences of rows, never have the same bytes."""
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i" + value.to_bytes(9, "big", signed=True)  # wide enough for signed and unsigned 64-bit numbers
    return b"b" + len(value).to_bytes(8, "big") + value


_BOUNDS = {ColumnKind.I64: (-(2**63), 2**63 - 1), ColumnKind.U64: (0, 2**64 - 1)}


def _fits(column: TableColumn, value: Any) -> bool:
    if value is None:
        return column.nullable
    if column.kind is ColumnKind.BYTES:
        return isinstance(value, bytes)
    low, high = _BOUNDS[column.kind]
    return isinstance(value, int) and low <= value <= high


def _column(name: str, hint: Any) -> TableColumn:
    nullable = False
    if get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        nullable = len(members) < len(get_args(hint))
        hint = members[0] if len(members) == 1 else hint
    if get_origin(hint) is Annotated:
        return TableColumn(name, next(mark for mark in get_args(hint) if isinstance(mark, ColumnKind)), nullable)
    if hint is int:
        return TableColumn(name, ColumnKind.I64, nullable)
    if hint is bytes:
        return TableColumn(name, ColumnKind.BYTES, nullable)
    raise TypeError(f"column {name}: the type must be int, U64 or bytes")


class TablePart(NamedTuple):
    """One generation of a table: 0 is the younger, or all of an ordinary table; 1 is the older."""

    table: Table[Any]
    age: int

    @property
    def name(self) -> str:
        """The name of this part in reports."""
        if not self.table.generational:
            return self.table.name
        return f"{self.table.name} ({'older' if self.age else 'younger'})"


def parts_of(tables: Sequence[Table[Any]]) -> list[TablePart]:
    """All generations of these tables, in the order in which they are written: the older generation first."""
    return [TablePart(table, age) for table in tables for age in ((1, 0) if table.generational else (0,))]
