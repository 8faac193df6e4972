"""Visibility: what one caller gets of an entry, under the sync rules of its gateway.

| seen before | seen after | told |
|---|---|---|
| yes | yes | the entry |
| no | yes | the entry, of a row that was not there before; else INSERT with the full row, if it is seen now |
| yes | no | DELETE |
| no | no | nothing |

Before and after are the merged row as the entry found and left it. Entries from before the rules were saved are judged
by the row as it stood then.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.contracts.deltas.limits import KEPT_AIDS
from semel.contracts.deltas.model import Entry, Op
from semel.contracts.deltas.rules.buckets import rules_of, sees
from semel.contracts.deltas.rules.entries import NO_COLUMNS
from semel.contracts.deltas.rules.rows import RowState, Values, load_state
from semel.contracts.deltas.rules.sight import load_sight
from semel.contracts.deltas.tables import DELTA_AUTHOR, DELTA_ROW, DeltaGatewayRow, DeltaLogRow, text_key
from semel.engine.reading import Reading
from semel.kernel.delta_id import columns_bytes, plain_column_bytes


class Watcher:
    """The view of one caller at one instant."""

    def __init__(
        self,
        reading: Reading,
        gateway: DeltaGatewayRow,
        claims: Mapping[str, tuple[str, ...]],
        client: str,
    ) -> None:
        self.own = client.encode()
        """Text of the caller's id, as it is stored."""
        author = reading.get(DELTA_AUTHOR, (gateway.gateway, text_key(client)))
        self._inserted_at = 0 if author is None else author.inserted_at
        self.repaired_at = 0 if author is None else author.repaired_at
        """The position of the last repair for the caller."""
        self._reading = reading
        self._claims = claims
        self._version = gateway.rules_version
        self._rules = rules_of(gateway.rules) if gateway.rules else None

    def entry(self, row: DeltaLogRow, mute: int) -> Entry | None:
        """The entry of a log row as this caller sees it; up to `mute` the caller cannot hold any row yet."""
        if row.addressee and row.addressee != self.own:
            return None
        if self._rules is None:
            return entry_of(row)
        sight = None if row.sight is None else load_sight(row.sight)
        if sight is None or sight.version != self._version:
            return self._judged_later(row, mute)
        was, is_now = self._sees(row, sight.before), self._sees(row, sight.after)
        if row.addressee:  # a row that its author has no business with any more goes; else it comes whole
            return gone(row) if row.op == Op.DELETE else self._entered(row) or gone(row)
        if is_now and not was and sight.before is not None:
            return self._entered(row)
        if is_now:
            return entry_of(row)
        return gone(row) if was else None

    def left(self, row: DeltaLogRow) -> tuple[Entry, ...]:
        """Of an entry of the caller's own: nothing, unless the row that it wrote to is out of its own view now."""
        if self._rules is None or row.addressee or row.op == Op.DELETE:
            return ()
        values = self._state(row).values()
        return () if values is not None and self._sees(row, values) else (gone(row),)

    def anew(self, row: DeltaLogRow) -> tuple[Entry, ...]:
        """The current state of a repaired row, whatever copy the caller has; a DELETE, if the row is not visible."""
        if row.op == Op.DELETE:
            return (gone(row),)
        values = self._state(row).values()
        is_seen = values is not None and (self._rules is None or self._sees(row, values))
        return (gone(row), _whole(row, values)) if is_seen and values is not None else (gone(row),)

    def may_hold(self, row: DeltaLogRow, entry: Entry, mute: int) -> bool:
        """Whether the caller may hold a copy of a row that must be removed before this entry is applied.

        It has made the row itself, not knowing of this entry. Under rules it may have any row that it ever wrote to.
        """
        is_own = row.client == self.own and not row.addressee and row.position > mute
        above = mute if self._rules is not None else max(row.position, mute)
        if entry.op is not Op.INSERT or is_own or self._inserted_at <= above:
            return False
        if self._rules is not None:
            return True
        aids = self._state(row).aids
        own = self.own.decode()
        # A row with all too many authors has forgotten some, and this may be one of them.
        return next((aid.inserted_at > above for aid in aids if aid.client == own), len(aids) >= KEPT_AIDS)

    def _entered(self, row: DeltaLogRow) -> Entry | None:
        """A row that becomes visible: all of it, in its current state, unless it is hidden again."""
        state = self._state(row)
        values = state.values()
        if values is None or not self._sees(row, values):
            return None
        return _whole(row, values)

    def _judged_later(self, row: DeltaLogRow, mute: int) -> Entry | None:
        """An entry from before the rules were saved. A new client gets nothing of what was deleted before then."""
        if row.op == Op.DELETE:
            return entry_of(row) if row.position > mute else None
        state = self._state(row)
        basis = state.basis
        values = basis.values if basis is not None and basis.version == self._version else state.values()
        return entry_of(row) if self._sees(row, values) else None

    def _state(self, row: DeltaLogRow) -> RowState:
        text = row.row_id.decode()
        found = self._reading.get(DELTA_ROW, (row.gateway, row.table_name, text_key(text)))
        assert found is not None, "every delta has a row"
        return load_state(text, found.state)

    def _sees(self, row: DeltaLogRow, values: Values | None) -> bool:
        assert self._rules is not None
        return sees(self._rules, self._claims, row.table_name.decode(), values)


def entry_of(row: DeltaLogRow) -> Entry:
    """The entry of a log row, without visibility rules."""
    columns = row.body if row.columns is None else row.columns
    return Entry(
        row.position,
        Op(row.op),
        row.table_name.decode(),
        row.row_id.decode(),
        row.client.decode(),
        row.hlc,
        row.id,
        columns,
        is_resolved=row.columns is not None,
    )


def gone(row: DeltaLogRow) -> Entry:
    """The same row, out of view."""
    return entry_of(row)._replace(op=Op.DELETE, columns=NO_COLUMNS, is_resolved=True)


def _whole(row: DeltaLogRow, values: Values) -> Entry:
    told = [plain_column_bytes(name, value) for name, value in values.items()]
    return entry_of(row)._replace(op=Op.INSERT, columns=columns_bytes(told), is_resolved=True)
