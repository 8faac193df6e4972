"""A checkpoint: the rows of a gateway as they are at one instant, for a client that begins.

It holds a row once where the log holds all of its history, so a new client is ready sooner. It goes on with a pull from
the cursor of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from semel.contracts.deltas.model import Entry, Op, Replica
from semel.contracts.deltas.reading import Claims, MergedRow, merged_rows
from semel.contracts.deltas.rules.buckets import Rules, rules_of, sees
from semel.contracts.deltas.rules.epochs import present_gateway
from semel.contracts.deltas.rules.replicas import progress_key
from semel.contracts.deltas.tables import DELTA_REPLICA
from semel.engine.reading import Reading
from semel.kernel.delta_id import columns_text, plain_column
from semel.store.table import Key

ROWS_AT_ONCE = 64
"""So many rows are in memory at a time; one may be large."""


class Checkpoint(NamedTuple):
    """The cursor behind it, and its rows as entries, which are read as they are taken."""

    cursor: int
    entries: Iterator[Entry]


def checkpoint(reading: Reading, gateway: str, claims: Claims, replica: Replica | None) -> Checkpoint | None:
    """What a caller with these claims may see. None where there are no rows, and for all but newcomers.

    Its rows are INSERTs, and a client that has pushed or pulled has some of them: it would fail on the first, and go on
    behind all of them. One that is not named may be such a client.
    """
    row = present_gateway(reading, gateway)
    if row is None or not row.rows:
        return None
    if replica is None or reading.get(DELTA_REPLICA, progress_key(replica)) is not None:
        return None
    rules = rules_of(row.rules) if row.rules else None
    return Checkpoint(row.high_water, _entries(reading, gateway, rules, claims))


def _entries(reading: Reading, gateway: str, rules: Rules | None, claims: Claims) -> Iterator[Entry]:
    after: Key | None = None
    while True:
        rows, after = merged_rows(reading, gateway, after, ROWS_AT_ONCE)
        for row in rows:
            if row.is_live and (rules is None or sees(rules, claims, row.table, dict(row.columns))):
                yield _entry(row)
        if after is None:
            return


def _entry(row: MergedRow) -> Entry:
    columns = columns_text([plain_column(name, value) for name, value in row.columns])
    return Entry(0, Op.INSERT, row.table, row.row, row.client, row.hlc, row.id, columns, is_resolved=True)
