"""A replica without its network: reads and writes of rows, and the effects of pushes and pulls.

Every method is one transaction of the file, on disk when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from semel.client.deltas.answers import ReplicaEntry, ReplicaPage, ReplicaReceipt
from semel.client.deltas.drafts import Texts, changed, draft, row_id, row_text, table_name, value_texts, written
from semel.client.deltas.file import LocalFile
from semel.client.deltas.lost import NO_HOLD, Loss, LostWrites, OwnHold, hold, losses, winner_of
from semel.client.deltas.observers import ReplicaObservers
from semel.client.deltas.outbox import DRIFTED, Place, Queued, ReplicaOutbox, ReplicaVerdict
from semel.client.deltas.rows import (
    NOTHING,
    Base,
    Columns,
    Op,
    ReplicaChange,
    dump_base,
    load_base,
    settled,
    told,
    values,
    visible,
    whole,
)
from semel.client.deltas.state import FileClock, LocalProgress
from semel.client.deltas.values import Change, DeadLetter
from semel.client.errors import RowExistsError, RowMissingError
from semel.kernel.hashes import json_text
from semel.kernel.json.canonical import parse
from semel.kernel.json.fragment import dump

ROWS_AT_ONCE = 500
"""Rows that one transaction deletes, and changes that are fetched at once."""
_KEEP = """INSERT INTO semel_rows VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET base = excluded.base,
    shown = excluded.shown, named = max(named, excluded.named), until = excluded.until"""


class Applied(NamedTuple):
    """The effect of a page."""

    changes: Sequence[Change]
    """Changed rows."""
    ahead_ms: int
    """Milliseconds by which it was ahead of our clock, if over the limit; else 0."""
    put_off: int = 0
    """Number of further changed rows, reported later."""
    is_done: bool = True
    """Whether this step is complete."""


class LocalReplica:
    """The rows, the queue and the clock of one file."""

    def __init__(self, file: LocalFile, clock: FileClock, client: str) -> None:
        self.file = file
        self.outbox = ReplicaOutbox(file)
        self.progress = LocalProgress(file)
        self.lost = LostWrites(file)
        self.observers = ReplicaObservers()
        file.on_commit = self.observers.committed
        self._clock = clock
        self._name = client
        self._client = json_text(client)

    def get(self, table: str, row: str) -> Columns | None:
        """The columns of a row, or None if it does not exist."""
        return self._shown((table_name(table), row_text(row)))

    def rows(self, table: str) -> dict[str, Columns]:
        """All rows of a table by their ids."""
        found = self.file.execute(
            "SELECT row_id, shown FROM semel_rows WHERE table_name = ? AND shown IS NOT NULL ORDER BY row_id",
            (table_name(table),),
        )
        return {row_id(row): _columns(text) for row, text in found}

    def scan(self, table: str) -> Iterator[tuple[str, str]]:
        """The rows of a table, as canonical JSON of their ids and columns, read in pieces."""
        after = ""
        while True:
            found = self.file.execute(
                "SELECT row_id, shown FROM semel_rows WHERE table_name = ? AND row_id > ? AND shown IS NOT NULL "
                "ORDER BY row_id LIMIT ?",
                (table, after, ROWS_AT_ONCE),
            )
            yield from found
            if len(found) < ROWS_AT_ONCE:
                return
            after = found[-1][0]

    def found(self, table: str, rows: Iterable[str]) -> Iterator[tuple[str, str | None]]:
        """Some rows of a table by the canonical JSON of their ids; None for one that does not exist."""
        for row in sorted(rows):
            found = self.file.execute("SELECT shown FROM semel_rows WHERE table_name = ? AND row_id = ?", (table, row))
            yield row, found[0][0] if found else None

    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        found = self.file.execute(
            "SELECT DISTINCT table_name FROM semel_rows WHERE shown IS NOT NULL ORDER BY table_name"
        )
        return [table for [table] in found]

    def insert(self, table: str, row: str, columns: Mapping[str, Any]) -> str:
        """Insert a row. Returns the id of its delta."""
        place, texts = (table_name(table), row_text(row)), value_texts(columns)
        with self.file.transaction():
            if self._shown(place) is not None:
                raise RowExistsError(f"{table} has a row with this id already.")
            return self._write("INSERT", place, texts)

    def update(self, table: str, row: str, columns: Mapping[str, Any]) -> str | None:
        """Change columns of a row. Returns the delta's id, or None if nothing changes."""
        place, texts = (table_name(table), row_text(row)), value_texts(columns)
        with self.file.transaction():
            before = self._shown(place)
            if before is None:
                raise RowMissingError(f"{table} has no row with this id.")
            news = changed(before, texts)
            return self._write("UPDATE", place, news) if news else None

    def put(self, table: str, row: str, columns: Mapping[str, Any]) -> str | None:
        """Insert or update a row."""
        with self.file.transaction():
            is_new = self.get(table, row) is None
            return self.insert(table, row, columns) if is_new else self.update(table, row, columns)

    def delete(self, table: str, row: str) -> str | None:
        """Delete a row. Returns the delta's id, or None if the row does not exist."""
        place = (table_name(table), row_text(row))
        with self.file.transaction():
            return None if self._shown(place) is None else self._write("DELETE", place, {})

    def _write(self, op: Op, place: Place, texts: Texts) -> str:
        made = draft(op, *place, texts, self._client, self._clock.tick())
        self.outbox.add(made)
        self._refresh(place)
        return made.delta_id

    def take(self, end: int, most: int, most_bytes: int) -> list[Queued]:
        """Mark the oldest deltas that fit into one request as being sent, and return them; at least one if any."""
        with self.file.own_transaction():
            batch = self.outbox.head(end, most, most_bytes)
            self.outbox.send(batch)
            return batch

    def fail(self, batch: Sequence[Queued], error: str, *, is_unsettled: bool) -> None:
        """Record that an attempt to send failed."""
        with self.file.own_transaction():
            self.outbox.fail(batch, error, is_unsettled=is_unsettled)

    def acknowledge(self, batch: Sequence[Queued], receipt: ReplicaReceipt) -> list[Change]:
        """Remove acknowledged deltas: the server's state includes them, except where other replicas won."""
        with self.file.own_transaction():
            done = batch[: receipt.settled]
            own: dict[Place, list[ReplicaChange]] = {}
            for one in done:
                own.setdefault(one.place, []).append(written(one.body))
            said = _by_place(receipt.entries)
            held = {place: hold(self._base(place), self.outbox.own(place)) for place in said}
            self.outbox.acknowledge(done)
            changes = []
            for place in dict.fromkeys([*own, *said]):
                base = settled(self._base(place), sorted(own.get(place, ()), key=_time), receipt.at)
                entries = said.get(place, ())
                changes += self._refresh(
                    place, _told_all(base, entries), held=held.get(place, NO_HOLD), entries=entries
                )
            self._clock.settle(max(change.stamp.hlc for some in own.values() for change in some))
            self._clock.hear(entry.change.stamp.hlc for entry in receipt.entries)
            if self.progress.agrees(receipt.epoch):
                self.progress.pushed(receipt.first, receipt.cursor)
            return changes

    def bury(self, verdicts: Iterable[tuple[Queued, ReplicaVerdict]]) -> list[DeadLetter]:
        """Turn deltas into dead letters: their rows look as if the changes had not been made."""
        with self.file.own_transaction():
            letters = []
            for one, verdict in verdicts:
                letters.append(self.outbox.bury(one, verdict, self._clock.wall_ms()))
                self._refresh(one.place)
            return letters

    def exhume(self, delta_id: str, *, again: bool) -> None:
        """Remove a dead letter, to send it again or to discard it."""
        with self.file.transaction():
            self._refresh(self.outbox.exhume(delta_id, again=again))

    def restamp(self) -> int:
        """Give new timestamps to deltas that were refused because of theirs. Returns how many."""
        with self.file.own_transaction():
            found = self.outbox.drifted()
            if found:
                self._clock.set_back(self.outbox.latest(found[0].sequence))
                self.outbox.restamp(found, self._clock.tick)
            for one in found:
                self._refresh(one.place)
            return len(found)

    def keep_drifted(self, batch: Sequence[Queued]) -> None:
        """Record that the server refused these deltas because of their timestamp."""
        with self.file.own_transaction():
            self.outbox.refuse(batch, DRIFTED)

    def apply(self, page: ReplicaPage) -> Applied | None:
        """Apply a page and its cursor. Returns None, without changes, if the replica was or must be reloaded."""
        with self.file.own_transaction():
            cursor = self.progress.cursor
            if page.since > cursor or not self.progress.agrees(page.epoch):
                return None
            changes = []
            # A late page may start before the cursor. Entries up to the cursor are known, and for deleted rows it is
            # no longer stored when they were deleted.
            news = [entry for entry in page.entries if entry.at > cursor]
            for place, entries in _by_place(news).items():
                base, own = self._base(place), self.outbox.own(place)
                changes += self._refresh(place, _told_all(base, entries), own, held=hold(base, own), entries=entries)
            ahead = self._clock.hear(entry.change.stamp.hlc for entry in page.entries)
            self.progress.move(page.cursor)
            if not page.has_more:
                self.progress.complete(page.cursor)
            return Applied(changes, ahead)

    def begin_checkpoint(self) -> int:
        """The number of a new checkpoint. The cursor does not move until its end."""
        with self.file.own_transaction():
            return self._next_checkpoint()

    def take_rows(self, number: int, page: ReplicaPage, *, is_told: bool) -> Applied | None:
        """Replace rows by those of a checkpoint. Returns None if another checkpoint has begun since.

        With `is_told`, `told_later` returns the changes, which may be many.
        """
        with self.file.own_transaction():
            if number != self._checkpoint:
                return None
            changes = []
            for place, entries in _by_place(page.entries).items():
                base, own = self._base(place), self.outbox.own(place)
                row = whole(entries[-1].change.columns, page.cursor, base)
                changes += self._refresh(place, row, own, held=hold(base, own), named=number)
            ahead = self._clock.hear(entry.change.stamp.hlc for entry in page.entries)
            return self._put_off(Applied(changes, ahead), is_told=is_told)

    def end_checkpoint(self, number: int, page: ReplicaPage, *, is_told: bool) -> Applied | None:
        """Delete some rows that the checkpoint lacks; after the last ones, set the cursor. None as above."""
        with self.file.own_transaction():
            if number != self._checkpoint:
                return None
            changes: list[Change] = []
            rest = self.file.execute(
                "SELECT table_name, row_id FROM semel_rows WHERE named != ? LIMIT ?", (number, ROWS_AT_ONCE)
            )
            for place in rest:
                held = hold(self._base(place), self.outbox.own(place))
                changes += self._refresh(place, NOTHING, held=held, named=number)
            if len(rest) < ROWS_AT_ONCE:
                self.progress.agrees(page.epoch)
                self.progress.reset(is_stale=False)
                self.progress.move(page.cursor)
                self.progress.complete(page.cursor)
            return self._put_off(Applied(changes, 0, is_done=len(rest) < ROWS_AT_ONCE), is_told=is_told)

    def told_later(self) -> list[Change]:
        """Changes of a checkpoint that were not reported yet."""
        with self.file.own_transaction():
            found = self.file.execute(
                "SELECT sequence, table_name, row_id, before, after FROM semel_changes ORDER BY sequence LIMIT ?",
                (ROWS_AT_ONCE,),
            )
            if found:
                self.file.execute("DELETE FROM semel_changes WHERE sequence <= ?", (found[-1][0],))
            return [_change((table, row), before, after) for _, table, row, before, after in found]

    def lose_place(self) -> None:
        """Record that the server no longer knows the cursor: the next pull loads the checkpoint. Rows stay until
        then."""
        with self.file.own_transaction():
            self.progress.reset(is_stale=True)

    def start_over(self) -> None:
        """Drop the server's state; own changes stay."""
        with self.file.own_transaction():
            self._next_checkpoint()
            self.file.execute("DELETE FROM semel_rows")
            self.observers.note()
            for place in self.outbox.places():
                self._refresh(place, NOTHING)
            self.progress.reset(is_stale=False)

    @property
    def _checkpoint(self) -> int:
        return int(self.file.meta("checkpoint") or "0")

    def _next_checkpoint(self) -> int:
        number = self._checkpoint + 1
        self.file.set_meta("checkpoint", str(number))
        return number

    def _put_off(self, applied: Applied, *, is_told: bool) -> Applied:
        if not is_told:
            return applied
        for change in applied.changes:
            before, after = (None if one is None else dump(dict(one)).decode() for one in (change.before, change.after))
            self.file.execute(
                "INSERT INTO semel_changes (table_name, row_id, before, after) VALUES (?, ?, ?, ?)",
                (change.table, json_text(change.row_id), before, after),
            )
        return applied._replace(changes=(), put_off=len(applied.changes))

    def _shown(self, place: Place) -> Columns | None:
        found = self.file.execute("SELECT shown FROM semel_rows WHERE table_name = ? AND row_id = ?", place)
        return None if not found or found[0][0] is None else _columns(found[0][0])

    def _base(self, place: Place) -> Base:
        """The server's state of a row."""
        found = self.file.execute("SELECT base FROM semel_rows WHERE table_name = ? AND row_id = ?", place)
        return load_base(found[0][0]) if found else NOTHING

    def _refresh(
        self,
        place: Place,
        base: Base | None = None,
        own: Sequence[ReplicaChange] | None = None,
        *,
        held: OwnHold = NO_HOLD,
        entries: Sequence[ReplicaEntry] = (),
        named: int = 0,
    ) -> list[Change]:
        """Recompute a row from the queue and the server's state. Returns the change if it is visible.

        `held` is what own writes held before: what they have lost to `entries` is stored.
        """
        found = self.file.execute("SELECT shown FROM semel_rows WHERE table_name = ? AND row_id = ?", place)
        before: str | None = found[0][0] if found else None
        base = self._base(place) if base is None else base
        own = self.outbox.own(place) if own is None else own
        cells = visible(base, own)
        columns = values(cells)
        after = None if columns is None else dump(columns).decode()
        # A deleted row keeps a tombstone until no older entry of it can arrive.
        until = None if base.is_live or own else f"{base.live_at:020d}"
        if until is None or base.live_at > self.progress.cursor:
            self.file.execute(_KEEP, (*place, dump_base(base), after, named, until))
        else:
            self.file.execute("DELETE FROM semel_rows WHERE table_name = ? AND row_id = ?", place)
        for loss in losses(held, cells):
            self._lose(place, loss, entries)
        if before == after:
            return []
        self.observers.note(*place)
        return [_change(place, before, after)]

    def _lose(self, place: Place, loss: Loss, entries: Sequence[ReplicaEntry]) -> None:
        """Store a lost write, unless a later life of this replica has won: the file is an older copy."""
        winner = winner_of(loss.column, [entry.change for entry in entries])
        if winner != self._name:
            self.lost.add(place, loss, winner)
            self.observers.note(*place)


def _by_place(entries: Iterable[ReplicaEntry]) -> dict[Place, list[ReplicaEntry]]:
    """Entries grouped by row, in order."""
    found: dict[Place, list[ReplicaEntry]] = {}
    for entry in entries:
        found.setdefault((entry.table, json_text(entry.row_id)), []).append(entry)
    return found


def _told_all(base: Base, entries: Iterable[ReplicaEntry]) -> Base:
    for entry in entries:
        base = told(base, entry.change, entry.at)
    return base


def _time(change: ReplicaChange) -> int:
    return change.stamp.hlc


def _change(place: Place, before: str | None, after: str | None) -> Change:
    one, other = (None if text is None else _columns(text) for text in (before, after))
    return Change(place[0], row_id(place[1]), one, other)


def _columns(text: str) -> Columns:
    value = parse(text.encode())
    assert isinstance(value, dict)
    return value
