"""Rows for look-ups of writes: a store is filled in bulk, without a server, with the receipts of one surface.

The receipts are spread evenly over a number of scopes: streams, partitions, principals, places of the ledger with one
client each, or gateways (`find_numbers`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from bench.find_numbers import (
    BEGAN_MS,
    PLACES_OF_ORG,
    delta_of,
    hlc_of,
    job_of,
    key_of,
    place_of,
    scope_of,
    transaction_of,
)
from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Changes, Row, Store
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LOG,
    DeltaGatewayRow,
    DeltaIdRow,
    DeltaLogRow,
    gateway_key,
)
from semel.surfaces.events.tables import EVENT, EVENT_HEAD, EVENT_ID, EventHeadRow, EventIdRow, EventRow
from semel.surfaces.jobs.tables import (
    AS_QUEUED,
    DONE,
    JOB,
    JOB_RECORD,
    JOB_TENANT,
    LISTED_COMPLETED,
    JobRecordRow,
    JobRow,
    JobTenantRow,
)
from semel.surfaces.ledger.tables import (
    LEDGER_BLOCK,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    BlockRow,
    KeyRow,
    LedgerStreamRow,
    OrgRow,
    PlaceRow,
)
from semel.surfaces.streams.tables import (
    CHUNK,
    PRODUCER,
    RECEIPT,
    STREAM,
    ChunkRow,
    ProducerRow,
    ReceiptRow,
    StreamRow,
)

R = TypeVar("R")

FILLED_AT_ONCE = 10_000
FAR_MS = 2**42
"""No receipt expires while it is measured."""

Filled = Mapping[AnyTable, Sequence[Row]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def blank(row: Callable[..., R], **columns: Any) -> R:
    """A row with these columns; the others are 0."""
    names: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
    return row(**(dict.fromkeys(names, 0) | columns))


def stream_scopes(scopes: int, each: int) -> Filled:
    made, producers = [], []
    for number in range(scopes):
        name, now = scope_of(number).encode(), now_ms()
        life = number.to_bytes(16, "big")
        kind, nothing = b"text/plain", (None, None, None)
        made.append(StreamRow(pack(name), name, life, kind, *nothing, NEVER, now, now, each, 0, None, None, None, None))
        producers.append(ProducerRow(pack(name), pack(b"producer-%06d" % number), life, 0, 7))
    return {STREAM: made, PRODUCER: producers}


def stream_rows(numbers: range, scopes: int) -> Filled:
    """Appends of one byte."""
    receipts, chunks = [], []
    for number in numbers:
        tail, life = number // scopes + 1, (number % scopes).to_bytes(16, "big")
        scope, key = pack(scope_of(number % scopes).encode()), pack(key_of(number).encode())
        receipts.append(ReceiptRow(scope, key, life, bytes(32), FAR_MS, 204, tail, 0, None, None))
        chunks.append(ChunkRow(life, tail, b"x", 1, BEGAN_MS))
    return {RECEIPT: receipts, CHUNK: chunks}


def event_scopes(scopes: int, each: int) -> Filled:
    return {EVENT_HEAD: [EventHeadRow(b"", scopes * each, BEGAN_MS, 0)]}


def event_rows(numbers: range, scopes: int) -> Filled:
    events, ids = [], []
    for number in numbers:
        name, names = key_of(number).encode(), b'["%s"]' % scope_of(number % scopes).encode()
        events.append(EventRow(number + 1, name, b"filled", b"", BEGAN_MS, names, b'{"type":"t"}'))
        ids.append(EventIdRow(pack(name), number + 1, BEGAN_MS, bytes(32)))
    return {EVENT: events, EVENT_ID: ids}


def job_scopes(scopes: int, each: int) -> Filled:
    return {JOB_TENANT: [JobTenantRow(scope_of(number).encode(), each) for number in range(scopes)]}


_NO_BYTES = ["key", "worker", "holder", "reason", "report", "params", "result", "client", "start", "progress", "errors"]
_DONE_JOB = blank(
    JobRow,
    **dict.fromkeys([*_NO_BYTES, "lease", "links"], b""),
    kind=b"k",
    queue=b"default",
    phase=DONE,
    due_at=FAR_MS,
    created_at=BEGAN_MS,
    finished_at=BEGAN_MS,
    counted=AS_QUEUED,
    listed=LISTED_COMPLETED,
    key_until=FAR_MS,
)


def job_rows(numbers: range, scopes: int) -> Filled:
    jobs, records = [], []
    for number in numbers:
        principal, key, job = scope_of(number % scopes).encode(), pack(key_of(number).encode()), job_of(number)
        jobs.append(_DONE_JOB._replace(id=job, principal=principal, key=key))
        records.append(JobRecordRow(principal, key, bytes(32), job, BEGAN_MS, BEGAN_MS))
    return {JOB: jobs, JOB_RECORD: records}


def ledger_scopes(scopes: int, each: int) -> Filled:
    count = -(-scopes // PLACES_OF_ORG)
    orgs = [blank(OrgRow, org=1 + number, name=b"o", status=1) for number in range(count)]
    empty = blank(PlaceRow, status=1, height=each, tip_hash=bytes(32), state_root=bytes(32))
    places, streams = [], []
    for number in range(scopes):
        org, vault = place_of(number)
        places.append(empty._replace(org=org, vault=vault))
        streams.append(LedgerStreamRow(org, vault, b"client-%06d" % number, 1, each, FAR_MS // 1_000, each, b""))
    return {LEDGER_ORG: orgs, LEDGER_PLACE: places, LEDGER_STREAM: streams}


def ledger_rows(numbers: range, scopes: int) -> Filled:
    blocks, keys = [], []
    digest, second = bytes(32), BEGAN_MS // 1_000
    for number in numbers:
        place, client = place_of(number % scopes), b"client-%06d" % (number % scopes)
        height, key, made = number // scopes + 1, UUID(key_of(number)).bytes, transaction_of(number, scopes)
        block = BlockRow(
            *place, height, digest, digest, digest, second, 0, 1, height, b"node", 1,
            client, 1, height, key, digest, made, b"client:filled", 0, b"", b"x",
        )  # fmt: skip
        blocks.append(block)
        keys.append(KeyRow(*place, client, key, 1, height))
    return {LEDGER_BLOCK: blocks, LEDGER_KEY: keys}


def delta_scopes(scopes: int, each: int) -> Filled:
    nothing = {"authors": b"[]", "rules": b"", "gaps": b""}
    empty = blank(DeltaGatewayRow, high_water=FAR_MS << 16, entries=each, deltas=each, **nothing)
    names = [scope_of(number) for number in range(scopes)]
    return {DELTA_GATEWAY: [empty._replace(gateway=gateway_key(name), name=name.encode()) for name in names]}


def delta_rows(numbers: range, scopes: int) -> Filled:
    ids, log = [], []
    body = b'[{"column":"title","value":"Buy milk"}]'
    for number in numbers:
        gateway, hlc, delta = gateway_key(scope_of(number % scopes)), hlc_of(number), delta_of(number)
        ids.append(DeltaIdRow(gateway, hlc, delta, hlc))
        row = (b"todos", b'"row-%d"' % number, b'"client"', 1, body, 1, None, None, b"")
        log.append(DeltaLogRow(gateway, hlc, hlc, delta, *row))
    return {DELTA_ID: ids, DELTA_LOG: log}


SURFACES: Mapping[str, tuple[Callable[[int, int], Filled], Callable[[range, int], Filled]]] = {
    "streams": (stream_scopes, stream_rows),
    "events": (event_scopes, event_rows),
    "jobs": (job_scopes, job_rows),
    "ledger": (ledger_scopes, ledger_rows),
    "deltas": (delta_scopes, delta_rows),
}
"""The rows of the scopes, and those of some receipts."""


def fill(store: Store, surface: str, receipts: int, scopes: int) -> None:
    """Store everything, in transactions that wait for no disk."""
    of_scopes, of_receipts = SURFACES[surface]
    for rows in _parts(of_scopes, of_receipts, receipts, scopes):
        tx = store.begin((), durable=False)
        tx.flush(Changes(rows, {}, {}).summed())
        tx.commit()
        store.tidy()


def _parts(
    of_scopes: Callable[[int, int], Filled], of_receipts: Callable[[range, int], Filled], receipts: int, scopes: int
) -> Iterator[Filled]:
    yield of_scopes(scopes, receipts // scopes)
    for at in range(0, receipts, FILLED_AT_ONCE):
        yield of_receipts(range(at, min(at + FILLED_AT_ONCE, receipts)), scopes)
