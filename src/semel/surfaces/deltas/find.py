"""Deltas by their id, which is the hash of their content.

A known delta is stored under its gateway, its time and its id. Without a place, the gateways that the caller may read
are tried. `ID@HLC` is found by its key. An id alone is compared with the ids of all known deltas, up to a number of
them; in a larger store with the newest entries of each log, and then the answer says that it is not complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from semel.engine.reading import Reading
from semel.kernel.hashes import json_text
from semel.kernel.hlc import COUNTER_BITS, read_hlc
from semel.kernel.verdict import Verdict
from semel.server.auth.principals import Principal, Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, name_pages, path_of, probe_pages
from semel.store.protocol import Range
from semel.store.scopes import ScopeProbe
from semel.store.table import Key, Table, bytes_of
from semel.surfaces.deltas.access import SURFACE
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LEGACY_ID,
    DELTA_LOG,
    DeltaGatewayRow,
    DeltaIdRow,
    DeltaLegacyIdRow,
    DeltaLogRow,
    gateway_key,
)

HINT = "Not every gateway was tried: name the gateway with `in`."
SCAN_HINT = "Only the newest deltas were compared: give the delta as ID@HLC."
MAX_COMPARED = 2_000_000
"""Known deltas that the id of one is compared with: about 0.1 s."""
FIRST_ROWS, MOST_ROWS = 16, 500
PAGE_BYTES = 256 * 1024
"""About the bytes of log entries that are read at once."""
_ID = re.compile(r"([0-9a-f]{64})(?:@([0-9]{1,20}))?")


class DeltaIdentity(NamedTuple):
    """The id of a delta, and its time, if the query has it."""

    id: bytes
    hlc: int | None


class KnownDelta(NamedTuple):
    """A delta in a gateway that the caller may read; the entry is None if the log was cut behind it."""

    gateway: DeltaGatewayRow
    id: bytes
    position: int
    entry: DeltaLogRow | None


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The delta of this id, in each gateway that has it."""
    identity = _parsed(query)
    if identity is None or not query.caller.has(Role.READ) or not query.caller.reach(SURFACE):
        return
    for delta in _known(reading, query, identity, budget):
        if _is_visible(query, delta.gateway, delta.entry):
            yield _found(delta)


def _known(reading: Reading, query: WriteQuery, identity: DeltaIdentity, budget: ProbeBudget) -> Iterator[KnownDelta]:
    if identity.hlc is not None:
        for rows in _probed(reading, query, DELTA_ID, (identity.hlc, identity.id), budget):
            yield from _with_entries(reading, query, rows)
        return
    keys = reading.keys_ending(DELTA_ID, identity.id, MAX_COMPARED) if budget.take(1) else None
    if keys is not None:
        yield from _with_entries(reading, query, [row for _, row in sorted(reading.find(DELTA_ID, keys).items())])
        return
    yield from _newest(reading, query, identity.id, budget)
    budget.end(SCAN_HINT)


def _newest(reading: Reading, query: WriteQuery, wanted: bytes, budget: ProbeBudget) -> Iterator[KnownDelta]:
    """The delta of an id where ids are trusted; and among the newest entries of each log, which may have been cut."""
    told = set()
    for rows in _probed(reading, query, DELTA_LEGACY_ID, (wanted,), budget):
        for delta in _with_entries(reading, query, rows):
            told.add(delta.gateway.gateway)
            yield delta
    for gateways in _gateways(reading, query, budget):
        for gateway in gateways:
            entry = None if gateway.gateway in told else _scanned(reading, gateway, wanted, budget)
            if entry is not None:
                yield KnownDelta(gateway, wanted, entry.position, entry)


def _parsed(query: WriteQuery) -> DeltaIdentity | None:
    found = _ID.fullmatch(query.text or "")
    if found is None:
        return None
    hlc = None if found[2] is None else read_hlc(found[2])
    return None if found[2] is not None and hlc is None else DeltaIdentity(bytes.fromhex(found[1]), hlc)


DeltaIds = Sequence[DeltaIdRow | DeltaLegacyIdRow]


def _probed(
    reading: Reading, query: WriteQuery, table: Table[Any], rest: Key, budget: ProbeBudget
) -> Iterator[DeltaIds]:
    """The known deltas with this rest of a key, in the gateways that the query means."""
    names = _names(query)
    if names is not None:
        for some in name_pages(names, budget, HINT):
            yield list(reading.find(table, [(gateway_key(name), *rest) for name in some]).values())
        return
    for (rows,) in probe_pages(reading, Range(DELTA_GATEWAY, "", (), 1), [ScopeProbe(table, rest)], budget, HINT):
        yield [row for _, row in sorted(rows.items())]


def _names(query: WriteQuery) -> Sequence[str] | None:
    """The gateways that the query means and the caller may read; None if they have to be told apart one by one."""
    reach = query.caller.reach(SURFACE)
    if query.place is not None:
        named = [query.place] if query.caller.may(Role.READ, SURFACE, query.place) else []
    elif any(is_prefix for _, is_prefix in reach):
        return None
    else:
        named = [name for name, _ in reach]
    return [text for text in map(_decoded, named) if text is not None]


def _decoded(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _with_entries(reading: Reading, query: WriteQuery, rows: DeltaIds) -> Iterator[KnownDelta]:
    """These deltas with their gateways and entries, of the gateways that the query means and the caller may read."""
    gateways = reading.find(DELTA_GATEWAY, [(row.gateway,) for row in rows])
    for row in rows:
        gateway = gateways.get((row.gateway,))
        if gateway is not None and _is_meant(query, gateway):
            entry = reading.get(DELTA_LOG, (row.gateway, row.position))
            yield KnownDelta(gateway, row.id, row.position, entry)


def _is_meant(query: WriteQuery, gateway: DeltaGatewayRow) -> bool:
    """Whether the query means a gateway, and the caller may read it."""
    is_named = query.place in (None, gateway.name)
    return is_named and bool(gateway.name) and query.caller.may(Role.READ, SURFACE, gateway.name)


def _gateways(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[Sequence[DeltaGatewayRow]]:
    """The gateways that the query means and the caller may read."""
    names = _names(query)
    if names is not None:
        found = reading.find(DELTA_GATEWAY, [(gateway_key(name),) for name in names])
        pages: Iterator[Sequence[DeltaGatewayRow]] = iter([[row for _, row in sorted(found.items())]])
    else:
        pages = _gateway_pages(reading, budget)
    for rows in pages:
        yield [row for row in rows if _is_meant(query, row)]


def _gateway_pages(reading: Reading, budget: ProbeBudget) -> Iterator[Sequence[DeltaGatewayRow]]:
    after: Key = ()
    while limit := budget.take(MOST_ROWS):
        rows: Sequence[DeltaGatewayRow] = reading.range(Range(DELTA_GATEWAY, "", (), limit, start=after))
        budget.give_back(limit - len(rows))
        yield rows
        if len(rows) < limit:
            return
        after = (rows[-1].gateway + b"\0",)
    budget.end(HINT)


def _scanned(reading: Reading, gateway: DeltaGatewayRow, wanted: bytes, budget: ProbeBudget) -> DeltaLogRow | None:
    """The entry of an id among the newest of a log; pages are smaller if entries are large."""
    size, stop = FIRST_ROWS, tuple[int, ...]()
    while True:
        limit = budget.take(size)
        below = Range(DELTA_LOG, "", (gateway.gateway,), limit or 1, stop=stop, reverse=True)
        rows: Sequence[DeltaLogRow] = reading.range(below) if limit else ()
        if not limit:
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


def _found(delta: KnownDelta) -> FoundWrite:
    gateway, entry = delta.gateway, delta.entry
    effect: dict[str, object] = {"kind": "delta", "path": None, "id": delta.id.hex(), "position": str(delta.position)}
    client = None
    if entry is not None:
        pull = f"/pull?dialect=plain&clientId=find&since={delta.position - 1}&limit=1"
        effect["path"] = path_of("/v1/sync/", gateway.name) + pull
        effect |= {"table": entry.table_name.decode(), "row_id": orjson.loads(entry.row_id), "hlc": str(entry.hlc)}
        client = str(orjson.loads(entry.client))
    answer = {"verdict": Verdict.REPLAY.value, "status": 200, "duplicate": True}
    key = delta_retries(gateway.gateway, delta.id)
    at = delta.position >> COUNTER_BITS
    return FoundWrite(SURFACE, "delta_id", gateway.name.decode(), at, client, effect, answer, None, key)


def delta_retries(gateway: bytes, delta: bytes) -> bytes:
    """The key of the retries of a delta."""
    return gateway + delta
