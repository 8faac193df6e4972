"""The check of key indexes on disk: each row of a log table whose entry has left memory is found through the runs.

A damaged run hides a key, and then a retry would be taken for a new write. Nothing is changed, and memory does not
depend on the number of keys: one bucket of the runs is read after the other, with the keys of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

import apsw

from semel.store.protocol import AnyTable
from semel.store.sqlite.key_runs import KeyRuns
from semel.store.sqlite.log_statements import LogStatements, statements_of
from semel.store.sqlite.query import fetch
from semel.store.sqlite.run_filter import FilterBudget, bucket_of

_ENTRY = Struct("<qq")
_AT_ONCE = 500
"""Rows that one statement reads."""


def run_flaws(connection: apsw.Connection, tables: Sequence[AnyTable]) -> Iterator[str]:
    """What is wrong with the runs of these tables; the connection is in a transaction that sees one instant."""
    for table, statements in statements_of([table for table in tables if table.log]).items():
        for made in statements:
            asked = "SELECT boundary, keys, seed FROM semel_run WHERE name = ?"
            if isinstance(made, LogStatements) and (found := fetch(connection, asked, (made.name.encode(),))):
                runs = KeyRuns(made, FilterBudget(0), *found[0])
                stored = fetch(connection, f"SELECT count(*) FROM {made.name} WHERE rowid <= ?", (runs.boundary,))[0][0]
                indexed = sum(_rows_found(connection, made, runs))
                if indexed != stored:
                    yield f"{stored - indexed} of {stored} keys of {table.name} are not found through its index."


def _rows_found(connection: apsw.Connection, made: LogStatements, runs: KeyRuns) -> Iterator[int]:
    """For each bucket, the number of rows that its entries lead to."""
    for bucket, entries in connection.execute(f"SELECT bucket, entries FROM {made.name}_run ORDER BY bucket"):
        whole = entries[: len(entries) // _ENTRY.size * _ENTRY.size]
        hashes = {place: hashed for hashed, place in _ENTRY.iter_unpack(whole) if place <= runs.boundary}
        places = [place for place, hashed in hashes.items() if bucket_of(hashed) == bucket]
        for at in range(0, len(places), _AT_ONCE):
            rows = _keys_at(connection, made, places[at : at + _AT_ONCE])
            found = runs.hashes([row[1:] for row in rows])
            yield sum(hashes[row[0]] == hashed for row, hashed in zip(rows, found, strict=True))


def _keys_at(connection: apsw.Connection, made: LogStatements, places: Sequence[int]) -> list[tuple[object, ...]]:
    """The place and the key of each row that is still there."""
    columns = ", ".join(f'"{name}"' for name in made.table.key_columns)
    asked = f"SELECT rowid, {columns} FROM {made.name} WHERE rowid IN ({', '.join('?' * len(places))})"
    return list(fetch(connection, asked, tuple(places)))
