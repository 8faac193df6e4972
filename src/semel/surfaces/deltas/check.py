"""The check of deltas: the log of each gateway, ids against content, and rows against the deltas that made them.

The id of a delta is computed again from its content. The state of a row is folded again from the log, in passes over a
part of the rows each, for gateways whose log is complete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b, sha256
from struct import Struct
from typing import Any, NamedTuple

import orjson

from semel.kernel.keys import pack
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.store.table_check import Check, StoreFault, StoreWalk, fault, in_groups, token_of
from semel.surfaces.deltas.tables import (
    DELTA_AUTHOR,
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LEGACY_ID,
    DELTA_LOG,
    DELTA_REPLICA,
    DELTA_ROW,
    DELTA_ROW_NUMBER,
    DELTA_SCHEMA,
    DeltaGatewayRow,
    DeltaLogRow,
)
from semel.surfaces.epoch import EPOCH, EPOCH_KEY

_PAIR = Struct(">QQ")
_DELETE = 3
_FOLDED_ROWS = 50_000
"""Rows that are folded in one pass."""
_FOUND_AT_ONCE = 100


def _gateways(walk: StoreWalk) -> dict[bytes, DeltaGatewayRow]:
    """All gateways: a server holds them in memory too. The row without a name counts them."""
    return {row.gateway: row for row in walk.rows(DELTA_GATEWAY) if row.gateway}


def gateways(walk: StoreWalk) -> Iterator[StoreFault]:
    """Gateways, and the schemas, clients and authors of each, are counted and within its log."""
    found = _gateways(walk)
    epoch_row = walk.get(EPOCH, EPOCH_KEY)
    epoch = 0 if epoch_row is None else epoch_row.number
    count = walk.get(DELTA_GATEWAY, (b"",))
    if (0 if count is None else count.entries) != len(found):
        yield fault(DELTA_GATEWAY, "", f"{0 if count is None else count.entries} gateways are counted of {len(found)}.")
    for row in found.values():
        gaps = list(_PAIR.iter_unpack(row.gaps))
        if any(agreed >= first for agreed, first in gaps) or row.cut > row.high_water or row.epoch > epoch:
            yield fault(DELTA_GATEWAY, (row.name,), "Its epoch, its cut or its gaps are above its log.")
        if pack(row.name) != row.gateway:
            yield fault(DELTA_GATEWAY, (row.name,), "The gateway is stored under another name than its own.")
    yield from _counted(walk, found)
    yield from _clients(walk, found)


def _counted(walk: StoreWalk, found: dict[bytes, DeltaGatewayRow]) -> Iterator[StoreFault]:
    """The schemas and clients of each gateway are counted."""
    for table, column in ((DELTA_SCHEMA, "schemas"), (DELTA_REPLICA, "replicas")):
        counts = Counter(key[0] for key in walk.keys(table))
        for key in counts.keys() | found.keys():
            gateway = found.get(key)
            if gateway is None:
                yield fault(table, (key,), "It belongs to no gateway.")
            elif getattr(gateway, column) != counts[key]:
                yield fault(table, (gateway.name,), f"The gateway counts {getattr(gateway, column)} of {counts[key]}.")


def _clients(walk: StoreWalk, found: dict[bytes, DeltaGatewayRow]) -> Iterator[StoreFault]:
    """What clients have seen and what repairs there were is within the log."""
    for replica in walk.rows(DELTA_REPLICA):
        gateway = found.get(replica.gateway)
        if gateway is not None and max(replica.seen, replica.muted) > gateway.high_water:
            yield fault(DELTA_REPLICA, replica[:3], "The client has seen more than the log has.")
    for author in walk.rows(DELTA_AUTHOR):
        gateway = found.get(author.gateway)
        if gateway is None or max(author.repaired_at, author.inserted_at) > gateway.high_water:
            yield fault(DELTA_AUTHOR, author[:2], "It belongs to no gateway, or is above its log.")


def log(walk: StoreWalk) -> Iterator[StoreFault]:
    """The log of each gateway is within its positions, and each delta has the id of its content."""
    found = _gateways(walk)
    trusting = {key[0] for key in walk.keys(DELTA_LEGACY_ID)}
    entries: Counter[bytes] = Counter()
    sizes: Counter[bytes] = Counter()
    for row in walk.rows(DELTA_LOG):
        gateway = found.get(row.gateway)
        if gateway is None:
            yield fault(DELTA_LOG, row[:2], "It belongs to no gateway.")
            continue
        where = (gateway.name, row.position)
        entries[row.gateway] += row.op > 0
        sizes[row.gateway] += len(row.body) + len(row.row_id) + len(row.client)
        if not gateway.cut < row.position <= gateway.high_water:
            yield fault(DELTA_LOG, where, f"It is not between the positions {gateway.cut} and {gateway.high_water}.")
        if any(agreed < row.position < first for agreed, first in _PAIR.iter_unpack(gateway.gaps)):
            yield fault(DELTA_LOG, where, "It is at a position that an epoch has skipped.")
        if row.pushed and row.position < row.hlc:
            yield fault(DELTA_LOG, where, "Its time is above its position.")
        if row.pushed and row.gateway not in trusting and _content_id(row) != row.id:
            yield fault(DELTA_LOG, where, "Its content does not have the hash that is its id.")
    for key, gateway in found.items():
        if gateway.entries != entries[key]:
            yield fault(DELTA_GATEWAY, (gateway.name,), f"It counts {gateway.entries} entries and has {entries[key]}.")
        if gateway.size < sizes[key]:
            yield fault(DELTA_GATEWAY, (gateway.name,), f"It counts {gateway.size} bytes of {sizes[key]}.")


def _content_id(row: DeltaLogRow) -> bytes:
    return sha256(
        b'{"clientId":%s,"columns":%s,"hlc":"%d","rowId":%s,"table":"%s"}'
        % (row.client, row.body, row.hlc, row.row_id, row.table_name)
    ).digest()


def ids(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each id names the position of its delta, and each delta has an id."""
    found = _gateways(walk)
    counts: Counter[bytes] = Counter()
    kept: Counter[bytes] = Counter()
    tables: tuple[AnyTable, ...] = (DELTA_ID, DELTA_LEGACY_ID)
    for table in tables:
        for group in in_groups(walk.rows(table), _FOUND_AT_ONCE):
            rows = walk.find(DELTA_LOG, [(row.gateway, row.position) for row in group])
            for one in group:
                gateway, row = found.get(one.gateway), rows.get((one.gateway, one.position))
                if table is DELTA_ID:
                    counts[one.gateway] += 1
                    kept[one.gateway] += row is not None
                if row is None and (gateway is None or one.position > gateway.cut):
                    yield fault(table, one[: table.key], f"There is no delta at its position {one.position}.")
                elif row is not None and (row.id, row.hlc) != (one.id, getattr(one, "hlc", row.hlc)):
                    yield fault(table, one[: table.key], f"Another delta is at its position {one.position}.")
    pushed = Counter(row.gateway for row in walk.rows(DELTA_LOG) if row.pushed)
    for key, gateway in found.items():
        if gateway.deltas != counts[key]:
            yield fault(DELTA_GATEWAY, (gateway.name,), f"It counts {gateway.deltas} deltas and has {counts[key]} ids.")
        if kept[key] != pushed[key]:
            yield fault(DELTA_ID, (gateway.name,), f"{kept[key]} ids name the {pushed[key]} deltas of the log.")


def rows(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each row has a number, and each number a row."""
    found = _gateways(walk)
    counts: Counter[bytes] = Counter()
    for page in walk.pages(DELTA_ROW_NUMBER):
        for group in in_groups(page, _FOUND_AT_ONCE):
            places = walk.find(DELTA_ROW, [(one.gateway, one.table_name, one.number) for one in group])
            for one in group:
                counts[one.gateway] += 1
                row = places.get((one.gateway, one.table_name, one.number))
                if row is None or pack(row.row_id[1:-1]) != one.row_key:
                    yield fault(
                        DELTA_ROW_NUMBER, one[:3], f"The row of its number {one.number} is not there, or another."
                    )
    there = Counter(key[0] for key in walk.keys(DELTA_ROW))
    for key in found.keys() | counts.keys() | there.keys():
        gateway = found.get(key)
        if gateway is None:
            yield fault(DELTA_ROW, (key,), "It belongs to no gateway.")
        elif not gateway.rows == counts[key] == there[key]:
            said = f"It counts {gateway.rows} rows and has {there[key]}, with {counts[key]} numbers."
            yield fault(DELTA_GATEWAY, (gateway.name,), said)


class _Merged:
    """A row as its deltas make it."""

    __slots__ = ("deleted", "values", "written")

    def __init__(self) -> None:
        self.deleted: _Stamp | None = None
        self.written: _Stamp | None = None
        self.values: dict[str, tuple[_Stamp, bytes]] = {}

    def fold(self, row: DeltaLogRow) -> None:
        stamp = _stamp(row.hlc, row.client.decode(), row.id.hex())
        if row.pushed == _DELETE:
            self.deleted = stamp if self.deleted is None else max(self.deleted, stamp)
            return
        self.written = stamp if self.written is None else max(self.written, stamp)
        for one in json.loads(row.body):
            known = self.values.get(one["column"])
            if known is None or known[0] < stamp:
                self.values[one["column"]] = stamp, _digest(one["value"])

    def facts(self) -> tuple[Any, ...]:
        """What is compared: values that are not newer than the last delete are gone."""
        deleted = self.deleted
        living = {name: cell for name, cell in self.values.items() if deleted is None or cell[0] > deleted}
        return deleted, self.written, living


class _Stamp(NamedTuple):
    """The order of writes: by time, then by author in UTF-16 code units, then by id."""

    hlc: int
    author: bytes
    id: str


def _stamp(hlc: int, client: str, name: str) -> _Stamp:
    author: str = json.loads(client)
    return _Stamp(hlc, author.encode("utf-16-be", "surrogatepass"), name)


def _digest(value: Any) -> bytes:
    """What is held of a value in memory, however large the value is."""
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).digest()


def winners(walk: StoreWalk) -> Iterator[StoreFault]:
    """The state of each row is that of its deltas: the last write of each column, and the last delete."""
    found = _gateways(walk)
    total = sum(row.rows for row in found.values())
    for number in range(passes := -(-total // _FOLDED_ROWS)):
        merged: dict[Key, _Merged] = {}
        for row in walk.rows(DELTA_LOG):
            key = (row.gateway, row.table_name, row.row_id)
            if row.pushed and token_of(key) % passes == number and _is_whole(found.get(row.gateway)):
                merged.setdefault(key, _Merged()).fold(row)
        for stored in walk.rows(DELTA_ROW):
            key = (stored.gateway, stored.table_name, stored.row_id)
            if token_of(key) % passes != number or not _is_whole(found.get(stored.gateway)):
                continue
            wanted = merged.pop(key, None)
            if wanted is None or wanted.facts() != _state(stored.state):
                yield fault(DELTA_ROW, key[1:], "Its columns are not those that the deltas of its log make.")
        for key in merged:
            yield fault(DELTA_ROW, key[1:], "There are deltas of this row, and the row is not there.")


def _is_whole(gateway: DeltaGatewayRow | None) -> bool:
    return gateway is not None and not gateway.cut


def _state(stored: bytes) -> tuple[Any, ...]:
    """The stored state of a row, in either form."""
    facts = json.loads(stored)
    if isinstance(facts, list):
        hlc, client, name, _, _, columns = facts
        stamp = _stamp(hlc, client, name)
        return None, stamp, {one["column"]: (stamp, _digest(one["value"])) for one in columns}
    stamps = [_stamp(*one) for one in facts["s"]]
    deleted, written = (None if facts[name] < 0 else stamps[facts[name]] for name in "dw")
    cells = {name: (stamps[at], _digest(orjson.loads(value))) for name, at, value in facts["c"]}
    return deleted, written, cells


CHECKS: tuple[Check, ...] = (gateways, log, ids, rows, winners)
