"""What every store must hold and give, in the plainest way: dictionaries, copied for each snapshot.

`StoreModel` knows what a transaction changes, `require_equal` what each way of reading must give. Nothing is clever.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import groupby

from semel.store.protocol import AnyTable, Changes, Range, Row, Snapshot, Touch, Tx
from semel.store.table import Key
from tests.store.conformance import PARCEL, TABLES, THING, TICKET, expected

PLENTY = 2**40
Generation = dict[Key, Row]


class StoreModel:
    """The rows of each table: the younger generation, and behind it the older one of a generational table."""

    def __init__(self, generations: Mapping[AnyTable, tuple[Generation, Generation]] | None = None) -> None:
        self._generations = dict(generations or {table: ({}, {}) for table in TABLES})

    def copy(self) -> StoreModel:
        """The same rows, which do not change any more."""
        return StoreModel({table: (dict(new), dict(old)) for table, (new, old) in self._generations.items()})

    def generation(self, table: AnyTable, age: int) -> Generation:
        """One generation; the older one may hold rows that the younger one has replaced."""
        return self._generations[table][age]

    def rows(self, table: AnyTable) -> Generation:
        """What is read of a table."""
        younger, older = self._generations[table]
        return older | younger

    def apply(self, changes: Changes) -> None:
        """The changes of one flush; touches come last."""
        for written in (changes.inserts, changes.updates, changes.steady):
            for table, rows in written.items():
                self.generation(table, 0).update({table.key_of(row): row for row in rows})
        for table, groups in changes.narrow.items():
            self.generation(table, 0).update({table.key_of(row): row for group in groups for row in group.rows})
        for table, keys in changes.deletes.items():
            for key in keys:
                for generation in self._generations[table]:
                    generation.pop(key, None)
        for touch in changes.touches:
            self._touch(touch)

    def rotate(self, table: AnyTable) -> None:
        """The younger generation becomes the older one, which goes."""
        self._generations[table] = ({}, self.generation(table, 0))

    def _touch(self, touch: Touch) -> None:
        for generation in self._generations[touch.table]:
            row = generation.get(touch.key)
            if row is not None:
                generation[touch.key] = touch.raised(row) if touch.means(row) else row
                return


def require_loaded(tx: Tx, model: StoreModel, wanted: Sequence[Range]) -> None:
    """A transaction loads rows by key, its own changes among them, and ranges as of the last commit."""
    keys = {table: [*model.rows(table), _absent(table)] for table in TABLES}
    loaded = tx.load(keys, wanted)
    assert {table: dict(loaded.rows[table]) for table in TABLES} == {table: model.rows(table) for table in TABLES}
    for one, rows in zip(wanted, loaded.ranges, strict=True):
        assert list(rows) == expected(model.rows(one.table).values(), one), one


def require_equal(snapshot: Snapshot, model: StoreModel, wanted: Sequence[Range], chance: random.Random) -> None:
    """Every way of reading gives the rows of the model."""
    for table in TABLES:
        rows = model.rows(table)
        keys = [*rows, _absent(table)]
        assert dict(snapshot.find(table, keys)) == rows
        some = chance.choice(keys)
        assert snapshot.get(table, some) == rows.get(some)
        for age in (0, 1):
            _require_pages(snapshot, model, table, age, chance.choice((1, 2, 7, 1_000)))
    found = [expected(model.rows(one.table).values(), one) for one in wanted]
    keys_found = [[one.table.key_of(row) for row in rows] for one, rows in zip(wanted, found, strict=True)]
    assert [list(snapshot.range(one)) for one in wanted] == found, wanted
    assert [list(snapshot.keys(one)) for one in wanted] == keys_found, wanted
    assert [list(some) for some in snapshot.keys_each(wanted)] == keys_found, wanted
    for one in wanted:
        _require_distinct(snapshot, model, one)
    _require_neighbours(snapshot, model, chance)
    _require_joined(snapshot, model, chance)


def _require_pages(snapshot: Snapshot, model: StoreModel, table: AnyTable, age: int, limit: int) -> None:
    """All pages of a generation, each begun behind the one before; the keys alone must tell the same."""
    found: list[Row] = []
    behind: Key | None = None
    while page := list(snapshot.page(table, age, behind, limit, PLENTY)):
        assert len(page) <= limit
        assert list(snapshot.page_keys(table, age, behind, limit)) == [table.key_of(row) for row in page]
        found += page
        behind = table.key_of(page[-1])
    replaced = model.generation(table, 0) if age else {}
    seen = {key: row for row in found if (key := table.key_of(row)) not in replaced}
    assert list(seen) == sorted(seen)
    assert seen == {key: row for key, row in model.generation(table, age).items() if key not in replaced}


def _require_distinct(snapshot: Snapshot, model: StoreModel, wanted: Range) -> None:
    """The values of the column behind the prefix, once each."""
    order, depth = wanted.table.ordering(wanted.by), len(wanted.prefix)
    if depth == len(order):
        return
    alone = wanted._replace(start=wanted.start[:1], stop=wanted.stop[:1], reverse=False)
    rows = expected(model.rows(wanted.table).values(), alone._replace(limit=PLENTY))
    values = [value for value, _ in groupby(getattr(row, order[depth]) for row in rows)]
    assert list(snapshot.distinct(alone)) == values[: alone.limit], alone


def _require_neighbours(snapshot: Snapshot, model: StoreModel, chance: random.Random) -> None:
    """For many beginnings of a key at once: the last row below a bound, and the first one from it on."""
    rows = model.rows(THING)
    prefixes = sorted({key[:2] for key in rows} | {(b"absent", 1)})
    bound = chance.choice((0, 1, 5, 2**63, 2**64 - 1))
    latest, earliest = dict[Key, Row](), dict[Key, Row]()
    for key in sorted(rows):
        if key[2] < bound:
            latest[key[:2]] = rows[key]
        else:
            earliest.setdefault(key[:2], rows[key])
    assert snapshot.latest(THING, prefixes, bound) == latest
    assert snapshot.earliest(THING, prefixes, bound) == earliest


def _require_joined(snapshot: Snapshot, model: StoreModel, chance: random.Random) -> None:
    wanted = Range(PARCEL, "", (), chance.choice((1, 3, 99)), reverse=chance.random() < 0.5)
    rows = expected(model.rows(PARCEL).values(), wanted)
    between = chance.choice((b"", b",", b"\x00"))
    joined = snapshot.joined(wanted, "content", between)
    assert joined == ((rows[-1].number, len(rows), between.join(row.content for row in rows)) if rows else None)


def _absent(table: AnyTable) -> Key:
    return {THING: (b"absent", 1, 1), TICKET: (b"absent", 1), PARCEL: (-99,)}[table]
