"""Reads of administrators over HTTP: the tables of a gateway, its merged rows, and the log entries of one row.

A merged row tells of each column by which delta it was set. The entries of a row have no index of their own: a page of
them looks at `SCANNED` positions of the log at the most, and says where to read on. Sync rules do not apply here, and
deltas that have lost are shown, as they were pushed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from semel.engine.reading import Reading
from semel.kernel.json.canonical import parse
from semel.server.http.answer import JSON, Answer
from semel.server.thread_pool import apart
from semel.store.protocol import Range
from semel.surfaces.deltas.exchange import DeltaRequest, answer_json
from semel.surfaces.deltas.model import DeltaOp
from semel.surfaces.deltas.reading import log_rows
from semel.surfaces.deltas.rules.gateways import present_gateway
from semel.surfaces.deltas.rules.last_writer_wins import DeltaStamp, RowState, load_state
from semel.surfaces.deltas.service import DeltaService
from semel.surfaces.deltas.tables import (
    DELTA_ROW,
    DeltaLogRow,
    DeltaRowRow,
    find_row,
    gateway_key,
    text_key,
)
from semel.surfaces.deltas.wire.urls import RowQuery, parse_listing, parse_row_query

SCANNED, SCANNED_BYTES = 5_000, 8 * 1024 * 1024
"""Positions of the log, and about the bytes of their columns, that one page of the entries of a row looks at."""
LOG_ROWS_AT_ONCE = 16
LAST_NUMBER = 2**63 - 1
"""The greatest number that a row can have."""
ROWS_AT_ONCE = 8
PAGE_BYTES = 1024 * 1024
"""Approximate limit of bytes of a page, which has at least one item."""


class _RowPage(NamedTuple):
    """Merged rows, and the number of the last one if there are more."""

    rows: Sequence[DeltaRowRow]
    after: int | None


class _EntryPage(NamedTuple):
    """Entries of one row, and the part of the log that they are from."""

    entries: Sequence[DeltaLogRow]
    position: int
    """The last position that was looked at."""
    has_more: bool
    cut: int
    """The log up to here has been removed."""
    end: int
    """The end of the log."""


class DeltaRowReads:
    """The HTTP handlers of these calls."""

    def __init__(self, service: DeltaService) -> None:
        self._service = service

    async def tables(self, request: DeltaRequest) -> Answer:
        """GET: the names of the tables that have rows, in their order."""
        wanted = parse_listing(request.query)
        start = () if wanted.after is None else (wanted.after.encode("utf-8", "surrogatepass") + b"\x00",)
        asked = Range(DELTA_ROW, "", (gateway_key(request.gateway),), wanted.limit + 1, start=start)
        found: Sequence[bytes] = await self._service.look(lambda reading: reading.distinct(asked))
        names = [one.decode() for one in found[: wanted.limit]]
        return answer_json({"tables": names, "hasMore": len(found) > wanted.limit})

    async def rows(self, request: DeltaRequest) -> Answer:
        """GET: merged rows of a table in the order of their creation, or one row."""
        wanted = parse_row_query(request.query)
        page = await self._service.look(partial(_rows, gateway=gateway_key(request.gateway), wanted=wanted))
        body = await apart(sum(len(row.state) for row in page.rows), _rows_body, page)
        return Answer(200, [JSON], body)

    async def entries(self, request: DeltaRequest) -> Answer:
        """GET: the deltas of one row, or those that concern one of its columns, oldest first."""
        wanted = parse_row_query(request.query, needs_row=True)
        page = await self._service.look(partial(_entries, gateway=request.gateway, wanted=wanted))
        body = await apart(sum(len(row.body) for row in page.entries), _entries_body, page)
        return Answer(200, [JSON], body)


def _rows(reading: Reading, gateway: bytes, wanted: RowQuery) -> _RowPage:
    table = wanted.table.encode()
    if wanted.row is not None:
        row = find_row(reading, (gateway, table, text_key(wanted.row)))
        return _RowPage([] if row is None else [row], None)
    rows: list[DeltaRowRow] = []
    size, after = 0, wanted.after
    while after is None or after < LAST_NUMBER:
        most = min(ROWS_AT_ONCE, wanted.limit - len(rows))
        start = () if after is None else (after + 1,)
        some: Sequence[DeltaRowRow] = reading.range(Range(DELTA_ROW, "", (gateway, table), most, start=start))
        rows += some
        if len(some) < most:
            return _RowPage(rows, None)
        after = rows[-1].number
        size += sum(len(row.state) for row in some)
        if len(rows) >= wanted.limit or size > PAGE_BYTES:
            return _RowPage(rows, after)
    return _RowPage(rows, None)


def _rows_body(page: _RowPage) -> bytes:
    rows = ",".join(_row_text(load_state(row.row_id.decode(), row.state)) for row in page.rows)
    after = "null" if page.after is None else f'"{page.after}"'
    return f'{{"rows":[{rows}],"next":{after}}}'.encode()


def _row_text(state: RowState) -> str:
    cells = sorted(state.cells.items()) if state.is_live else ()
    columns = ",".join(f'{{"column":"{name}","value":{cell.value},{_stamp_text(cell.stamp)}}}' for name, cell in cells)
    is_deleted = "false" if state.is_live else "true"
    return f'{{"rowId":{state.row},"isDeleted":{is_deleted},{_stamp_text(state.last)},"columns":[{columns}]}}'


def _stamp_text(stamp: DeltaStamp) -> str:
    return f'"hlc":"{stamp.hlc}","clientId":{stamp.client},"deltaId":"{stamp.id}"'


def _entries(reading: Reading, gateway: str, wanted: RowQuery) -> _EntryPage:
    known = present_gateway(reading, gateway)
    if known is None:
        return _EntryPage((), 0, False, 0, 0)
    after = max(wanted.after or 0, known.cut)
    found: list[DeltaLogRow] = []
    size, seen, position = 0, 0, after
    for scanned, row in enumerate(log_rows(reading, known.gateway, after, LOG_ROWS_AT_ONCE), 1):
        position = row.position
        seen += len(row.body)
        if _is_about(row, wanted):
            found.append(row)
            size += len(row.body)
        is_full = len(found) >= wanted.limit or size > PAGE_BYTES
        if is_full or scanned >= SCANNED or seen > SCANNED_BYTES:
            return _EntryPage(found, position, position < known.high_water, known.cut, known.high_water)
    return _EntryPage(found, position, False, known.cut, known.high_water)


def _is_about(row: DeltaLogRow, wanted: RowQuery) -> bool:
    """Whether a position has a pushed delta of the row that concerns the column; a DELETE concerns every column."""
    if not row.pushed or row.table_name != wanted.table.encode() or row.row_id != (wanted.row or "").encode():
        return False
    return not wanted.column or row.pushed == DeltaOp.DELETE or _has_column(row, wanted.column)


def _has_column(row: DeltaLogRow, column: str) -> bool:
    """Whether a delta sets a column. A large delta takes long to parse: only one whose text names the column is."""
    if f'"column":"{column}"'.encode() not in row.body:
        return False
    columns: Any = parse(row.body)
    return any(one["column"] == column for one in columns)


def _entries_body(page: _EntryPage) -> bytes:
    entries = ",".join(_entry_text(row) for row in page.entries)
    more = "true" if page.has_more else "false"
    place = f'"position":"{page.position}","hasMore":{more},"cut":"{page.cut}","end":"{page.end}"'
    return f'{{"entries":[{entries}],{place}}}'.encode()


def _entry_text(row: DeltaLogRow) -> str:
    stamp = f'"hlc":"{row.hlc}","clientId":{row.client.decode()},"deltaId":"{row.id.hex()}"'
    op, effect = DeltaOp(row.pushed).name, json.dumps(DeltaOp(row.op).name if row.op else None)
    return f'{{"position":"{row.position}","op":"{op}","delivered":{effect},{stamp},"columns":{row.body.decode()}}}'
