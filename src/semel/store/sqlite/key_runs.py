"""The part of a key index that is not in memory: entries of the oldest rows of a log table, in a table beside it.

Format: a hash of the key, seeded for each table and the same after a restart, chooses one of `BUCKETS` rows of
`<table>_run`; its `entries` are pairs (hash, place) in ascending order of the places. A row of `semel_run` holds the
seed, the boundary and the number of keys of each log table.

The promise: every row at or below the boundary has its entry in a run, and every row above it has one in memory. An
entry of a deleted row is harmless, because each candidate is compared with its row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from struct import Struct

import apsw

from semel.store.sqlite.key_index import entries_upto, places_in
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.query import fetch
from semel.store.sqlite.run_filter import FilterBudget, RunFilter, bucket_of
from semel.store.table import ColumnKind, Key, encoded

SEED_BYTES = 16
_LOOKED_UP = 64
"""Buckets that one statement reads."""
_HASH = Struct(">q")

CREATE_RUNS = (
    "CREATE TABLE IF NOT EXISTS semel_run (name BLOB PRIMARY KEY, boundary INTEGER NOT NULL, keys INTEGER NOT NULL, "
    "seed BLOB NOT NULL) STRICT, WITHOUT ROWID"
)


class KeyRuns:
    """The runs of one log table. `boundary` is the last place whose entry is in them, 0 if they are not in use."""

    def __init__(
        self, made: LogStatements, budget: FilterBudget, boundary: int = 0, keys: int = 0, seed: bytes | None = None
    ) -> None:
        self.boundary = boundary
        self.keys = keys
        """The number of keys in them. Rows that were deleted since the last move count again after a restart."""
        self.filter = RunFilter(budget)
        self.budget = budget
        self._made = made
        self._seed = os.urandom(SEED_BYTES) if seed is None else seed
        self._hasher = blake2b(digest_size=8, key=self._seed)
        self._encoded = _encoder(made)

    @classmethod
    def stored(cls, connection: apsw.Connection, made: LogStatements, budget: FilterBudget) -> KeyRuns:
        """The runs as the file has them, and their filter."""
        found = fetch(connection, "SELECT boundary, keys, seed FROM semel_run WHERE name = ?", (made.name.encode(),))
        if not found:
            return cls(made, budget)
        runs = cls(made, budget, *found[0])
        for bucket, entries in connection.execute(f"SELECT bucket, entries FROM {made.name}_run"):
            runs.filter.set(bucket, entries)
        return runs

    def hashes(self, keys: Iterable[Key]) -> list[int]:
        """The hashes of keys, in the form of the database: 64 bits, signed."""
        begun, encode, unpack, found = self._hasher.copy, self._encoded, _HASH.unpack, []
        for key in keys:
            hasher = begun()
            hasher.update(encode(key))
            found.append(unpack(hasher.digest())[0])
        return found

    def places(self, connection: apsw.Connection, keys: Collection[Key], *, is_writer: bool) -> list[int]:
        """The candidate places of all these keys, in the form of the database; only the writer may use the filter."""
        hashes: dict[int, list[int]] = {}
        if is_writer:
            hashes = self.filter.passing(self.hashes(keys))
        else:
            for hashed in self.hashes(keys):
                hashes.setdefault(bucket_of(hashed), []).append(hashed)
        found = []
        numbers = list(hashes)
        for at in range(0, len(numbers), _LOOKED_UP):
            for bucket, entries in self.read(connection, numbers[at : at + _LOOKED_UP]).items():
                found += [place for hashed in hashes[bucket] for place in places_in(entries, hashed)]
        return found

    def read(self, connection: apsw.Connection, numbers: Collection[int]) -> dict[int, bytes]:
        """The entries of some buckets; empty buckets are left out."""
        asked = f"SELECT bucket, entries FROM {self._made.name}_run WHERE bucket IN ({', '.join('?' * len(numbers))})"
        return dict(fetch(connection, asked, tuple(numbers)))

    def write(self, connection: apsw.Connection, added: Mapping[int, bytearray], first: int) -> dict[int, bytes]:
        """Add entries above the boundary to some buckets, in the open transaction; returns all entries of these.

        Entries of places below `first` are dropped, because no row is left there, and so are entries above the
        boundary, because a crash interrupted the move that wrote them.
        """
        stored = self.read(connection, added.keys())
        written = {}
        for bucket, entries in added.items():
            old = stored.get(bucket, b"")
            kept = old[16 * entries_upto(old, first - 1) : 16 * entries_upto(old, self.boundary)]
            written[bucket] = kept + entries
            connection.execute(f"INSERT OR REPLACE INTO {self._made.name}_run VALUES (?, ?)", (bucket, kept + entries))
        return written

    def store(self, connection: apsw.Connection, boundary: int, keys: int) -> None:
        """Write seed, boundary and number of keys, in the open transaction."""
        values = (self._made.name.encode(), boundary, keys, self._seed)
        connection.execute("INSERT OR REPLACE INTO semel_run VALUES (?, ?, ?, ?)", values)

    def clear(self, connection: apsw.Connection) -> None:
        """Delete the runs of a generation that is dropped, in the open transaction."""
        connection.execute(f"DELETE FROM {self._made.name}_run")
        connection.execute("DELETE FROM semel_run WHERE name = ?", (self._made.name.encode(),))


def _encoder(made: LogStatements) -> Callable[[Key], bytes]:
    """The bytes of a key that are hashed: different keys of one table never have the same."""
    columns = made.table.columns[: made.table.key]
    if any(column.kind is ColumnKind.I64 or column.nullable for column in columns):
        return lambda key: b"".join(map(encoded, key))
    lengths, join = Struct(f">{len(columns)}Q").pack, b"".join
    return lambda key: lengths(*map(len, key)) + join(key)
