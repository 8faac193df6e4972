"""Queries over a snapshot of a gateway: a page of its log for one replica, merged rows, pushed deltas, and sizes.

Each query reads one snapshot. If there are more entries, a page ends at its last entry; otherwise it ends at the end of
the log in that snapshot. No entry that the caller may see can appear later at or below the end of a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.hlc import MAX_HLC
from semel.store.protocol import Range, Touch
from semel.store.table import Key
from semel.surfaces.deltas.limits import SCANNED_ROWS
from semel.surfaces.deltas.model import NOWHERE, DeltaCursor, DeltaEntry, DeltaOp, DeltaReplica
from semel.surfaces.deltas.rules.cursors import ReplicaProgress
from semel.surfaces.deltas.rules.gateways import COUNT_KEY, present_gateway, refuse_lost
from semel.surfaces.deltas.rules.last_writer_wins import load_state
from semel.surfaces.deltas.rules.replicas import load_progress, progress_key, touches_of
from semel.surfaces.deltas.rules.visibility import CallerView, gone
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_LOG,
    DELTA_REPLICA,
    DELTA_ROW,
    DeltaGatewayRow,
    DeltaLogRow,
    DeltaReplicaRow,
    gateway_key,
    text_key,
)

AT_ONCE = 64
"""Number of log rows that are read before their size is checked."""
ENTRY_BYTES = 256
"""The approximate bytes of an entry besides its columns."""

EXPIRED = "The log before this cursor has been removed: take the checkpoint, and pull from its cursor."

Claims = Mapping[str, tuple[str, ...]]


class DeltaPage(NamedTuple):
    """Entries for one replica, and the cursor after them."""

    entries: Sequence[DeltaEntry]
    cursor: int
    has_more: bool
    rest: DeltaCursor | None = None
    """The meaning of the cursor, when it is an alias."""
    shown: int = 0
    """The position that the replica has acknowledged by its request."""
    gone_back_at: int | None = None
    """The end of the log, if the replica has gone back to an older cursor."""
    must_note: bool = False
    """Whether the end of the page has to be on disk before the page is sent."""
    is_taken: bool = False
    """Whether the cursor is already an alias, so that a new number is needed."""
    is_known: bool = True
    """Whether progress of the replica is stored."""
    mark: tuple[int, int, bytes] = (0, 0, b"")
    """The replica's progress as it was read."""
    epoch: int = 0
    """The epoch of the store."""
    touches: Sequence[Touch] = ()
    """Soft changes to make when the page is sent."""


class DeltaBroadcast(NamedTuple):
    """Entries for live delivery to a replica, and the soft changes of their acknowledgement."""

    page: DeltaPage
    touches: Sequence[Touch] = ()
    is_known: bool = True
    """Whether progress of the replica is stored."""


class PartialPage(NamedTuple):
    """An incomplete page between two reads."""

    start: DeltaCursor
    entries: tuple[DeltaEntry, ...]
    budget: int
    shown: int = 0
    """The position that the replica has acknowledged by its request."""
    high_water: int = 0
    mark: tuple[int, int, bytes] = (0, 0, b"")
    """The end of the log and the replica's progress at the first read."""


class _PullCaller(NamedTuple):
    """The replica that a page is for, in one read."""

    gateway: DeltaGatewayRow
    replica: DeltaReplica
    row: DeltaReplicaRow | None
    progress: ReplicaProgress
    watcher: CallerView


class DeltaGauges(NamedTuple):
    """The counts of a gateway."""

    log_size: int = 0
    index_size: int = 0
    byte_size: int = 0
    delta_count: int = 0


class KnownClient(NamedTuple):
    """A client with stored progress, and its key of client and subject."""

    key: tuple[bytes, bytes]
    seen: int
    used_at: int
    """The time of its last call in milliseconds, rounded down to the hour; 0 if unknown."""


class MergedRow(NamedTuple):
    """A merged row; its last writer, and the time."""

    table: str
    row: str
    hlc: int
    client: str
    id: bytes
    columns: tuple[tuple[str, str], ...]
    """Names and texts of the values."""
    is_live: bool


def pull(
    reading: Reading,
    replica: DeltaReplica,
    claims: Claims,
    since: int,
    limit: int,
    budget: int,
    begun: PartialPage | None = None,
    *,
    is_guest: bool = False,
) -> DeltaPage | PartialPage:
    """The next page after a cursor; or a part of it, if one read has reached its limit on scanned rows.

    A guest pulls under the id of another client: its cursors are plain positions, and nothing is stored for it. A
    cursor of changes that a restore has lost is refused.
    """
    asker = _asker(reading, replica, claims)
    refuse_lost(reading, None if asker is None else asker.gateway, since)
    if asker is None:
        return DeltaPage((), 0, False, is_known=False)
    gateway, progress = asker.gateway, asker.progress
    if begun is None:
        # A pull from the beginning needs no repairs, because it delivers the rows themselves.
        start = _meaning(reading, gateway, progress, since) if since else DeltaCursor(0, mute=gateway.high_water)
        if is_guest:
            start = DeltaCursor(since, mute=MAX_HLC)
        begun = PartialPage(start, (), budget, start.shown, gateway.high_water, progress.mark)
    found = _page(reading, asker, begun, limit)
    if isinstance(found, PartialPage):
        return found
    page = found if is_guest else _noted(asker, found, begun, since, reading.now.ms)
    return page._replace(epoch=gateway.epoch)


def _asker(reading: Reading, replica: DeltaReplica, claims: Claims) -> _PullCaller | None:
    gateway = present_gateway(reading, replica.gateway)
    if gateway is None:
        return None
    row = reading.get(DELTA_REPLICA, progress_key(replica))
    watcher = CallerView(reading, gateway, claims, replica.client)
    return _PullCaller(gateway, replica, row, load_progress(row, gateway), watcher)


def _meaning(reading: Reading, gateway: DeltaGatewayRow, progress: ReplicaProgress, since: int) -> DeltaCursor:
    if not progress.is_alias(since):
        return DeltaCursor(since)
    is_entry = reading.get(DELTA_LOG, (gateway.gateway, since)) is not None
    return progress.meaning(since, is_entry=is_entry)


def _noted(asker: _PullCaller, page: DeltaPage, begun: PartialPage, since: int, now_ms: int) -> DeltaPage:
    """The page with the changes to store for it: durably before it is sent, or softly.

    A replica without stored progress needs nothing stored: its cursors are plain positions. There may be repairs of an
    earlier life of the replica, which a page from the beginning leaves out.
    """
    progress, rest = asker.progress, page.rest
    if asker.row is None and rest is not None and asker.watcher.repaired_at <= page.cursor:
        rest = None
    has_gone_back = asker.row is not None and (begun.shown < progress.seen or (not since and progress.aliases != ()))
    is_other = rest is not None or progress.is_end(page.cursor)
    is_noted = bool(page.entries) and (is_other or has_gone_back or page.is_taken)
    return page._replace(
        rest=rest,
        shown=begun.shown,
        gone_back_at=begun.high_water if has_gone_back else None,
        must_note=is_noted,
        is_known=asker.row is not None,
        mark=begun.mark,
        touches=() if is_noted or has_gone_back else touches_of(asker.replica, asker.row, begun.shown, now_ms),
    )


def news(
    reading: Reading,
    replica: DeltaReplica,
    claims: Claims,
    after: int,
    limit: int,
    budget: int,
    *,
    is_guest: bool = False,
) -> DeltaBroadcast:
    """The next page after a position for live delivery to a replica, without its own entries.

    A guest gets the entries that every client gets.
    """
    asker = _asker(reading, replica, claims)
    if asker is None:
        return DeltaBroadcast(DeltaPage((), 0, False))
    start = DeltaCursor(after, mute=MAX_HLC)
    if not is_guest:
        # A repair may replace one that was already delivered: then the state of the client's copy is unknown.
        start = DeltaCursor(after, skip=MAX_HLC, doubt=MAX_HLC if asker.watcher.repaired_at > after else 0)
    page = _page(reading, asker, PartialPage(start, (), budget), limit)
    if isinstance(page, PartialPage):  # a partial page is enough: live delivery continues with the rest
        page = DeltaPage(page.entries, page.start.start, True)
    touches = () if is_guest else touches_of(replica, asker.row, page.cursor, reading.now.ms)
    return DeltaBroadcast(page, touches, asker.row is not None)


def _page(reading: Reading, asker: _PullCaller, begun: PartialPage, limit: int) -> DeltaPage | PartialPage:
    start, entries, budget = begun.start, list(begun.entries), begun.budget
    if start.start < asker.gateway.cut:  # checked at each read: the log may have been trimmed since the last one
        raise Refused("deltas:CURSOR_EXPIRED", EXPIRED)
    for scanned, row in enumerate(log_rows(reading, asker.gateway.gateway, start.start), 1):
        told = _told(row, start, asker.watcher)
        if told:
            budget -= sum(map(entry_size, told))
            if entries and (len(entries) + len(told) > limit or budget < 0):
                cursor = entries[-1].position
                return DeltaPage(entries, cursor, True, _rest(start, cursor))
            entries += told
        if scanned >= SCANNED_ROWS:
            return begun._replace(start=start._replace(start=row.position), entries=tuple(entries), budget=budget)
    if start.back != NOWHERE:
        again = start._replace(start=start.back, back=NOWHERE)
        if not entries:
            return begun._replace(start=again)
        cursor = entries[-1].position
        return DeltaPage(entries, cursor, True, again._replace(doubt=max(again.doubt, cursor)))
    high_water = asker.gateway.high_water
    return DeltaPage(entries, high_water, False, is_taken=bool(entries) and asker.progress.is_alias(high_water))


def _rest(start: DeltaCursor, cursor: int) -> DeltaCursor | None:
    """The meaning of the cursor of a page that ends early: entries skipped after it stay skipped."""
    if start.back != NOWHERE:
        return start._replace(start=cursor)
    skip, mute, doubt = (bound if bound > cursor else 0 for bound in (start.skip, start.mute, start.doubt))
    return DeltaCursor(cursor, skip, mute, doubt=doubt) if skip or mute or doubt else None


def _told(row: DeltaLogRow, start: DeltaCursor, watcher: CallerView) -> tuple[DeltaEntry, ...]:
    """The entries that a replica gets for one row of the log."""
    if not row.op:
        return ()
    if row.client == watcher.own and _is_known(row, start):
        return watcher.left(row)
    if row.addressee and row.addressee == watcher.own and start.doubt == MAX_HLC:
        return watcher.anew(row)
    entry = watcher.entry(row, start.mute)
    if entry is None:
        return ()
    may_hold = row.position <= start.doubt or watcher.may_hold(row, entry, start.mute)
    return (gone(row), entry) if may_hold and entry.op is DeltaOp.INSERT else (entry,)


def _is_known(row: DeltaLogRow, start: DeltaCursor) -> bool:
    """Whether the replica already has its own entry; not if it is from an earlier life."""
    if row.addressee:
        return row.position <= start.mute
    return start.mute < row.position <= start.skip


def log_rows(reading: Reading, gateway: bytes, after: int, at_once: int = AT_ONCE) -> Iterator[DeltaLogRow]:
    """The log after a position, a few rows at a time."""
    while after < 2**64 - 1:
        rows = reading.range(Range(DELTA_LOG, "", (gateway,), at_once, start=(after + 1,)))
        yield from rows
        if len(rows) < at_once:
            return
        after = rows[-1].position


def entry_size(entry: DeltaEntry) -> int:
    """The approximate bytes of an entry on the wire."""
    return ENTRY_BYTES + len(entry.columns) + len(entry.row.encode()) + len(entry.client.encode())


def gauges(reading: Reading, gateway: str) -> DeltaGauges:
    """The counts of a gateway; zeros for a gateway that was never used."""
    row = reading.get(DELTA_GATEWAY, (gateway_key(gateway),))
    return DeltaGauges() if row is None else DeltaGauges(row.entries, row.rows, row.size, row.deltas)


def high_water(reading: Reading, gateway: str) -> int:
    """The end of a gateway's log: the cursor of a client that has received everything."""
    row = present_gateway(reading, gateway)
    return 0 if row is None else row.high_water


def gateways(reading: Reading, after: str | None, limit: int) -> list[str]:
    """The names of gateways, in the order of their keys."""
    start = COUNT_KEY if after is None else (gateway_key(after) + b"\x00",)
    rows = reading.range(Range(DELTA_GATEWAY, "", (), limit + 1, start=start))
    return [row.name.decode() for row in rows if (row.gateway,) != COUNT_KEY][:limit]


def clients(reading: Reading, gateway: str, after: tuple[bytes, bytes], limit: int) -> list[KnownClient]:
    """The clients with stored progress, in the order of their keys."""
    key = gateway_key(gateway)
    start = (after[0], after[1] + b"\x00")
    rows = reading.range(Range(DELTA_REPLICA, "", (key,), limit, start=start))
    return [KnownClient((row.client, row.subject), row.seen, row.used_at) for row in rows]


def subjects_of(reading: Reading, gateway: str, client: str, limit: int) -> list[tuple[bytes, bytes]]:
    """The keys under which progress of a client is stored, by the text of its id."""
    found = reading.keys(Range(DELTA_REPLICA, "", (gateway_key(gateway), text_key(client)), limit))
    return [(key[1], key[2]) for key in found]


def merged_rows(reading: Reading, gateway: str, after: Key | None, limit: int) -> tuple[list[MergedRow], Key | None]:
    """Rows in the order of their tables, deleted ones included; and where the next ones begin, if there are more."""
    start = () if after is None else (after[0], after[1] + 1)
    rows = reading.range(Range(DELTA_ROW, "", (gateway_key(gateway),), limit, start=start))
    found = []
    for row in rows:
        state = load_state(row.row_id.decode(), row.state)
        stamp = state.last
        values = state.values()
        columns = () if values is None else tuple(values.items())
        table = row.table_name.decode()
        found.append(
            MergedRow(table, state.row, stamp.hlc, stamp.client, bytes.fromhex(stamp.id), columns, values is not None)
        )
    is_full = len(rows) == limit
    return found, (rows[-1].table_name, rows[-1].number) if is_full else None
