"""The rows that a push writes to: which ones are loaded, and their states while the push is decided.

A row is found in two steps: its number by table and id, then its state by table and number. A row that is new has no
number, so a push of new rows reads no state. Each row of a push is loaded once, changed in memory by all deltas of the
push, and written once. A row that only one delta creates has no state in memory at all: its stored form is made of the
texts of the delta.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from semel.engine.contract import Stage, View
from semel.store.table import Key
from semel.surfaces.deltas.commands import DeltaFlaw
from semel.surfaces.deltas.limits import FIRST_ROWS, MAX_COLUMNS, MAX_ROW_BYTES, MAX_TOUCHED_BYTES, MORE_ROWS
from semel.surfaces.deltas.model import Delta, DeltaOp, PlainColumns
from semel.surfaces.deltas.rules.last_writer_wins import RowState, dump_state, is_flat, load_state
from semel.surfaces.deltas.rules.log import GatewayLog
from semel.surfaces.deltas.tables import (
    DELTA_ROW,
    DELTA_ROW_NUMBER,
    DeltaRowNumberRow,
    DeltaRowRow,
    text_key,
)

NumberedDelta = tuple[int, Delta]
"""A delta with its index in the push."""
_SHORT_BYTES = 64 * 1024
"""A row of more bytes is folded in memory, where its size is checked."""
_Place = tuple[str, str]
"""The table and the text of the id of a row."""


def row_keys(gateway: bytes, deltas: Iterable[Delta]) -> list[Key]:
    """The keys of the rows of some deltas, by table and id, each once."""
    return list(dict.fromkeys((gateway, delta.table.encode(), text_key(delta.row)) for delta in deltas))


def row_needs(view: View, keys: Sequence[Key], *, are_numbered: bool) -> Generator[Stage, View, None]:
    """Load the rows of these keys, a few at a time up to the limit; with `are_numbered` their numbers are loaded."""
    if not are_numbered and keys:
        yield Stage(keys=[(DELTA_ROW_NUMBER, key) for key in keys])
    places = _places(view, keys)
    done, size = 0, 0
    while done < len(places) and size <= MAX_TOUCHED_BYTES:
        count = MORE_ROWS if done else FIRST_ROWS
        chunk = places[done : done + count]
        yield Stage(keys=[(DELTA_ROW, place) for place in chunk])
        size += sum(_state_bytes(view, place) for place in chunk)
        done += count


def are_too_heavy(view: View, keys: Sequence[Key]) -> bool:
    """Whether the rows of these keys together exceed the limit of a push."""
    size = 0
    for place in _places(view, keys):
        size += _state_bytes(view, place)
        if size > MAX_TOUCHED_BYTES:
            return True
    return False


def _places(view: View, keys: Iterable[Key]) -> list[Key]:
    """The keys of the states of the rows that exist."""
    found = ((key, view.get(DELTA_ROW_NUMBER, key)) for key in keys)
    return [(key[0], key[1], row.number) for key, row in found if row is not None]


def _state_bytes(view: View, place: Key) -> int:
    row = view.get(DELTA_ROW, place)
    assert row is not None, "a number belongs to a row"
    return len(row.state)


def creates_row(delta: Delta) -> bool:
    """Whether a delta on a new row may be stored without a state in memory: the row is what the delta says.

    This is so for plain columns without nested values, which is almost every INSERT. The result is the same either way:
    a differential test compares both.
    """
    columns = delta.columns
    return (
        type(columns) is PlainColumns
        and delta.op is not DeltaOp.DELETE
        and len(columns) <= MAX_COLUMNS
        and len(delta.columns_text) <= _SHORT_BYTES
        and is_flat(delta.columns_text, len(columns))
    )


def _numbered(key: Key, number: int) -> DeltaRowNumberRow:
    gateway, table, row = key
    return DeltaRowNumberRow(gateway, table, row, number)


class _PushedRow(NamedTuple):
    key: Key
    number: int
    state: RowState


class PushedRows:
    """The states of the rows of a push: each loaded once and written once."""

    def __init__(self, view: View, log: GatewayLog) -> None:
        self._view = view
        self._log = log
        self._gateway = log.gateway
        self._rows: dict[_Place, _PushedRow] = {}
        self._created: dict[_Place, DeltaRowRow] = {}
        """Rows that one delta of the push has created."""
        self._keys: dict[_Place, Key] = {}
        """The keys of the created rows."""
        self._stored: dict[_Place, bytes] = {}
        self.made = 0
        """The number of new rows."""

    def add(self, delta: Delta) -> None:
        """Fold a delta into its row, and add it to the log."""
        place = (delta.table, delta.row)
        if place not in self._rows and place not in self._created and self._log.recorder is None:
            key = (self._gateway.gateway, delta.table.encode(), text_key(delta.row))
            if self._view.get(DELTA_ROW_NUMBER, key) is None and creates_row(delta):
                row = delta.row.encode()
                stored = self._log.add_first(delta, key[1], row)
                self._created[place] = DeltaRowRow(key[0], key[1], self._next_number(), row, stored)
                self._keys[place] = key
                return
        self._log.add(delta, self._of(delta))

    def states(self, fresh: Iterable[Delta]) -> list[tuple[Delta, RowState]]:
        """The deltas whose authors may need a repair, with their rows. The author of a row's only delta needs none."""
        rows = self._rows
        return [(delta, rows[place].state) for delta in fresh if (place := (delta.table, delta.row)) in rows]

    def _of(self, delta: Delta) -> RowState:
        """The state of a delta's row."""
        place = (delta.table, delta.row)
        found = self._rows.get(place)
        if found is None:
            created = self._created.pop(place, None)
            if created is None:
                found = self._find(delta)
            else:
                state = load_state(delta.row, created.state)
                state.is_new = True
                found = _PushedRow(self._keys.pop(place), created.number, state)
            self._rows[place] = found
        return found.state

    def _find(self, delta: Delta) -> _PushedRow:
        key = (self._gateway.gateway, delta.table.encode(), text_key(delta.row))
        found = self._view.get(DELTA_ROW_NUMBER, key)
        if found is None:
            return _PushedRow(key, self._next_number(), RowState(delta.row, is_new=True))
        row = self._view.get(DELTA_ROW, (key[0], key[1], found.number))
        assert row is not None, "a number belongs to a row"
        return _PushedRow(key, found.number, load_state(delta.row, row.state))

    def _next_number(self) -> int:
        self.made += 1
        return self._gateway.rows + self.made - 1

    def flaws(self, fresh: Sequence[NumberedDelta]) -> list[DeltaFlaw]:
        """The deltas whose rows would exceed the limit of a row."""
        self._stored = {place: dump_state(row.state) for place, row in self._rows.items()}
        flaws = []
        for index, delta in fresh if self._rows else ():
            place = (delta.table, delta.row)
            if delta.op is DeltaOp.DELETE or place not in self._rows:
                continue  # it only makes the row smaller, or the row has its columns alone
            if len(self._rows[place].state.cells) > MAX_COLUMNS or len(self._stored[place]) > MAX_ROW_BYTES:
                message = f"Its row would have more than {MAX_COLUMNS} columns or {MAX_ROW_BYTES} bytes."
                flaws.append(DeltaFlaw(index, delta.id.hex(), "VALIDATION_ERROR", message, 413))
        return flaws

    def save(self) -> None:
        """Write the states, and the numbers of new rows."""
        view = self._view
        new = list(self._created.values())
        numbers = [_numbered(self._keys[place], row.number) for place, row in self._created.items()]
        for place, (key, number, state) in self._rows.items():
            row = DeltaRowRow(key[0], key[1], number, state.row.encode(), self._stored[place])
            if state.is_new:
                numbers.append(_numbered(key, number))
                new.append(row)
            else:
                view.put(DELTA_ROW, row)
        view.insert_all(DELTA_ROW_NUMBER, numbers)
        view.insert_all(DELTA_ROW, new)
