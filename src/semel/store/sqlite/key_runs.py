"""The part of a key index that is not in memory: entries of the oldest rows of a log table, in a table beside it.

Format: a hash of the key, seeded for each table and the same after a restart, chooses one of `BUCKETS` rows of
`<table>_run`; its `entries` are pairs (hash, place) in ascending order of the places. A row of `semel_run` holds the
seed and the boundary of each log table.

The promise: every row at or below the boundary has its entry in a run, and every row above it has one in memory. An
entry of a deleted row is harmless, because each candidate is compared with its row.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from hashlib import blake2b

import apsw

from semel.store.sqlite.key_index import entries_upto, places_in
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.query import fetch
from semel.store.table import Key, encoded

BUCKETS = 1 << 14
"""A million keys are 61 entries, or one kilobyte, for each bucket."""
BUCKET_SHIFT = 64 - BUCKETS.bit_length() + 1
SEED_BYTES = 16
_LOOKED_UP = 64
"""Buckets that one statement reads."""

CREATE_RUNS = (
    "CREATE TABLE IF NOT EXISTS semel_run (name BLOB PRIMARY KEY, boundary INTEGER NOT NULL, seed BLOB NOT NULL) "
    "STRICT, WITHOUT ROWID"
)


class KeyRuns:
    """The runs of one log table. `boundary` is the last place whose entry is in them, 0 if they are not in use."""

    def __init__(self, made: LogStatements, boundary: int = 0, seed: bytes | None = None) -> None:
        self.boundary = boundary
        self._made = made
        self._seed = os.urandom(SEED_BYTES) if seed is None else seed

    @classmethod
    def stored(cls, connection: apsw.Connection, made: LogStatements) -> KeyRuns:
        """The runs as the file has them."""
        found = fetch(connection, "SELECT boundary, seed FROM semel_run WHERE name = ?", (made.name.encode(),))
        return cls(made, *found[0]) if found else cls(made)

    def hashed(self, key: Key) -> int:
        """The hash of a key, in the form of the database: 64 bits, signed."""
        digest = blake2b(b"".join(map(encoded, key)), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big", signed=True)

    def places(self, connection: apsw.Connection, keys: Collection[Key]) -> list[int]:
        """The candidate places of all these keys, in the form of the database."""
        hashes: dict[int, list[int]] = {}
        for key in keys:
            hashed = self.hashed(key)
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

    def write(self, connection: apsw.Connection, added: Mapping[int, bytearray], first: int) -> None:
        """Add entries above the boundary to some buckets, in the open transaction.

        Entries of places below `first` are dropped, because no row is left there, and so are entries above the
        boundary, because a crash interrupted the move that wrote them.
        """
        stored = self.read(connection, added.keys())
        for bucket, entries in added.items():
            old = stored.get(bucket, b"")
            kept = old[16 * entries_upto(old, first - 1) : 16 * entries_upto(old, self.boundary)]
            connection.execute(f"INSERT OR REPLACE INTO {self._made.name}_run VALUES (?, ?)", (bucket, kept + entries))

    def store(self, connection: apsw.Connection, boundary: int) -> None:
        """Write seed and boundary, in the open transaction."""
        values = (self._made.name.encode(), boundary, self._seed)
        connection.execute("INSERT OR REPLACE INTO semel_run VALUES (?, ?, ?)", values)

    def clear(self, connection: apsw.Connection) -> None:
        """Delete the runs of a generation that is dropped, in the open transaction."""
        connection.execute(f"DELETE FROM {self._made.name}_run")
        connection.execute("DELETE FROM semel_run WHERE name = ?", (self._made.name.encode(),))


def bucket_of(hashed: int) -> int:
    """The bucket of a hash."""
    return (hashed & (2**64 - 1)) >> BUCKET_SHIFT
