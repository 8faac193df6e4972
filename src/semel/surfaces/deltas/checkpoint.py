"""A checkpoint: the rows of a gateway at one instant, for the first synchronization of a client.

It holds each row once where the log holds all of its history, so a new client is ready sooner. The client continues
with a pull from the cursor of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.hashes import columns_bytes, plain_column_bytes
from semel.store.table import Key
from semel.surfaces.deltas.model import DeltaEntry, DeltaOp, DeltaReplica
from semel.surfaces.deltas.reading import Claims, MergedRow, merged_rows
from semel.surfaces.deltas.rules.gateways import present_gateway
from semel.surfaces.deltas.rules.replicas import progress_key
from semel.surfaces.deltas.rules.sync_rules import SyncRules, rules_of, sees
from semel.surfaces.deltas.rules.visibility import NO_COLUMNS
from semel.surfaces.deltas.tables import DELTA_REPLICA

ROWS_AT_ONCE = 64
"""Limit of rows in memory at a time; a row may be large."""


class Checkpoint(NamedTuple):
    """The cursor of a snapshot, and its rows as entries, which are read lazily."""

    cursor: int
    entries: Iterator[DeltaEntry]


def checkpoint(reading: Reading, gateway: str, claims: Claims, replica: DeltaReplica | None) -> Checkpoint | None:
    """The rows that a caller with these claims may see; None if the gateway has no rows.

    Rows are sent as INSERTs. A client that has pushed holds some of them, and so may an unnamed client: for these, a
    DELETE precedes each INSERT, and deleted rows are sent as a DELETE. Under sync rules deleted rows are omitted, since
    the client may never have been allowed to see them.
    """
    row = present_gateway(reading, gateway)
    if row is None or not row.rows:
        return None
    may_hold = replica is None or reading.get(DELTA_REPLICA, progress_key(replica)) is not None
    rules = rules_of(row.rules) if row.rules else None
    return Checkpoint(row.high_water, row_entries(reading, gateway, rules, claims, may_hold=may_hold))


def row_entries(
    reading: Reading, gateway: str, rules: SyncRules | None, claims: Claims, *, may_hold: bool
) -> Iterator[DeltaEntry]:
    """The rows of a gateway that a caller with these claims may see; with `may_hold`, a DELETE precedes each row."""
    after: Key | None = None
    while True:
        rows, after = merged_rows(reading, gateway, after, ROWS_AT_ONCE)
        for row in rows:
            is_seen = row.is_live and (rules is None or sees(rules, claims, row.table, dict(row.columns)))
            if may_hold and (is_seen or rules is None):
                yield _entry(row)._replace(op=DeltaOp.DELETE, columns=NO_COLUMNS)
            if is_seen:
                yield _entry(row)
        if after is None:
            return


def _entry(row: MergedRow) -> DeltaEntry:
    columns = columns_bytes(plain_column_bytes(name, value) for name, value in row.columns)
    return DeltaEntry(0, DeltaOp.INSERT, row.table, row.row, row.client, row.hlc, row.id, columns, is_resolved=True)
