"""Deltas by their id, which is the hash of their content.

A known delta is stored under its gateway, its time and its id. Without a place, the gateways that the caller may read
are tried. `ID@HLC` is exact; for an id alone, the newest entries of each log are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from semel.engine.reading import Reading
from semel.kernel.hashes import json_text
from semel.kernel.hlc import COUNTER_BITS, read_hlc
from semel.kernel.verdict import Verdict
from semel.server.auth.principals import Principal, Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, key_pages, path_of
from semel.store.protocol import Range
from semel.store.table import bytes_of
from semel.surfaces.deltas.access import SURFACE
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LEGACY_ID,
    DELTA_LOG,
    DeltaGatewayRow,
    DeltaLogRow,
    gateway_key,
)

HINT = "Not every gateway was tried: name the gateway with `in`."
SCAN_HINT = "Only the newest deltas were compared: give the delta as ID@HLC."
FIRST_ROWS, MOST_ROWS = 16, 500
PAGE_BYTES = 256 * 1024
"""About the bytes of log entries that are read at once."""
_ID = re.compile(r"([0-9a-f]{64})(?:@([0-9]{1,20}))?")


class DeltaIdentity(NamedTuple):
    """The id of a delta, and its time, if the query has it."""

    id: bytes
    hlc: int | None


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The delta of this id, in each gateway that has it."""
    identity = _parsed(query)
    if identity is None:
        return
    for gateways in _gateways(reading, query, budget):
        if identity.hlc is None:
            keys = [(row.gateway, identity.id) for row in gateways]
            known = {key[0]: row.position for key, row in reading.find(DELTA_LEGACY_ID, keys).items()}
        else:
            places = [(row.gateway, identity.hlc, identity.id) for row in gateways]
            known = {key[0]: row.position for key, row in reading.find(DELTA_ID, places).items()}
        for gateway in gateways:
            position = known.get(gateway.gateway)
            if position is None and identity.hlc is None:
                entry = _scanned(reading, gateway, identity.id, budget)
            elif position is None:
                continue
            else:
                entry = reading.get(DELTA_LOG, (gateway.gateway, position))
            if (entry is not None or position is not None) and _is_visible(query, gateway, entry):
                yield _found(gateway, identity.id, position or 0, entry)


def _parsed(query: WriteQuery) -> DeltaIdentity | None:
    found = _ID.fullmatch(query.text or "")
    if found is None:
        return None
    hlc = None if found[2] is None else read_hlc(found[2])
    return None if found[2] is not None and hlc is None else DeltaIdentity(bytes.fromhex(found[1]), hlc)


def _gateways(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[Sequence[DeltaGatewayRow]]:
    """The gateways that the caller may read."""
    if not query.caller.has(Role.READ):
        return
    if query.place is not None:
        name = query.place_text
        row = None if name is None else reading.get(DELTA_GATEWAY, (gateway_key(name),))
        pages: Iterator[Sequence[DeltaGatewayRow]] = iter([[row] if row is not None else []])
    else:
        keys = key_pages(reading, Range(DELTA_GATEWAY, "", (), 1), budget, HINT)
        pages = (list(reading.find(DELTA_GATEWAY, page).values()) for page in keys)
    for rows in pages:
        yield [row for row in rows if row.name and query.caller.may(Role.READ, SURFACE, row.name)]


def _scanned(reading: Reading, gateway: DeltaGatewayRow, wanted: bytes, budget: ProbeBudget) -> DeltaLogRow | None:
    """The entry of an id among the newest of a log; pages are smaller if entries are large."""
    size, stop = FIRST_ROWS, tuple[int, ...]()
    while True:
        limit = budget.take(size)
        below = Range(DELTA_LOG, "", (gateway.gateway,), limit or 1, stop=stop, reverse=True)
        rows: Sequence[DeltaLogRow] = reading.range(below) if limit else ()
        if not limit and reading.keys(below):
            budget.end(SCAN_HINT)
            return None
        budget.give_back(limit - len(rows))
        entry = next((row for row in rows if row.id == wanted and row.pushed), None)
        if entry is not None or len(rows) < (limit or 1):
            return entry
        mean = 1 + sum(map(bytes_of, rows)) // len(rows)
        size, stop = max(4, min(MOST_ROWS, PAGE_BYTES // mean)), (rows[-1].position,)


def _is_visible(query: WriteQuery, gateway: DeltaGatewayRow, entry: DeltaLogRow | None) -> bool:
    """Whether the caller may see a delta: with sync rules, only its author and administrators of the gateway may."""
    if not gateway.rules or query.caller.may(Role.ADMIN, SURFACE, gateway.name):
        return True
    return entry is not None and query.has_credentials and entry.client in _authors(query.caller)


def _authors(caller: Principal) -> tuple[bytes, ...]:
    return json_text(caller.name).encode(), json_text(caller.client_id).encode()


def _found(gateway: DeltaGatewayRow, delta: bytes, position: int, entry: DeltaLogRow | None) -> FoundWrite:
    name = gateway.name.decode()
    position = position if entry is None else entry.position
    effect: dict[str, object] = {"kind": "delta", "path": None, "id": delta.hex(), "position": str(position)}
    client = None
    if entry is not None:
        pull = f"/pull?dialect=plain&clientId=find&since={position - 1}&limit=1"
        effect["path"] = path_of("/v1/sync/", gateway.name) + pull
        effect |= {"table": entry.table_name.decode(), "row_id": orjson.loads(entry.row_id), "hlc": str(entry.hlc)}
        client = str(orjson.loads(entry.client))
    answer = {"verdict": Verdict.REPLAY.value, "status": 200, "duplicate": True}
    key = delta_retries(gateway.gateway, delta)
    return FoundWrite(SURFACE, "delta_id", name, position >> COUNTER_BITS, client, effect, answer, None, key)


def delta_retries(gateway: bytes, delta: bytes) -> bytes:
    """The key of the retries of a delta."""
    return gateway + delta
