"""A replica without its network: rows that can be read and written, and what a push and a pull do to them.

Every method is one transaction of the file, on disk when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from semel.client.deltas.answers import Page
from semel.client.deltas.clock import FileClock
from semel.client.deltas.drafts import Texts, changed, draft, row_id, row_text, table_name, value_texts, written
from semel.client.deltas.file import LocalFile
from semel.client.deltas.outbox import DRIFTED, Outbox, Place, Queued, Verdict
from semel.client.deltas.rows import NOTHING, Base, Columns, Op, Written, dump_base, load_base, shown, told
from semel.client.deltas.values import Change, DeadLetter
from semel.client.errors import RowExistsError, RowMissingError
from semel.kernel.canonical import parse
from semel.kernel.delta_id import json_text
from semel.kernel.json_print import dump


class Applied(NamedTuple):
    """What a page did."""

    changes: Sequence[Change]
    """Rows that look otherwise now."""
    ahead_ms: int
    """How far it was ahead of our clock, if too far to be believed; else 0."""


class Replica:
    """The rows, the queue and the clock of one file."""

    def __init__(self, file: LocalFile, clock: FileClock, client: str) -> None:
        self.file = file
        self.outbox = Outbox(file)
        self._clock = clock
        self._client = json_text(client)

    def get(self, table: str, row: str) -> Columns | None:
        """The columns of a row; None when there is no such row."""
        return self._shown((table_name(table), row_text(row)))

    def rows(self, table: str) -> dict[str, Columns]:
        """All rows of a table by their ids."""
        found = self.file.execute(
            "SELECT row_id, shown FROM semel_rows WHERE table_name = ? AND shown IS NOT NULL ORDER BY row_id",
            (table_name(table),),
        )
        return {row_id(row): _columns(text) for row, text in found}

    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        found = self.file.execute(
            "SELECT DISTINCT table_name FROM semel_rows WHERE shown IS NOT NULL ORDER BY table_name"
        )
        return [table for [table] in found]

    def insert(self, table: str, row: str, columns: Mapping[str, Any]) -> str:
        """A new row; the name of its delta."""
        place, texts = (table_name(table), row_text(row)), value_texts(columns)
        with self.file.transaction():
            if self._shown(place) is not None:
                raise RowExistsError(f"{table} has a row with this id already.")
            return self._write("INSERT", place, texts)

    def update(self, table: str, row: str, columns: Mapping[str, Any]) -> str | None:
        """New values for columns of a row; the name of the delta, None when they have these values already."""
        place, texts = (table_name(table), row_text(row)), value_texts(columns)
        with self.file.transaction():
            before = self._shown(place)
            if before is None:
                raise RowMissingError(f"{table} has no row with this id.")
            news = changed(before, texts)
            return self._write("UPDATE", place, news) if news else None

    def put(self, table: str, row: str, columns: Mapping[str, Any]) -> str | None:
        """The one or the other."""
        with self.file.transaction():
            is_new = self.get(table, row) is None
            return self.insert(table, row, columns) if is_new else self.update(table, row, columns)

    def delete(self, table: str, row: str) -> str | None:
        """Take a row away; the name of the delta, None when there is no such row."""
        place = (table_name(table), row_text(row))
        with self.file.transaction():
            return None if self._shown(place) is None else self._write("DELETE", place, {})

    def _write(self, op: Op, place: Place, texts: Texts) -> str:
        made = draft(op, *place, texts, self._client, self._clock.tick())
        self.outbox.add(made)
        self._refresh(place)
        return made.delta_id

    def take(self, end: int, most: int, most_bytes: int) -> list[Queued]:
        """The oldest deltas up to a number that fit into one request, marked as on their way; at least one if any."""
        with self.file.own_transaction():
            batch = self.outbox.head(end, most, most_bytes)
            self.outbox.send(batch)
            return batch

    def fail(self, batch: Sequence[Queued], error: str, *, is_unsettled: bool) -> None:
        """It was sent in vain."""
        with self.file.own_transaction():
            self.outbox.fail(batch, error, is_unsettled=is_unsettled)

    def acknowledge(self, batch: Sequence[Queued], through: int) -> None:
        """The server has it."""
        with self.file.own_transaction():
            self.outbox.acknowledge(batch, through)
            self._clock.settle(max(written(one.body).stamp.hlc for one in batch))

    def bury(self, verdicts: Iterable[tuple[Queued, Verdict]]) -> list[DeadLetter]:
        """Set deltas aside: their rows look as if they had not been made."""
        with self.file.own_transaction():
            letters = []
            for one, verdict in verdicts:
                letters.append(self.outbox.bury(one, verdict, self._clock.wall_ms()))
                self._refresh(one.place)
            return letters

    def exhume(self, delta_id: str, *, again: bool) -> None:
        """Take a dead letter out, to be sent again or to be forgotten."""
        with self.file.transaction():
            self._refresh(self.outbox.exhume(delta_id, again=again))

    def restamp(self) -> int:
        """Date again what was refused because of its date; how many."""
        with self.file.own_transaction():
            found = self.outbox.drifted()
            if found:
                self._clock.set_back(self.outbox.latest(found[0].sequence))
                self.outbox.restamp(found, self._clock.tick)
            for one in found:
                self._refresh(one.place)
            return len(found)

    def keep_drifted(self, batch: Sequence[Queued]) -> None:
        """The server has refused these because of their date."""
        with self.file.own_transaction():
            self.outbox.refuse(batch, DRIFTED)

    @property
    def cursor(self) -> int:
        """How far this replica has pulled."""
        return int(self.file.meta("cursor") or "0")

    def apply(self, page: Page) -> Applied | None:
        """A page and its cursor; None, and nothing done, when the replica has gone elsewhere since it was asked for."""
        entries: dict[Place, list[Written]] = {}
        for entry in page.entries:
            entries.setdefault((entry.table, json_text(entry.row_id)), []).append(entry.change)
        with self.file.own_transaction():
            if self.cursor != page.since:
                return None
            changes = []
            places = dict.fromkeys([*entries, *self.outbox.passed(page.cursor)])
            for place in places:
                change = self._refresh(place, entries.get(place, ()))
                changes += [] if change is None else [change]
            ahead = self._clock.hear(entry.change.stamp.hlc for entry in page.entries)
            self.file.set_meta("cursor", str(page.cursor))
            return Applied(changes, ahead)

    def start_over(self) -> None:
        """Forget what the server has told; own changes stay."""
        with self.file.own_transaction():
            self.file.execute("DELETE FROM semel_rows")
            for place in self.outbox.places():
                self._refresh(place)
            self.file.set_meta("cursor", "0")

    def _shown(self, place: Place) -> Columns | None:
        found = self.file.execute("SELECT shown FROM semel_rows WHERE table_name = ? AND row_id = ?", place)
        return None if not found or found[0][0] is None else _columns(found[0][0])

    def _refresh(self, place: Place, entries: Iterable[Written] = ()) -> Change | None:
        """Work a row out again, after these entries and with the queue as it stands; the change, if it shows."""
        found = self.file.execute("SELECT base, shown FROM semel_rows WHERE table_name = ? AND row_id = ?", place)
        base, before = (load_base(found[0][0]), found[0][1]) if found else (NOTHING, None)
        for entry in entries:
            base = told(base, entry)
        own = self.outbox.own(place)
        columns = shown(base, own)
        after = None if columns is None else dump(columns).decode()
        self._keep(place, base, after, is_needed=base.is_live or bool(own))
        if before == after:
            return None
        return Change(place[0], row_id(place[1]), None if before is None else _columns(before), columns)

    def _keep(self, place: Place, base: Base, text: str | None, *, is_needed: bool) -> None:
        if is_needed:
            self.file.execute(
                "INSERT INTO semel_rows VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET base = excluded.base, shown = excluded.shown",
                (*place, dump_base(base), text),
            )
        else:
            self.file.execute("DELETE FROM semel_rows WHERE table_name = ? AND row_id = ?", place)


def _columns(text: str) -> Columns:
    value = parse(text.encode())
    assert isinstance(value, dict)
    return value
