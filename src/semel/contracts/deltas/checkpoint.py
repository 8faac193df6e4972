"""A checkpoint: a snapshot of the rows of a gateway at one instant, for a client that begins.

It holds a row once where the log holds all of its history, so a new client is ready sooner. It goes on with a pull from
the cursor of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from semel.contracts.deltas.model import Entry, Op, Replica
from semel.contracts.deltas.reading import Claims, MergedRow, merged_rows
from semel.contracts.deltas.rules.buckets import Rules, rules_of, sees
from semel.contracts.deltas.rules.entries import NO_COLUMNS
from semel.contracts.deltas.rules.epochs import present_gateway
from semel.contracts.deltas.rules.replicas import progress_key
from semel.contracts.deltas.tables import DELTA_REPLICA
from semel.engine.reading import Reading
from semel.kernel.delta_id import columns_bytes, plain_column_bytes
from semel.store.table import Key

ROWS_AT_ONCE = 64
"""Limit of rows in memory at a time; one may be large."""


class Checkpoint(NamedTuple):
    """The cursor behind a snapshot, and its rows as entries, which are read lazily."""

    cursor: int
    entries: Iterator[Entry]


def checkpoint(reading: Reading, gateway: str, claims: Claims, replica: Replica | None) -> Checkpoint | None:
    """The rows that a caller with these claims may see. None where there are no rows.

    Its rows are INSERTs. A client that has pushed has some of them, and one that is not named may be such a client: for
    those every row is told behind a DELETE, and rows that are gone by one. Under rules it is not told of rows that are
    gone, since it may never have seen them.
    """
    row = present_gateway(reading, gateway)
    if row is None or not row.rows:
        return None
    may_hold = replica is None or reading.get(DELTA_REPLICA, progress_key(replica)) is not None
    rules = rules_of(row.rules) if row.rules else None
    return Checkpoint(row.high_water, row_entries(reading, gateway, rules, claims, may_hold=may_hold))


def row_entries(
    reading: Reading, gateway: str, rules: Rules | None, claims: Claims, *, may_hold: bool
) -> Iterator[Entry]:
    """The rows of a gateway that a caller with these claims may see; with `may_hold` each behind a DELETE."""
    after: Key | None = None
    while True:
        rows, after = merged_rows(reading, gateway, after, ROWS_AT_ONCE)
        for row in rows:
            is_seen = row.is_live and (rules is None or sees(rules, claims, row.table, dict(row.columns)))
            if may_hold and (is_seen or rules is None):
                yield _entry(row)._replace(op=Op.DELETE, columns=NO_COLUMNS)
            if is_seen:
                yield _entry(row)
        if after is None:
            return


def _entry(row: MergedRow) -> Entry:
    columns = columns_bytes(plain_column_bytes(name, value) for name, value in row.columns)
    return Entry(0, Op.INSERT, row.table, row.row, row.client, row.hlc, row.id, columns, is_resolved=True)
