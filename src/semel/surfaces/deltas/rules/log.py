"""The log of a gateway while one push is decided: positions, entries, and the last writers.

A delta in clock order has its own time as its position. A late delta is placed after every position and cursor that was
ever given out, so no cursor can have passed it.
"""

from __future__ import annotations

import orjson

from semel.engine.contract import View
from semel.kernel.hlc import tick
from semel.surfaces.deltas.model import Delta, DeltaEntry, DeltaOp
from semel.surfaces.deltas.rules.gateways import save_gateway
from semel.surfaces.deltas.rules.last_writer_wins import AuthorMark, RowState, apply, first_state, load_marks, marked
from semel.surfaces.deltas.rules.sync_rules import rules_of
from semel.surfaces.deltas.rules.visibility import (
    DeltaEffect,
    VisibilityRecord,
    VisibilityRecorder,
    dump_visibility,
    effect_of,
)
from semel.surfaces.deltas.tables import DELTA_AUTHOR, DELTA_LOG, DeltaAuthorRow, DeltaGatewayRow, DeltaLogRow, text_key


class GatewayLog:
    """The entries that one push adds."""

    def __init__(self, gateway: DeltaGatewayRow) -> None:
        self.gateway = gateway
        self.high_water = gateway.high_water
        self.authors = load_marks(orjson.loads(gateway.authors))
        self.rows: list[DeltaLogRow] = []
        self.entries: list[DeltaEntry] = []
        """The entries of the deltas, without repairs."""
        self.lost: set[tuple[str, str, str]] = set()
        """Author, table and row of the deltas of which a part had no effect."""
        self.repaired: dict[str, int] = {}
        """The position of the last repair for each author."""
        self.dropped: list[int] = []
        """Positions of repairs that were replaced by later ones."""
        self.inserted: dict[str, int] = {}
        """The end of the log when an author inserted a row without knowing that it existed."""
        self._author = ("", b"", b"")
        """The author of the last delta that created its row: its text, in UTF-8, and as JSON."""
        self.recorder = VisibilityRecorder(gateway.rules_version, rules_of(gateway.rules)) if gateway.rules else None

    def add(self, delta: Delta, state: RowState) -> None:
        """Add a delta to the log, with its effect on the row."""
        position = self._position(delta.hlc)
        before = None
        if self.recorder is not None:
            self.recorder.settle(delta.table, state)
            before = self.recorder.look(delta.table, state)
        change = apply(state, delta)
        if change.is_lost:
            self.lost.add((delta.client, delta.table, delta.row))
        effect = effect_of(delta, change)
        sight = None
        if effect is not None and self.recorder is not None:
            sight = dump_visibility(
                VisibilityRecord(self.recorder.version, before, self.recorder.look(delta.table, state))
            )
        self.rows.append(
            DeltaLogRow(
                self.gateway.gateway,
                position,
                delta.hlc,
                delta.id,
                delta.table.encode(),
                delta.row.encode(),
                delta.client.encode(),
                int(delta.op),
                delta.columns_text,
                0 if effect is None else int(effect.op),
                None if effect is None else effect.columns,
                sight,
                b"",
            )
        )
        if effect is not None:
            self._deliver(delta, effect, position, state)

    def add_first(self, delta: Delta, table: bytes, row: bytes) -> bytes:
        """Add a delta that creates its row, as `add` would, and return the stored form of the row.

        Only for an INSERT or UPDATE of plain columns, without sync rules. `table` and `row` are the bytes of its own.
        """
        self.high_water = position = max(delta.hlc, self.high_water + 1)
        op, _, _, client, _, columns, hlc, name = delta
        if client != self._author[0]:
            self._author = client, client.encode(), orjson.dumps(client)
        _, author, quoted = self._author
        self.rows.append(
            DeltaLogRow(self.gateway.gateway, position, hlc, name, table, row, author, op, columns, op, None, None, b"")
        )
        self.entries.append(DeltaEntry(position, op, delta.table, delta.row, client, hlc, name, columns))
        self.authors = marked(self.authors, AuthorMark(client, position, op))
        return first_state(delta, quoted, position)

    def _deliver(self, delta: Delta, effect: DeltaEffect, position: int, state: RowState) -> None:
        columns = delta.columns_text if effect.columns is None else effect.columns
        self.entries.append(
            DeltaEntry(
                position,
                effect.op,
                delta.table,
                delta.row,
                delta.client,
                delta.hlc,
                delta.id,
                columns,
                is_resolved=effect.columns is not None,
            )
        )
        mark = AuthorMark(delta.client, position, int(effect.op))
        self.authors = marked(self.authors, mark)
        state.entries = marked(state.entries, mark)
        if effect.op is not DeltaOp.UPDATE:
            state.turns = marked(state.turns, mark)

    def add_repair(self, delta: Delta, op: DeltaOp, columns: bytes, state: RowState) -> int:
        """Add an entry for the author of a delta only; returns its position.

        The position is even, so that it is never taken for the number of a push if another repair replaces this one.
        """
        position = self._position(0)
        position = self.high_water = position + position % 2
        sight = None
        if self.recorder is not None:
            values = self.recorder.look(delta.table, state)
            sight = dump_visibility(VisibilityRecord(self.recorder.version, values, values))
        self.rows.append(
            DeltaLogRow(
                self.gateway.gateway,
                position,
                delta.hlc,
                delta.id,
                delta.table.encode(),
                delta.row.encode(),
                delta.client.encode(),
                0,
                b"",
                int(op),
                columns,
                sight,
                delta.client.encode(),
            )
        )
        self.repaired[delta.client] = position
        return position

    def note_insert(self, author: str) -> int:
        """Record that an author has inserted a row without knowing the existing one; returns the end of the log."""
        self.inserted[author] = self.high_water
        return self.high_water

    def tick(self, now_ms: int, *, is_behind: bool) -> int:
        """The cursor with which the push is answered: odd if it is an alias.

        The number after an odd one is used up as well. The log therefore never ends at an odd number, and the end of a
        page that reaches it is a plain position, for which nothing has to be stored.
        """
        number = tick(self.high_water, now_ms)
        number += number % 2 if not is_behind else 1 - number % 2
        self.high_water = number + is_behind
        return number

    def save(self, view: View, new_rows: int) -> None:
        """Write the entries and the end of the log."""
        view.insert_all(DELTA_LOG, self.rows)
        self.dropped = [position for position in self.dropped if position > self.gateway.cut]
        for position in self.dropped:
            view.forget(DELTA_LOG, (self.gateway.gateway, position))
        for author in self.repaired.keys() | self.inserted.keys():
            self._save_author(view, author)
        gateway = self.gateway
        changed = gateway._replace(
            high_water=self.high_water,
            entries=gateway.entries + sum(row.op > 0 for row in self.rows) - len(self.dropped),
            deltas=gateway.deltas + sum(row.pushed > 0 for row in self.rows),
            rows=gateway.rows + new_rows,
            size=gateway.size + sum(len(row.body) + len(row.row_id) + len(row.client) for row in self.rows),
            authors=orjson.dumps(self.authors, default=tuple),
        )
        save_gateway(view, changed)

    def _save_author(self, view: View, author: str) -> None:
        key = (self.gateway.gateway, text_key(author))
        row = view.get(DELTA_AUTHOR, key) or DeltaAuthorRow(*key, 0, 0)
        repaired_at, inserted_at = (
            self.repaired.get(author, row.repaired_at),
            self.inserted.get(author, row.inserted_at),
        )
        view.put(DELTA_AUTHOR, row._replace(repaired_at=repaired_at, inserted_at=inserted_at))

    def _position(self, hlc: int) -> int:
        self.high_water = max(hlc, self.high_water + 1)
        return self.high_water
