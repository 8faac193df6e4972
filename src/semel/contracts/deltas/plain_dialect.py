"""The plain dialect of deltas: others' changes come by pages, own changes by the answer of a push.

Every entry says: as of this position, these columns of this row are so. The client keeps for each column what was said
as of the highest position, so that it may be told twice, late and in any order. Nothing is remembered of it here: a
cursor means itself, and a pull is a read.

| the client | is told |
|---|---|
| has pushed | which of its writes are not as it wrote them: of these rows the columns that others have won |
| asks for a page | the entries of others; its own only up to the position behind which it says that it knows them |
| begins, or its cursor is refused | the checkpoint: all rows that it may see |

A push may go unanswered. The same push is told the same: what is said of its rows is read behind the commit, whether
its deltas were new or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from semel.contracts.deltas.checkpoint import Checkpoint, row_entries
from semel.contracts.deltas.limits import MAX_TOUCHED_BYTES, SCANNED_ROWS
from semel.contracts.deltas.model import Delta, Entry, Op
from semel.contracts.deltas.reading import EXPIRED, Claims, Page, entry_size, log_rows
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.contracts.deltas.rules.buckets import Rules, rules_of, sees
from semel.contracts.deltas.rules.entries import NO_COLUMNS
from semel.contracts.deltas.rules.epochs import LOST, first_position, present_gateway, refuse_lost
from semel.contracts.deltas.rules.rows import RowState, Stamp, is_after, last_of_others, load_marks, load_state
from semel.contracts.deltas.rules.visibility import Watcher
from semel.contracts.deltas.tables import DELTA_ROW, DeltaGatewayRow, text_key
from semel.contracts.epoch import epoch_of
from semel.engine.reading import Reading
from semel.kernel.delta_id import columns_text, plain_column


class PlainAsker(NamedTuple):
    """A client of the plain dialect, and what is known of the caller that speaks for it."""

    gateway: str
    client: str
    """Text of its id."""
    claims: Claims


class PlainStart(NamedTuple):
    """The start of a page: a cursor, or the end of the last read of the log."""

    since: int
    after: int | None = None
    """The end of the last read; None for the first one."""
    entries: tuple[Entry, ...] = ()
    """The entries of earlier reads."""


class Settlement(NamedTuple):
    """The outcome of the deltas of a push, at one position."""

    position: int
    entries: tuple[Entry, ...]
    """The rows and columns that are not as the client wrote them."""
    settled: int
    """How many of the deltas, from the first one on, are accounted for; the others have to be pushed again."""
    cursor: int
    """The client's cursor; a later one if no other client has written behind it."""
    epoch: int


def plain_page(
    reading: Reading, asker: PlainAsker, start: PlainStart, own_after: int | None, limit: int, budget: int
) -> Page | PlainStart:
    """The next page behind a cursor, or where to go on when one read has passed over its limit of entries."""
    gateway, epoch = present_gateway(reading, asker.gateway), epoch_of(reading)
    end = _end(gateway, epoch)
    after = start.since if start.after is None else start.after
    refuse_lost(reading, gateway, start.since)
    if start.since > end:
        raise RefusedDeltas.of(LOST)
    if gateway is None:
        return Page((), end, False, epoch=epoch)
    if after < gateway.cut:
        raise RefusedDeltas("CURSOR_EXPIRED", EXPIRED)
    watcher = Watcher(reading, gateway, asker.claims, asker.client)
    # A new client holds nothing: it gets no deletes of rows from before the rules were saved.
    mute = 0 if start.since else gateway.high_water
    entries = list(start.entries)
    budget -= sum(map(entry_size, entries))
    for scanned, row in enumerate(log_rows(reading, gateway.gateway, after), 1):
        is_known = own_after is not None and row.client == watcher.own and row.position > own_after
        entry = None if not row.op or row.addressee or is_known else watcher.entry(row, mute)
        if entry is not None:
            budget -= entry_size(entry)
            if entries and (len(entries) >= limit or budget < 0):
                return Page(entries, entries[-1].position, True, epoch=epoch)
            entries.append(entry)
        if scanned >= SCANNED_ROWS:
            return PlainStart(start.since, row.position, tuple(entries))
    return Page(entries, end, False, epoch=epoch)


def plain_checkpoint(reading: Reading, asker: PlainAsker) -> tuple[Checkpoint, int]:
    """All rows that a client may see as of one position, and the epoch of the store."""
    gateway, epoch = present_gateway(reading, asker.gateway), epoch_of(reading)
    end = _end(gateway, epoch)
    if gateway is None:
        return Checkpoint(end, iter(())), epoch
    rules = rules_of(gateway.rules) if gateway.rules else None
    rows = row_entries(reading, asker.gateway, rules, asker.claims, may_hold=False)
    return Checkpoint(end, (row._replace(position=end) for row in rows)), epoch


def settle(reading: Reading, asker: PlainAsker, deltas: Sequence[Delta], cursor: int, budget: int) -> Settlement:
    """The answer to a client about deltas that it has pushed and that are on disk."""
    gateway, epoch = present_gateway(reading, asker.gateway), epoch_of(reading)
    end = _end(gateway, epoch)
    if gateway is None:
        return Settlement(end, (), 0, cursor, epoch)
    rules = rules_of(gateway.rules) if gateway.rules else None
    rows: dict[tuple[str, str], list[Delta]] = {}
    for delta in deltas:
        rows.setdefault((delta.table, delta.row), []).append(delta)
    entries: list[Entry] = []
    settled, room, read = len(deltas), budget, 0
    for place, own in rows.items():
        stored = reading.get(DELTA_ROW, (gateway.gateway, place[0].encode(), text_key(place[1])))
        assert stored is not None, "every delta has a row"
        read += len(stored.state)
        entry = _correction(load_state(place[1], stored.state), own, rules, asker.claims, end)
        room -= 0 if entry is None else entry_size(entry)
        if (room < 0 or read > MAX_TOUCHED_BYTES) and own is not rows[deltas[0].table, deltas[0].row]:
            settled = deltas.index(own[0])
            break
        entries += [] if entry is None else [entry]
    return Settlement(end, tuple(entries), settled, _moved(reading, gateway, asker.client, cursor), epoch)


def _end(gateway: DeltaGatewayRow | None, epoch: int) -> int:
    """The end of the log; of a gateway that is not there, where it will begin."""
    return gateway.high_water if gateway is not None else first_position(epoch) if epoch else 0


def _moved(reading: Reading, gateway: DeltaGatewayRow, client: str, cursor: int) -> int:
    """The end of the log if no other client has written behind a cursor; else the cursor, which a pull has to move."""
    try:
        refuse_lost(reading, gateway, cursor)
    except RefusedDeltas:
        return cursor
    is_outside = cursor < gateway.cut or cursor > gateway.high_water
    others = last_of_others(load_marks(orjson.loads(gateway.authors)), client, cursor)
    return cursor if is_outside or others is not None else gateway.high_water


def _correction(
    state: RowState, own: Sequence[Delta], rules: Rules | None, claims: Claims, position: int
) -> Entry | None:
    """The entry that corrects a row where it differs from the client's own deltas on it; None when nothing differs.

    Under sync rules a write may bring a row into its author's view, or out of it: then the row is told whole.
    """
    ids = {delta.id.hex() for delta in own}
    values = state.values()
    is_hidden = values is not None and rules is not None and not sees(rules, claims, own[0].table, values)
    ends_deleted = _last(own).op is Op.DELETE
    if values is None or is_hidden:
        return None if ends_deleted else _entry(state, own[0], Op.DELETE, (), position)
    foreign = [name for name, cell in state.cells.items() if cell.stamp.id not in ids]
    if ends_deleted or ((rules is not None or any(delta.op is Op.DELETE for delta in own)) and foreign):
        return _entry(state, own[0], Op.INSERT, state.cells, position)
    written = dict.fromkeys(column.name for delta in own for column in delta.columns)
    lost = [name for name in written if name not in state.cells or name in foreign]
    return _entry(state, own[0], Op.UPDATE, lost, position) if lost else None


def _last(own: Sequence[Delta]) -> Delta:
    """The one of these deltas that wins over the others."""
    last = own[0]
    for delta in own[1:]:
        if is_after(_stamp(delta), _stamp(last)):
            last = delta
    return last


def _stamp(delta: Delta) -> Stamp:
    return Stamp(delta.hlc, delta.client, delta.id.hex())


def _entry(state: RowState, delta: Delta, op: Op, names: Iterable[str], position: int) -> Entry:
    told = [(name, state.cells[name].value if name in state.cells else "null") for name in names]
    columns = columns_text([plain_column(name, value) for name, value in told]).encode() if told else NO_COLUMNS
    stamp = state.last
    return Entry(position, op, delta.table, state.row, stamp.client, stamp.hlc, bytes.fromhex(stamp.id), columns, True)
