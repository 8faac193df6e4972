"""One log table with its key index: finds rows by key through candidate places, and compares every candidate.

`LogTable` is the committed state: it changes only after a COMMIT has succeeded. `RecentPlaces` holds the keys that one
open transaction has appended. A rollback drops it, so the index never has an entry of a row that was not stored.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count

import apsw

from semel.store.protocol import Row
from semel.store.sqlite.key_index import KeyIndex
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.moved_keys import MovedKeys
from semel.store.sqlite.query import fetch
from semel.store.table import Key

HashKey = Callable[[Key], int]
"""A hash of 64 bits, signed, which need not be the same in another process. `hash` is seeded for each process."""

_SMALL = 50_000
"""Keys of one transaction that are kept in a dictionary; more of them go into an index, which needs less memory."""


class RecentPlaces:
    """The hashes of the rows that one transaction has appended, at consecutive places from `first` on.

    Most transactions never look up their own rows, so the look-up is built at the first call of `places`, which may
    come from several reader threads.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.hashes = array("q")
        self._lock = threading.Lock()
        self._indexed = 0
        """The number of hashes that are in the look-up."""
        self._small: dict[int, int] = {}
        self._large: KeyIndex | None = None

    @property
    def next_place(self) -> int:
        """The place of the next row."""
        return self.first + len(self.hashes)

    def extend(self, hashes: Sequence[int]) -> None:
        """Count further rows."""
        self.hashes.extend(hashes)

    def places(self, hashed: int) -> list[int]:
        """The candidate places of a hash."""
        with self._lock:
            if self._indexed < len(self.hashes):
                self._index_rest()
            if self._large is not None:
                return self._large.places(hashed)
            place = self._small.get(hashed)
            return [] if place is None else [place]

    def _index_rest(self) -> None:
        place, rest = self.first + self._indexed, self.hashes[self._indexed :]
        self._indexed += len(rest)
        if self._large is not None:
            self._large.extend(rest, place)
            return
        self._small.update(zip(rest, count(place)))
        if len(self._small) < self._indexed or self._indexed > _SMALL:
            # Two keys with one hash, or many keys.
            self._large = KeyIndex(self._indexed)
            self._large.extend(self.hashes[: self._indexed], self.first)
            self._small = {}


class LogTable:
    """The rows of one SQL table, found through the index in memory and then among the moved keys."""

    def __init__(
        self, made: LogStatements, hash_key: HashKey, index: KeyIndex, moved: MovedKeys, next_place: int, highest: int
    ) -> None:
        self.made = made
        self.index = index
        self.moved = moved
        self.next_place = next_place
        self.highest = highest
        """The highest place that has a row; 0 if there is none. The next place is above it, not always by one."""
        self.rows = len(index) + moved.state.keys
        self.hash_key = hash_key

    @classmethod
    def rebuilt(cls, connection: apsw.Connection, made: LogStatements, hash_key: HashKey, limit: int) -> LogTable:
        """Build the index from the rows above the boundary of the moved keys; about 1.5 microseconds for each row."""
        moved = MovedKeys.stored(connection, made)
        highest, boundary = made.highest(connection), moved.state.boundary
        last = max(highest, boundary)  # a new row at or below the boundary would not be found after the next start
        index = KeyIndex(min(last - boundary, limit))
        rows = connection.execute(made.keys_above, (boundary,))
        index.load((hash_key(row[1:]), row[0]) for row in rows)
        return cls(made, hash_key, index, moved, last + 1, highest)

    def emptied(self, next_place: int) -> LogTable:
        """The state after all rows were deleted. Places are not used again, so old candidates meet no new rows."""
        return LogTable(self.made, self.hash_key, KeyIndex(), MovedKeys(self.made), next_place, 0)

    def hashes(self, keys: Iterable[Key]) -> list[int]:
        """The hashes of these keys in the memory index."""
        return list(map(self.hash_key, self.stored_keys(keys)))

    def stored_keys(self, keys: Iterable[Key]) -> Iterable[Key]:
        """These keys in the form of the database."""
        unsigned = self.made.unsigned
        return map(unsigned.key_out, keys) if unsigned.has_keys else keys

    @property
    def unmoved(self) -> int:
        """The number of rows whose entries are to stay in memory."""
        return self.rows - self.moved.state.keys

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that no committed row exists."""
        return not self.moved.state.boundary and not len(self.index)

    def locate(
        self, connection: apsw.Connection, keys: Collection[Key], recent: RecentPlaces
    ) -> dict[Key, tuple[int, Row]]:
        """The rows of these keys with their places; for the writer, whose thread alone changes the index."""
        hashes = self.hashes(keys)
        places = self.index.gather(hashes)
        if recent.hashes:
            places += [place for hashed in hashes for place in recent.places(hashed)]
        return self._compared(connection, keys, places)

    def locate_beside_writer(
        self, connection: apsw.Connection, keys: Collection[Key], recent: RecentPlaces | None
    ) -> dict[Key, tuple[int, Row]]:
        """As `locate`, for a snapshot in another thread; `recent` are the rows of a commit that is being applied."""
        hashes = self.hashes(keys)
        places = [] if recent is None else [place for hashed in hashes for place in recent.places(hashed)]
        with self.index.lock:
            places += self.index.gather(hashes)
        return self._compared(connection, keys, places)

    def _compared(
        self, connection: apsw.Connection, keys: Collection[Key], places: Iterable[int]
    ) -> dict[Key, tuple[int, Row]]:
        found = self._read(connection, keys, places) if places else {}
        # Look at the boundary after the index: entries leave memory only when the boundary says where they are.
        if self.moved.state.boundary and len(found) < len(keys):
            missing = [key for key in keys if key not in found]
            old = self.moved.places(connection, self.stored_keys(missing))
            if old:
                found.update(self._read(connection, missing, old))
        return found

    def _read(
        self, connection: apsw.Connection, keys: Collection[Key], places: Iterable[int]
    ) -> dict[Key, tuple[int, Row]]:
        """The rows at these places whose keys are wanted: a candidate with another key is only a hash collision."""
        wanted = set(keys)
        found: dict[Key, tuple[int, Row]] = {}
        width, row_in = self.made.table.key, self.made.unsigned.row_in
        for statement in self.made.read_at(list(dict.fromkeys(places))):
            for values in fetch(connection, *statement):
                row = row_in(values[1:])
                key = row[:width]
                if key in wanted:
                    found[key] = values[0], row
        return found
