"""The part of a key index that is not in memory: the entries of the oldest rows of a log table, in a table beside it.

Format: `<table>_moved` has the pair (hash, place) of each row of the log table that is not above the boundary. The
hash is seeded for each table and the same after a restart, which that of the memory index is not. A row of
`semel_moved_keys` holds the boundary, the number of entries and the seed.

The promise: a row that is not above the boundary has its entry here, and a row above it has one in memory. Entries and
boundary are written by the transaction of a batch, so a crash leaves both or neither of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import apsw

from semel.store.protocol import AnyTable
from semel.store.sql_dialect import quoted
from semel.store.sqlite.log_statements import LogStatements, statements_of
from semel.store.sqlite.query import fetch
from semel.store.table import ColumnKind, Key, encoded

SEED_BYTES = 16
_HASH = Struct(">q")

CREATE_MOVED = (
    "CREATE TABLE IF NOT EXISTS semel_moved_keys (name BLOB PRIMARY KEY, boundary INTEGER NOT NULL, "
    "keys INTEGER NOT NULL, seed BLOB NOT NULL) STRICT, WITHOUT ROWID"
)


class MovedState(NamedTuple):
    """How much of a log table has left memory."""

    boundary: int = 0
    """The last place whose entry has moved; 0 if none has."""
    keys: int = 0
    """The number of entries that have moved, without those of deleted rows."""


NONE_MOVED = MovedState()


class MovedKeys:
    """The moved entries of one log table. Keys are in the form of the database."""

    def __init__(self, made: LogStatements, state: MovedState = NONE_MOVED, seed: bytes | None = None) -> None:
        self.state = state
        """As of the last commit."""
        self._made = made
        self._seed = os.urandom(SEED_BYTES) if seed is None else seed
        self._hasher = blake2b(digest_size=8, key=self._seed)
        self._encoded = _encoder(made)

    @classmethod
    def stored(cls, connection: apsw.Connection, made: LogStatements) -> MovedKeys:
        """As the file has them."""
        asked = "SELECT boundary, keys, seed FROM semel_moved_keys WHERE name = ?"
        for boundary, keys, seed in fetch(connection, asked, (made.name.encode(),)):
            return cls(made, MovedState(boundary, keys), seed)
        return cls(made)

    def hashes(self, keys: Iterable[Key]) -> list[int]:
        """The hashes of keys: 64 bits, signed."""
        begun, encode, unpack, found = self._hasher.copy, self._encoded, _HASH.unpack, []
        for key in keys:
            hasher = begun()
            hasher.update(encode(key))
            found.append(unpack(hasher.digest())[0])
        return found

    def places(self, connection: apsw.Connection, keys: Iterable[Key]) -> list[int]:
        """The candidate places of all these keys."""
        hashes = [(hashed,) for hashed in self.hashes(keys)]
        return [place for one in self._made.moved_places(hashes) for (place,) in fetch(connection, *one)]

    def add(
        self, connection: apsw.Connection, keys: Sequence[Key], places: Sequence[int], was: MovedState
    ) -> MovedState:
        """Add the entries of the rows that come next above the boundary, in the open transaction."""
        self._run(connection, self._made.add_moved(sorted(zip(self.hashes(keys), places, strict=True))))
        return self._store(connection, MovedState(places[-1], was.keys + len(keys)))

    def remove(
        self, connection: apsw.Connection, keys: Sequence[Key], places: Sequence[int], was: MovedState
    ) -> MovedState:
        """Remove the entries of deleted rows that are not above the boundary, in the open transaction."""
        self._run(connection, self._made.remove_moved(list(zip(self.hashes(keys), places, strict=True))))
        return self._store(connection, MovedState(was.boundary, was.keys - len(keys)))

    def clear(self, connection: apsw.Connection) -> None:
        """Remove all entries, with the generation that is dropped, in the open transaction."""
        connection.execute(self._made.clear_moved)
        connection.execute("DELETE FROM semel_moved_keys WHERE name = ?", (self._made.name.encode(),))

    def _store(self, connection: apsw.Connection, state: MovedState) -> MovedState:
        values = (self._made.name.encode(), *state, self._seed)
        connection.execute("INSERT OR REPLACE INTO semel_moved_keys VALUES (?, ?, ?, ?)", values)
        return state

    def _run(self, connection: apsw.Connection, statements: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        for sql, values in statements:
            connection.execute(sql, values)


def moved_flaws(connection: apsw.Connection, tables: Sequence[AnyTable]) -> Iterator[str]:
    """What is wrong with the moved entries of these tables: a row without its own would be taken for a new write.

    An entry without a row is no flaw: each candidate is compared with its row. The connection is in a transaction that
    sees one instant.
    """
    for table, statements in statements_of([table for table in tables if table.log]).items():
        for made in statements:
            if isinstance(made, LogStatements) and (lost := _rows_not_found(connection, made)):
                yield f"{lost} keys of {table.name} are not found through its index."


def _rows_not_found(connection: apsw.Connection, made: LogStatements) -> int:
    moved = MovedKeys.stored(connection, made)
    connection.create_scalar_function("semel_hash", lambda *key: moved.hashes([key])[0], deterministic=True)
    found = (
        f"SELECT 1 FROM {made.name}_moved WHERE hash = semel_hash({quoted(made.table.key_columns)}) AND place = t.rowid"
    )
    asked = f"SELECT count(*) FROM {made.name} t WHERE t.rowid <= ? AND NOT EXISTS ({found})"
    return fetch(connection, asked, (moved.state.boundary,))[0][0]  # type: ignore[no-any-return]


def _encoder(made: LogStatements) -> Callable[[Key], bytes]:
    """The bytes of a key that are hashed: different keys of one table never have the same."""
    columns = made.table.columns[: made.table.key]
    if any(column.kind is ColumnKind.I64 or column.nullable for column in columns):
        return lambda key: b"".join(map(encoded, key))
    lengths, join = Struct(f">{len(columns)}Q").pack, b"".join
    return lambda key: lengths(*map(len, key)) + join(key)
