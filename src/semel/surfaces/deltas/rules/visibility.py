"""What a pull delivers of a delta: its effect on the row, and what one caller sees of it under the sync rules.

The effect of a delta, chosen so that a client which applies it without further checks has the right row:

| before | after | operation | columns |
|---|---|---|---|
| absent | absent | DELETE, if the delta is the last DELETE; otherwise nothing | none |
| absent | live | INSERT, for an INSERT or a row that was deleted before; otherwise UPDATE | the delta's own |
| live | live | UPDATE; nothing without columns | those that won, and null for those that a late tombstone removed |
| live | absent | DELETE | none |

What a caller sees of an entry:

| seen before | seen after | delivered |
|---|---|---|
| yes | yes | the entry |
| no | yes | the entry, if the row was absent before; otherwise INSERT with the full row, if it is seen now |
| yes | no | DELETE |
| no | no | nothing |

Before and after are the merged row as the entry found and left it. The columns that the rules name are stored with the
entry, because the row changes further. The first change of a row after the rules were saved also stores the row
before the change, by which entries older than the rules are filtered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from semel.engine.reading import Reading
from semel.kernel.hashes import columns_bytes, plain_column_bytes
from semel.surfaces.deltas.limits import KEPT_AIDS
from semel.surfaces.deltas.model import Delta, DeltaColumn, DeltaEntry, DeltaOp
from semel.surfaces.deltas.rules.last_writer_wins import RowChange, RowState, Values, VisibilityBasis, load_state
from semel.surfaces.deltas.rules.sync_rules import SyncRules, columns_for, rules_of, sees
from semel.surfaces.deltas.tables import DELTA_AUTHOR, DeltaGatewayRow, DeltaLogRow, find_row, text_key


class VisibilityRecord(NamedTuple):
    """The columns that rules of one version name, before and after an entry; None if there was no row."""

    version: int
    before: Values | None
    after: Values | None


class VisibilityRecorder(NamedTuple):
    """The rules of a gateway while a push is decided."""

    version: int
    rules: SyncRules

    def look(self, table: str, state: RowState) -> Values | None:
        """The columns of a row that the rules read."""
        if not state.is_live:
            return None
        cells = state.cells
        return {name: cells[name].value for name in columns_for(self.rules, table) if name in cells}

    def settle(self, table: str, state: RowState) -> None:
        """Before the first change of a row under these rules, store its state."""
        if state.basis is None or state.basis.version != self.version:
            state.basis = VisibilityBasis(self.version, self.look(table, state))


def dump_visibility(sight: VisibilityRecord) -> bytes:
    """The stored form."""
    return orjson.dumps(tuple(sight))


def load_visibility(stored: bytes) -> VisibilityRecord:
    """From the stored form."""
    facts: list[Any] = orjson.loads(stored)
    return VisibilityRecord(*facts)


NO_COLUMNS = b"[]"


class DeltaEffect(NamedTuple):
    """The part of an entry that depends on the row."""

    op: DeltaOp
    columns: bytes | None
    """The text of the columns; None if they are the delta's own."""


def effect_of(delta: Delta, change: RowChange) -> DeltaEffect | None:
    """The visible effect of a delta; None if there is none."""
    if change.was_live and change.is_live:
        return _altered(delta, change)
    if change.is_live:
        is_new = delta.op is DeltaOp.INSERT or change.was_deleted
        return DeltaEffect(DeltaOp.INSERT if is_new else DeltaOp.UPDATE, _own(delta))
    if change.was_live or change.raised:
        return DeltaEffect(DeltaOp.DELETE, None if not delta.columns else NO_COLUMNS)
    return None


def _altered(delta: Delta, change: RowChange) -> DeltaEffect | None:
    if delta.op is not DeltaOp.DELETE and len(change.won) == len(delta.columns):
        return DeltaEffect(DeltaOp.UPDATE, _own(delta)) if change.won else None
    told = [column_told(column) for column in change.won]
    told += [plain_column_bytes(name, "null") for name in change.removed]
    return DeltaEffect(DeltaOp.UPDATE, columns_bytes(told)) if told else None


def _own(delta: Delta) -> bytes | None:
    return None if all(column.has_value for column in delta.columns) else _told(delta.columns)


def _told(columns: Sequence[DeltaColumn]) -> bytes:
    return columns_bytes([column_told(column) for column in columns])


def column_told(column: DeltaColumn) -> bytes:
    """A column as it is delivered: as it was sent, with null for a missing value."""
    if column.has_value and column.text is not None:
        return column.text.encode()
    return plain_column_bytes(column.name, column.value)


class CallerView:
    """The view of one caller in one snapshot."""

    def __init__(
        self,
        reading: Reading,
        gateway: DeltaGatewayRow,
        claims: Mapping[str, tuple[str, ...]],
        client: str,
    ) -> None:
        self.own = client.encode()
        """The text of the caller's id, as it is stored."""
        author = reading.get(DELTA_AUTHOR, (gateway.gateway, text_key(client)))
        self._inserted_at = 0 if author is None else author.inserted_at
        self.repaired_at = 0 if author is None else author.repaired_at
        """The position of the last repair for the caller."""
        self._reading = reading
        self._claims = claims
        self._version = gateway.rules_version
        self._rules = rules_of(gateway.rules) if gateway.rules else None

    def entry(self, row: DeltaLogRow, mute: int) -> DeltaEntry | None:
        """The entry of a log row as this caller sees it; up to `mute` the caller cannot hold any row yet."""
        if row.addressee and row.addressee != self.own:
            return None
        if self._rules is None:
            return entry_of(row)
        sight = None if row.sight is None else load_visibility(row.sight)
        if sight is None or sight.version != self._version:
            return self._judged_later(row, mute)
        was, is_now = self._sees(row, sight.before), self._sees(row, sight.after)
        if row.addressee:  # a repair delivers the whole row, or deletes it if its author no longer sees it
            return gone(row) if row.op == DeltaOp.DELETE else self._entered(row) or gone(row)
        if is_now and not was and sight.before is not None:
            return self._entered(row)
        if is_now:
            return entry_of(row)
        return gone(row) if was else None

    def left(self, row: DeltaLogRow) -> tuple[DeltaEntry, ...]:
        """What is delivered of the caller's own entry: nothing, unless the caller no longer sees the row."""
        if self._rules is None or row.addressee or row.op == DeltaOp.DELETE:
            return ()
        values = self._state(row).values()
        return () if values is not None and self._sees(row, values) else (gone(row),)

    def anew(self, row: DeltaLogRow) -> tuple[DeltaEntry, ...]:
        """The current state of a repaired row, for any copy that the caller may have; a DELETE if the row is not
        visible.
        """
        if row.op == DeltaOp.DELETE:
            return (gone(row),)
        values = self._state(row).values()
        is_seen = values is not None and (self._rules is None or self._sees(row, values))
        return (gone(row), _whole(row, values)) if is_seen and values is not None else (gone(row),)

    def may_hold(self, row: DeltaLogRow, entry: DeltaEntry, mute: int) -> bool:
        """Whether the caller may hold a copy of a row that must be deleted before this entry is applied.

        This is so if it has inserted the row without knowing this entry. Under rules it may hold any row that it ever
        wrote.
        """
        is_own = row.client == self.own and not row.addressee and row.position > mute
        above = mute if self._rules is not None else max(row.position, mute)
        if entry.op is not DeltaOp.INSERT or is_own or self._inserted_at <= above:
            return False
        if self._rules is not None:
            return True
        aids = self._state(row).aids
        own = self.own.decode()
        # A row with too many authors does not store all of them, and the caller may be a missing one.
        return next((aid.inserted_at > above for aid in aids if aid.client == own), len(aids) >= KEPT_AIDS)

    def _entered(self, row: DeltaLogRow) -> DeltaEntry | None:
        """A row that becomes visible: the full row in its current state, unless it is hidden again."""
        state = self._state(row)
        values = state.values()
        if values is None or not self._sees(row, values):
            return None
        return _whole(row, values)

    def _judged_later(self, row: DeltaLogRow, mute: int) -> DeltaEntry | None:
        """An entry from before the rules were saved. A new client gets no entry of a row that was deleted
        before then.
        """
        if row.op == DeltaOp.DELETE:
            return entry_of(row) if row.position > mute else None
        state = self._state(row)
        basis = state.basis
        values = basis.values if basis is not None and basis.version == self._version else state.values()
        return entry_of(row) if self._sees(row, values) else None

    def _state(self, row: DeltaLogRow) -> RowState:
        text = row.row_id.decode()
        found = find_row(self._reading, (row.gateway, row.table_name, text_key(text)))
        assert found is not None, "every delta has a row"
        return load_state(text, found.state)

    def _sees(self, row: DeltaLogRow, values: Values | None) -> bool:
        assert self._rules is not None
        return sees(self._rules, self._claims, row.table_name.decode(), values)


def entry_of(row: DeltaLogRow) -> DeltaEntry:
    """The entry of a log row, without visibility rules."""
    columns = row.body if row.columns is None else row.columns
    return DeltaEntry(
        row.position,
        DeltaOp(row.op),
        row.table_name.decode(),
        row.row_id.decode(),
        row.client.decode(),
        row.hlc,
        row.id,
        columns,
        is_resolved=row.columns is not None,
    )


def gone(row: DeltaLogRow) -> DeltaEntry:
    """A DELETE of the row, because it is out of view."""
    return entry_of(row)._replace(op=DeltaOp.DELETE, columns=NO_COLUMNS, is_resolved=True)


def _whole(row: DeltaLogRow, values: Values) -> DeltaEntry:
    told = [plain_column_bytes(name, value) for name, value in values.items()]
    return entry_of(row)._replace(op=DeltaOp.INSERT, columns=columns_bytes(told), is_resolved=True)
