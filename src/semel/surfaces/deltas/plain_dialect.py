"""The plain dialect: pages with the entries of others, and answers with the outcome of a client's own push.

Every entry states the values of some columns of a row as of a position. The client keeps for each column the value of
the highest position, so entries may arrive twice, late and in any order. The server stores nothing for the client: a
cursor means itself, and a pull is a read.

| the client | receives |
|---|---|
| has pushed | which of its writes are not as it wrote them: of these rows the columns that others have won |
| asks for a page | the entries of others; its own only up to the position behind which it says that it knows them |
| begins, or its cursor is refused | the checkpoint: all rows that it may see |

A push may go unanswered. The same push gets the same answer: the state of its rows is read after the commit, whether
its deltas were new or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.hashes import columns_text, plain_column
from semel.surfaces.deltas.checkpoint import Checkpoint, row_entries
from semel.surfaces.deltas.limits import MAX_TOUCHED_BYTES, SCANNED_ROWS
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from semel.surfaces.deltas.reading import EXPIRED, Claims, DeltaPage, entry_size, log_rows
from semel.surfaces.deltas.rules.gateways import LOST, first_position, present_gateway, refuse_lost
from semel.surfaces.deltas.rules.last_writer_wins import (
    DeltaStamp,
    RowState,
    is_after,
    last_of_others,
    load_marks,
    load_state,
)
from semel.surfaces.deltas.rules.sync_rules import SyncRules, rules_of, sees
from semel.surfaces.deltas.rules.visibility import NO_COLUMNS, CallerView
from semel.surfaces.deltas.tables import DELTA_ROW, DELTA_ROW_NUMBER, DeltaGatewayRow, DeltaRowRow, text_key
from semel.surfaces.epoch import epoch_of

SETTLED_AT_ONCE = 8
"""Rows that are read at once for the answer of a push; each may have 2 MiB."""


class PlainCaller(NamedTuple):
    """A client of the plain dialect, with the claims of its caller."""

    gateway: str
    client: str
    """Text of the client's id."""
    claims: Claims


class PlainStart(NamedTuple):
    """The start of a page: a cursor, or the end of the last read of the log."""

    since: int
    after: int | None = None
    """The end of the last read; None for the first read."""
    entries: tuple[DeltaEntry, ...] = ()
    """The entries of earlier reads."""


class PushSettlement(NamedTuple):
    """The outcome of the deltas of a push, at one position."""

    position: int
    entries: tuple[DeltaEntry, ...]
    """The rows and columns that differ from the client's write."""
    settled: int
    """The number of deltas, from the first on, that this answer covers; the client must push the others again."""
    cursor: int
    """The client's cursor; a later one if no other client has written after it."""
    epoch: int


def plain_page(
    reading: Reading, asker: PlainCaller, start: PlainStart, own_after: int | None, limit: int, budget: int
) -> DeltaPage | PlainStart:
    """The next page after a cursor; or where to continue, if one read has scanned its limit of entries."""
    gateway, epoch = present_gateway(reading, asker.gateway), epoch_of(reading)
    end = _end(gateway, epoch)
    after = start.since if start.after is None else start.after
    refuse_lost(reading, gateway, start.since)
    if start.since > end:
        raise Refused.of(LOST)
    if gateway is None:
        return DeltaPage((), end, False, epoch=epoch)
    if after < gateway.cut:
        raise Refused("deltas:CURSOR_EXPIRED", EXPIRED)
    watcher = CallerView(reading, gateway, asker.claims, asker.client)
    # A new client holds no rows, so it needs no deletes of rows from before the rules were saved.
    mute = 0 if start.since else gateway.high_water
    entries = list(start.entries)
    budget -= sum(map(entry_size, entries))
    for scanned, row in enumerate(log_rows(reading, gateway.gateway, after), 1):
        is_known = own_after is not None and row.client == watcher.own and row.position > own_after
        entry = None if not row.op or row.addressee or is_known else watcher.entry(row, mute)
        if entry is not None:
            budget -= entry_size(entry)
            if entries and (len(entries) >= limit or budget < 0):
                return DeltaPage(entries, entries[-1].position, True, epoch=epoch)
            entries.append(entry)
        if scanned >= SCANNED_ROWS:
            return PlainStart(start.since, row.position, tuple(entries))
    return DeltaPage(entries, end, False, epoch=epoch)


def plain_checkpoint(reading: Reading, asker: PlainCaller) -> tuple[Checkpoint, int]:
    """All rows that a client may see as of one position, and the epoch of the store."""
    gateway, epoch = present_gateway(reading, asker.gateway), epoch_of(reading)
    end = _end(gateway, epoch)
    if gateway is None:
        return Checkpoint(end, iter(())), epoch
    rules = rules_of(gateway.rules) if gateway.rules else None
    rows = row_entries(reading, asker.gateway, rules, asker.claims, may_hold=False)
    return Checkpoint(end, (row._replace(position=end) for row in rows)), epoch


def settle(reading: Reading, asker: PlainCaller, deltas: Sequence[Delta], cursor: int, budget: int) -> PushSettlement:
    """The answer for deltas that a client has pushed and that are on disk."""
    gateway, epoch = present_gateway(reading, asker.gateway), epoch_of(reading)
    end = _end(gateway, epoch)
    if gateway is None:
        return PushSettlement(end, (), 0, cursor, epoch)
    rules = rules_of(gateway.rules) if gateway.rules else None
    rows: dict[tuple[str, str], list[Delta]] = {}
    for delta in deltas:
        rows.setdefault((delta.table, delta.row), []).append(delta)
    entries: list[DeltaEntry] = []
    settled, room, read = len(deltas), budget, 0
    for (place, own), stored in zip(rows.items(), _stored_rows(reading, gateway.gateway, list(rows)), strict=True):
        read += len(stored.state)
        entry = _correction(load_state(place[1], stored.state), own, rules, asker.claims, end)
        room -= 0 if entry is None else entry_size(entry)
        if (room < 0 or read > MAX_TOUCHED_BYTES) and own is not rows[deltas[0].table, deltas[0].row]:
            settled = deltas.index(own[0])
            break
        entries += [] if entry is None else [entry]
    return PushSettlement(end, tuple(entries), settled, _moved(reading, gateway, asker.client, cursor), epoch)


def _stored_rows(reading: Reading, gateway: bytes, places: Sequence[tuple[str, str]]) -> Iterator[DeltaRowRow]:
    """The rows of these tables and ids, in this order; some at a time, because rows may be large."""
    for start in range(0, len(places), SETTLED_AT_ONCE):
        keys = [(gateway, table.encode(), text_key(row)) for table, row in places[start : start + SETTLED_AT_ONCE]]
        numbers = reading.find(DELTA_ROW_NUMBER, keys)
        assert len(numbers) == len(keys), "every delta has a row"
        stored = [(key[0], key[1], numbers[key].number) for key in keys]
        rows = reading.find(DELTA_ROW, stored)
        yield from (rows[key] for key in stored)


def _end(gateway: DeltaGatewayRow | None, epoch: int) -> int:
    """The end of the log; for a gateway that does not exist yet, the start of its log."""
    return gateway.high_water if gateway is not None else first_position(epoch) if epoch else 0


def _moved(reading: Reading, gateway: DeltaGatewayRow, client: str, cursor: int) -> int:
    """The end of the log if no other client has written after the cursor; else the cursor, which a pull must move."""
    try:
        refuse_lost(reading, gateway, cursor)
    except Refused:
        return cursor
    is_outside = cursor < gateway.cut or cursor > gateway.high_water
    others = last_of_others(load_marks(orjson.loads(gateway.authors)), client, cursor)
    return cursor if is_outside or others is not None else gateway.high_water


def _correction(
    state: RowState, own: Sequence[Delta], rules: SyncRules | None, claims: Claims, position: int
) -> DeltaEntry | None:
    """The entry that corrects a row where it differs from the client's own deltas; None if nothing differs.

    Under sync rules a write may bring a row into its author's view, or out of it: then the entry has the whole row.
    """
    ids = {delta.id.hex() for delta in own}
    values = state.values()
    is_hidden = values is not None and rules is not None and not sees(rules, claims, own[0].table, values)
    ends_deleted = _last(own).op is DeltaOp.DELETE
    if values is None or is_hidden:
        return None if ends_deleted else _entry(state, own[0], DeltaOp.DELETE, (), position)
    foreign = [name for name, cell in state.cells.items() if cell.stamp.id not in ids]
    if ends_deleted or ((rules is not None or any(delta.op is DeltaOp.DELETE for delta in own)) and foreign):
        return _entry(state, own[0], DeltaOp.INSERT, state.cells, position)
    written = dict.fromkeys(column.name for delta in own for column in delta.columns)
    lost = [name for name in written if name not in state.cells or name in foreign]
    return _entry(state, own[0], DeltaOp.UPDATE, lost, position) if lost else None


def _last(own: Sequence[Delta]) -> Delta:
    """The delta that wins over the others."""
    last = own[0]
    for delta in own[1:]:
        if is_after(_stamp(delta), _stamp(last)):
            last = delta
    return last


def _stamp(delta: Delta) -> DeltaStamp:
    return DeltaStamp(delta.hlc, delta.client, delta.id.hex())


def _entry(state: RowState, delta: Delta, op: DeltaOp, names: Iterable[str], position: int) -> DeltaEntry:
    told = [(name, state.cells[name].value if name in state.cells else "null") for name in names]
    columns = columns_text([plain_column(name, value) for name, value in told]).encode() if told else NO_COLUMNS
    stamp = state.last
    return DeltaEntry(
        position, op, delta.table, state.row, stamp.client, stamp.hlc, bytes.fromhex(stamp.id), columns, True
    )
