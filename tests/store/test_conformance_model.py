"""What every store promises of transactions, snapshots, order, soft changes and generations, beside a model.

Each step is a transaction of any changes that is committed, rolled back, given up with the store, or breaks; a turn of
the generations; or a snapshot that is opened, or looked at and let go. Values are the extremes of their columns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from semel.store.protocol import AnyTable, Changes, NarrowRows, Range, Row, Snapshot, StoreError, Touch, Tx
from semel.store.table import Key
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    TABLES,
    THING,
    TICKET,
    ParcelRow,
    PersistentPlace,
    Place,
    ThingRow,
    TicketRow,
)
from tests.store.model import StoreModel, require_equal, require_loaded

SHELVES = (b"", b"\x00", b"\x00\xff", b"a", b"a\x00", b"a\x00b", b"a\xff", b"b", b"\x7f", b"\x80", b"\xff")
SIGNED = (-(2**63), -(2**40), -2, -1, 0, 1, 2, 2**40, 2**63 - 1)
UNSIGNED = (0, 1, 2, 255, 256, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
COLUMNS = {"shelf": SHELVES, "number": SIGNED, "serial": UNSIGNED, "weight": SIGNED, "rank": UNSIGNED, "label": SHELVES}
OWNERS = (b"", b"o", b"o\x00", b"p")
NUMBERS = {"number": SIGNED, "owner": OWNERS}
KINDS = ("inserts", "updates", "steady", "narrow", "deletes")
INDEXED = ("weight", "rank", "label")
MOST_SNAPSHOTS = 3


class Walk:
    """One store and its model, side by side."""

    def __init__(self, place: Place, seed: int) -> None:
        self._place = place
        self._chance = random.Random(seed)
        self._store = place.open()
        self._model = StoreModel()
        self._snapshots: list[tuple[Snapshot, StoreModel]] = []

    def run(self, steps: int) -> None:
        """All steps; everything is compared after each."""
        for _ in range(steps):
            step = self._chance.choice((*[self._transact] * 8, self._break, self._look, self._let_go, self._reopen))
            step()
            with self._store.read() as snapshot:
                self._compare(snapshot, self._model)
        while self._snapshots:
            self._let_go()

    def _transact(self) -> None:
        model = self._model.copy()
        with self._begun() as tx:
            require_loaded(tx, model, [self._range() for _ in range(5)])
            is_plain = True
            for _ in range(self._chance.choice((0, 1, 1, 2, 3))):
                changes = self._changes(model)
                tx.flush(changes)
                model.apply(changes)
                is_plain = is_plain and not changes.touches
                if self._chance.random() < 0.15:
                    tx.rotate(TICKET)
                    model.rotate(TICKET)
                    is_plain = False
                if is_plain:  # what a turn and soft changes come to is seen after the commit
                    require_loaded(tx, model, [])
            with self._store.read() as snapshot:
                self._compare(snapshot, self._model)  # nobody else sees any of it
                if self._chance.random() < 0.7:
                    tx.commit()
                    before, self._model = self._model, model
                    self._compare(snapshot, before)

    def _break(self) -> None:
        """An insert that meets a row is an error, and nothing of its transaction is stored."""
        table = self._chance.choice(TABLES)
        known = self._model.generation(table, 0)
        if not known:
            return
        row = self._chance.choice(list(known.values()))
        with self._begun() as tx, pytest.raises(StoreError):  # noqa: PT012 - at once, or at the latest with the commit
            tx.flush(self._changes(self._model.copy())._replace(inserts={table: [row]}, updates={}, deletes={}))
            tx.commit()

    def _look(self) -> None:
        if len(self._snapshots) < MOST_SNAPSHOTS:
            snapshot: Snapshot = self._store.read()
            snapshot.__enter__()
            if self._chance.random() < 0.5:  # one that was not used yet has its instant too
                self._compare(snapshot, self._model)
            self._snapshots.append((snapshot, self._model.copy()))

    def _let_go(self) -> None:
        if self._snapshots:
            snapshot, model = self._snapshots.pop(self._chance.randrange(len(self._snapshots)))
            self._compare(snapshot, model)
            snapshot.__exit__(None, None, None)

    def _reopen(self) -> None:
        """Whatever is committed outlives the store, where stores outlive anything; what is open does not."""
        if isinstance(self._place, PersistentPlace):
            while self._snapshots:
                self._let_go()
            tx = self._store.begin(LOCKS)
            tx.flush(self._changes(self._model.copy()))
            self._store = self._place.reopen()

    @contextmanager
    def _begun(self) -> Iterator[Tx]:
        tx = self._store.begin(LOCKS, durable=self._chance.random() < 0.2)
        try:
            yield tx
        finally:
            tx.rollback()
            tx.rollback()  # harmless after the end

    def _compare(self, snapshot: Snapshot, model: StoreModel) -> None:
        require_equal(snapshot, model, [self._range() for _ in range(4)], self._chance)

    # -- Changes ------------------------------------------------------------------------------------------------------

    def _changes(self, model: StoreModel) -> Changes:
        """Any that fit the rows; each row is written once, and may be touched besides."""
        written: dict[str, dict[AnyTable, list[Row]]] = {kind: {} for kind in KINDS}
        deletes: dict[AnyTable, list[Key]] = {}
        touches: list[Touch] = []
        for table in TABLES:
            rows = {table.key_of(row): row for row in (self._row(table) for _ in range(self._chance.choice((0, 2, 9))))}
            for key, row in rows.items():
                self._write(table, row, model.rows(table).get(key), written, deletes)
                if self._chance.random() < 0.3:
                    touches.append(self._touch(table, key))
        narrow = {table: [NarrowRows(self._narrow_columns, rows)] for table, rows in written["narrow"].items() if rows}
        return Changes(written["inserts"], written["updates"], deletes, touches, written["steady"], narrow=narrow)

    _narrow_columns = ("weight", "note", "rank")

    def _write(
        self,
        table: AnyTable,
        row: Row,
        known: Row | None,
        written: dict[str, dict[AnyTable, list[Row]]],
        deletes: dict[AnyTable, list[Key]],
    ) -> None:
        kind = "inserts" if known is None else self._chance.choice(KINDS[1:])
        if self._chance.random() < 0.15 or kind == "deletes":
            deletes.setdefault(table, []).append(table.key_of(row))  # harmless if there is none
            return
        if kind == "steady" and table is THING and known is not None:
            row = row._replace(**{name: getattr(known, name) for name in INDEXED})
        elif kind == "steady" and table is PARCEL and known is not None:
            row = row._replace(owner=known.owner)
        elif kind == "narrow" and table is THING and known is not None:
            row = known._replace(**{name: getattr(row, name) for name in self._narrow_columns})
        elif kind == "narrow":
            kind = "updates"
        written[kind].setdefault(table, []).append(row)

    def _row(self, table: AnyTable) -> Row:
        pick = self._chance.choice
        if table is TICKET:
            return TicketRow(pick(SHELVES[:4]), pick(UNSIGNED[:3]), pick(SIGNED))
        if table is PARCEL:
            return ParcelRow(pick(SIGNED), pick(OWNERS), pick(SHELVES))
        return ThingRow(
            pick(SHELVES[:5]),
            pick(SIGNED[::3]),
            pick(UNSIGNED[::3]),
            pick(SIGNED),
            pick(UNSIGNED),
            pick(SHELVES),
            pick((None, b"", b"n")),
            pick(SIGNED),
            pick(UNSIGNED),
            pick((None, *SIGNED)),
        )

    def _touch(self, table: AnyTable, key: Key) -> Touch:
        """Only upwards; of a life, or with a column beside it, now and then."""
        pick = self._chance.choice
        if table is TICKET:
            return Touch(TICKET, key, "used_at", pick(SIGNED))
        if table is PARCEL:
            return Touch(THING, (b"absent", *key, 1), "seen_at", 5)
        column = pick(("seen_at", "weight", "used_at"))
        value = pick(UNSIGNED if column == "used_at" else SIGNED)
        touch = Touch(THING, key, column, value)
        of_a_life = touch._replace(life_column="label", life=pick(SHELVES))
        return pick((touch, of_a_life, touch._replace(beside_column="note", beside=b"beside")))

    def _range(self) -> Range:
        """Any range: every index, prefix, bounds of any depth, limit and direction."""
        pick = self._chance.choice
        table, values = pick(((THING, COLUMNS), (THING, COLUMNS), (PARCEL, NUMBERS)))
        by = pick(("", *table.indexes))
        order = table.ordering(by)
        depth = self._chance.randrange(len(order) + 1)

        def bound() -> Key:
            length = self._chance.randrange(len(order) - depth + 1)
            return tuple(pick(values[name]) for name in order[depth : depth + length])

        prefix = tuple(pick(values[name]) for name in order[:depth])
        return Range(table, by, prefix, pick((0, 1, 2, 3, 100)), bound(), bound(), self._chance.random() < 0.5)


@pytest.mark.parametrize("seed", range(4))
def test_a_store_agrees_with_a_model(place: Place, seed: int) -> None:
    Walk(place, seed).run(60)


@pytest.mark.parametrize("flaw", ["a lost touch", "a lost delete", "a rotation that keeps"])
def test_a_store_that_is_wrong_is_found_out(place: Place, flaw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds what it is there to find."""
    if flaw == "a lost touch":
        monkeypatch.setattr(StoreModel, "_touch", lambda self, touch: None)
    elif flaw == "a lost delete":
        apply = StoreModel.apply
        monkeypatch.setattr(StoreModel, "apply", lambda self, changes: apply(self, changes._replace(deletes={})))
    else:
        monkeypatch.setattr(StoreModel, "rotate", lambda self, table: None)
    with pytest.raises(AssertionError):
        Walk(place, 1).run(240)
