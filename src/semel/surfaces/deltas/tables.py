"""Tables of deltas. All rows of a gateway are under the lock of its name.

The log has one row for each position: a delta as it was pushed with what is delivered of it, or a repair. Ids are kept
forever, next to the time that is hashed into them, so that the index grows at its end although ids are hashes.

The rows of a gateway are numbered in the order of their creation, and stored by table and number: a new row goes behind
the others of its table, whatever its id is, so the cost of a push does not grow with the number of rows.

Look-ups: a gateway by its name (DELTA_GATEWAY), a delta by its time and id (DELTA_ID) or, where ids are trusted, by
its id alone (DELTA_LEGACY_ID), the log by position (DELTA_LOG), the number of a row by table and id (DELTA_ROW_NUMBER),
a row by table and number (DELTA_ROW), a replica by client and subject (DELTA_REPLICA) or by its last request, the last
repair for an author (DELTA_AUTHOR), the columns of a table (DELTA_SCHEMA).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from semel.kernel.keys import pack
from semel.store.table import U64, Below, Key, Table
from semel.surfaces.epoch import Rows

_KEPT_KEYS = 4_096
"""Size of the cache of keys: a push uses the keys of its gateway and rows several times."""


class DeltaGatewayRow(NamedTuple):
    """One gateway: the end of its log, its counts and its rules."""

    gateway: bytes
    name: bytes
    high_water: U64
    """The highest position or cursor that was ever given out."""
    entries: int
    deltas: int
    rows: int
    size: int
    """The bytes of all pushed deltas."""
    authors: bytes
    """The last entries of the two latest authors: JSON, newest first."""
    rules: bytes
    """The sync rules; empty if every caller sees everything."""
    rules_version: int
    """Increases when the rules change."""
    schemas: int
    """The number of tables that have a schema."""
    replicas: int
    """The number of clients with stored progress."""
    epoch: int = 0
    """The epoch of the store when the gateway was last changed."""
    gaps: bytes = b""
    """Numbers that were skipped when an epoch began: see `rules.gateways`."""
    forgotten_at: U64 = 0
    """The end of the log when a client was last forgotten; 0 if none ever was."""
    cut: U64 = 0
    """The log up to here has been removed; 0 if it is complete."""
    checksum: int = 0


class DeltaIdRow(NamedTuple):
    """A known delta; never deleted."""

    gateway: bytes
    hlc: U64
    id: bytes
    position: U64


class DeltaLegacyIdRow(NamedTuple):
    """A known delta where ids are not checked: only its id identifies it."""

    gateway: bytes
    id: bytes
    position: U64
    checksum: int = 0


class DeltaLogRow(NamedTuple):
    """One position. A repair has an addressee and no `pushed`; a delta without effect has no `op`."""

    gateway: bytes
    position: U64
    hlc: U64
    id: bytes
    table_name: bytes
    row_id: bytes
    """Text of the row's id."""
    client: bytes
    """Text of the author's id."""
    pushed: int
    """The operation as it was pushed; 0 for a repair."""
    body: bytes
    """Text of the columns as they were pushed."""
    op: int
    """The operation as it is delivered; 0 if nothing is delivered."""
    columns: bytes | None
    """Text of the columns as they are delivered; None if they are those of the body."""
    sight: bytes | None
    """The columns that the rules read, before and after; None without rules."""
    addressee: bytes
    """Text of the id of the only client that gets the entry; empty for all clients."""
    checksum: int = 0


class DeltaRowNumberRow(NamedTuple):
    """The number of a row in its gateway, counted from 0; never changed."""

    gateway: bytes
    table_name: bytes
    row_key: bytes
    number: int


class DeltaRowRow(NamedTuple):
    """The merged state of one row: see `rules.last_writer_wins`."""

    gateway: bytes
    table_name: bytes
    number: int
    row_id: bytes
    """Text of the row's id."""
    state: bytes


class DeltaReplicaRow(NamedTuple):
    """The progress of a client under one caller: see `rules.cursors`."""

    gateway: bytes
    client: bytes
    subject: bytes
    seen: U64
    muted: U64
    aliases: bytes
    life: bytes
    """Changes when the client goes back to an older cursor: earlier soft changes do not apply then."""
    used_at: int
    """The time of its last call in milliseconds, rounded down to the hour; 0 if unknown."""
    checksum: int = 0


class DeltaAuthorRow(NamedTuple):
    """The position of the last repair for an author, and of its last insert of a row that existed already."""

    gateway: bytes
    client: bytes
    repaired_at: U64
    inserted_at: U64
    checksum: int = 0


class DeltaSchemaRow(NamedTuple):
    """The columns of a table: JSON, name to type."""

    gateway: bytes
    table_name: bytes
    columns: bytes
    checksum: int = 0


DELTA_GATEWAY = Table("delta_gateway", DeltaGatewayRow, key=1, cached=True)
DELTA_ID = Table("delta_id", DeltaIdRow, key=3, log=True)
DELTA_LEGACY_ID = Table("delta_legacy_id", DeltaLegacyIdRow, key=2, log=True)
DELTA_LOG = Table("delta_log", DeltaLogRow, key=2, bulky=True, unsummed=("body",))
DELTA_ROW_NUMBER = Table("delta_row_number", DeltaRowNumberRow, key=3, log=True)
DELTA_ROW = Table("delta_row", DeltaRowRow, key=3, heavy=True)
DELTA_REPLICA = Table(
    "delta_replica",
    DeltaReplicaRow,
    key=3,
    indexes={"used": ("used_at",)},
    partial={"used": Below("used_at", 2**63 - 1)},
    cached=True,
    unsummed=("seen", "used_at"),
)
DELTA_AUTHOR = Table("delta_author", DeltaAuthorRow, key=2, cached=True)
DELTA_SCHEMA = Table("delta_schema", DeltaSchemaRow, key=2, cached=True)

TABLES = (
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LEGACY_ID,
    DELTA_LOG,
    DELTA_ROW_NUMBER,
    DELTA_ROW,
    DELTA_REPLICA,
    DELTA_AUTHOR,
    DELTA_SCHEMA,
)


@lru_cache(_KEPT_KEYS)
def gateway_key(gateway: str) -> bytes:
    """The stored key of a gateway."""
    return pack(gateway.encode())


@lru_cache(_KEPT_KEYS)
def text_key(text: str) -> bytes:
    """The stored key of a client or a row, by the text of its id."""
    return pack(text[1:-1].encode())


def find_row(rows: Rows, key: Key) -> DeltaRowRow | None:
    """A row by gateway, table and the key of its id; None if it was never created."""
    found = rows.get(DELTA_ROW_NUMBER, key)
    return None if found is None else rows.get(DELTA_ROW, (key[0], key[1], found.number))
