"""The parts of a check of the store that know no surface: faults, bounded reading, and the tables themselves.

A check reads one snapshot, so it sees the rows of one instant whatever a server writes meanwhile. It reads by pages,
and memory does not depend on the size of the data: what needs a set of keys is done in several passes, each over a part
of the keys. Nothing is changed.

A check computes what the rows must be and calls none of the rules that wrote them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from semel.store.protocol import AnyTable, Range, Snapshot, StoreError
from semel.store.table import Key, Table, TablePart, encoded, parts_of

PAGE_ROWS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
PART_TOKENS = 1_000_000
"""The number of keys that one pass holds in memory."""
SHOWN_BYTES = 24
"""Bytes of a key that a fault shows."""

R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")


class StoreFault(NamedTuple):
    """One thing that is wrong with a store."""

    surface: str
    """The surface; `store` for what all surfaces share."""
    table: str
    where: str
    """The key of the row, or another place; empty for the table as a whole."""
    what: str
    """One sentence."""


class StoreWalk:
    """A snapshot that is read page by page; `tell` is called with the number of rows of every page."""

    def __init__(self, snapshot: Snapshot, tell: Callable[[int], None] = lambda _: None) -> None:
        self._snapshot = snapshot
        self._tell = tell
        self.rows_read = 0

    @property
    def now_ms(self) -> int:
        """The time of the snapshot."""
        return self._snapshot.now_ms

    def rows(self, table: Table[R], age: int = 0) -> Iterator[R]:
        """All rows of one generation of a table."""
        for page in self.pages(table, age):
            yield from page

    def pages(self, table: Table[R], age: int = 0) -> Iterator[Sequence[R]]:
        """As `rows`, by pages."""
        behind: Key | None = None
        while page := self._snapshot.page(table, age, behind, PAGE_ROWS, PAGE_BYTES):
            self._count(len(page))
            yield page
            behind = table.key_of(page[-1])

    def keys(self, table: AnyTable, age: int = 0) -> Iterator[Key]:
        """All keys of one generation of a table, without the rest of their rows."""
        behind: Key | None = None
        while page := self._snapshot.page_keys(table, age, behind, PAGE_ROWS):
            self._count(len(page))
            yield from page
            behind = page[-1]

    def keys_below(self, table: AnyTable, prefix: Key) -> Iterator[Key]:
        """The keys of an ordered table that have this prefix."""
        start: Key = ()
        while page := self._snapshot.keys(Range(table, "", prefix, PAGE_ROWS, start=start)):
            self._count(len(page))
            yield from page
            start = _after(page[-1][len(prefix) :])

    def range(self, wanted: Range) -> Sequence[Any]:
        """The rows of a range that the caller bounds."""
        found = self._snapshot.range(wanted)
        self._count(len(found))
        return found

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key; not of a log table, whose look-up would read all of it."""
        assert not table.log
        self._count(1)
        return self._snapshot.get(table, key)

    def find(self, table: Table[R], keys: Iterable[Key]) -> dict[Key, R]:
        """Rows by their keys; not of a log table."""
        assert not table.log
        wanted = list(dict.fromkeys(keys))
        found = dict(self._snapshot.find(table, wanted)) if wanted else {}
        self._count(len(found))
        return found

    def _count(self, rows: int) -> None:
        self.rows_read += rows
        self._tell(rows)


Check = Callable[[StoreWalk], Iterator[StoreFault]]
"""Yields the faults of one subject."""


def fault(table: AnyTable, where: Iterable[object] | str, what: str) -> StoreFault:
    """A fault of a table, for which the caller's surface is filled in later."""
    return StoreFault("", table.name, where if isinstance(where, str) else shown_key(where), what)


def shown_key(values: Iterable[object]) -> str:
    """A key as text: readable bytes as they are, others in hexadecimal digits, both shortened."""
    return "/".join(map(_shown, values))


def _shown(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    plain = value[1:] if value[:1] == b"\x00" else value
    cut = plain[:SHOWN_BYTES]
    is_text = cut.isascii() and cut.decode("ascii", "replace").isprintable()
    return (cut.decode() if is_text else cut.hex()) + ("..." if len(plain) > len(cut) else "")


def check_tables(tables: Sequence[AnyTable]) -> Iterator[tuple[AnyTable, Check]]:
    """The check of each table: rows can be read, fit their columns, and have keys in order, each once."""
    for part in parts_of(tables):
        yield part.table, _checked(part)


def _checked(part: TablePart) -> Check:
    def check(walk: StoreWalk) -> Iterator[StoreFault]:
        table, last, count = part.table, None, 0
        for row in walk.rows(table, part.age):
            count += 1
            key = table.key_of(row)
            try:
                table.check(row)
            except ValueError as error:
                column = str(error).partition(" cannot hold ")[0]
                yield fault(table, key, f"{column} has a value that the column cannot have.")
            else:
                if table.checksum_of is not None and table.checksum_of(row) != row[-1]:
                    yield fault(table, key, "The row does not have its checksum: a column was changed.")
            if not table.log and last is not None and not last < key:
                yield fault(table, key, "The row is out of the order of its keys, or there twice.")
            last = key
        if table.log and count:
            yield from _repeated(walk, part, count)

    return check


def _repeated(walk: StoreWalk, part: TablePart, count: int) -> Iterator[StoreFault]:
    """Keys that a log table has twice; such a table has no index that would refuse them."""
    for number in range(passes := passes_of(count)):
        seen: set[int] = set()
        for key in walk.keys(part.table, part.age):
            token = token_of(key)
            if token % passes == number:
                if token in seen:
                    yield fault(part.table, key, "The key is there twice.")
                seen.add(token)


def token_of(values: Iterable[Any]) -> int:
    """A number that stands for values; different values have different numbers, but for a chance of 2**-64."""
    return int.from_bytes(blake2b(b"".join(map(encoded, values)), digest_size=8).digest(), "big")


def passes_of(count: int) -> int:
    """The number of passes in which this many keys are looked at."""
    return -(-count // PART_TOKENS) or 1


def missing_of(
    wanted: Callable[[], Iterator[tuple[Key, T]]], held: Callable[[], Iterator[Key]], count: int
) -> Iterator[tuple[Key, T]]:
    """What of `wanted` is not in `held`; both are read once in each pass. `count` is the size of `held`."""
    for number in range(passes := passes_of(count)):
        tokens = {token for key in held() if (token := token_of(key)) % passes == number}
        for key, value in wanted():
            token = token_of(key)
            if token % passes == number and token not in tokens:
                yield key, value


def in_groups(items: Iterable[T], size: int = PAGE_ROWS) -> Iterator[list[T]]:
    """The items in lists of at most this many."""
    one = iter(items)
    while group := list(islice(one, size)):
        yield group


_FLAWED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, AssertionError, ArithmeticError)


def run_check(surface: str, subject: str, check: Check, walk: StoreWalk) -> Iterator[StoreFault]:
    """The faults of one check, with its surface; rows that cannot be read or understood are a fault too."""
    try:
        for found in check(walk):
            yield found._replace(surface=surface)
    except StoreError as error:
        yield StoreFault(surface, subject, "", f"It cannot be read to its end. {error}")
    except _FLAWED as error:
        yield StoreFault(surface, subject, "", f"A row cannot be understood: {type(error).__name__}.")
    except struct.error as error:
        yield StoreFault(surface, subject, "", f"A packed column has the wrong length: {error}.")


def _after(key: Key) -> Key:
    """The least key above this one; its last column is a number or bytes."""
    last = key[-1]
    return (*key[:-1], last + b"\x00" if isinstance(last, bytes) else last + 1)
