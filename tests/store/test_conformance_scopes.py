"""Look-ups of a key whose scope is not known: every store finds the same rows below the scopes of a range."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import pytest

from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import AnyTable, Changes, Range, Row, Store, turn_lock
from semel.store.scopes import ProbedScopes, ScopeProbe
from semel.store.table import U64, Table
from tests.store.conformance import Place


class ShelfRow(NamedTuple):
    name: bytes
    floor: U64
    weight: int


class LabelRow(NamedTuple):
    """Below a shelf."""

    name: bytes
    floor: U64
    serial: U64
    text: bytes


class StampRow(NamedTuple):
    """Below a shelf, and forgotten with its generation."""

    name: bytes
    floor: U64
    mark: bytes
    value: int


class LogRow(NamedTuple):
    """Below a shelf, found by its whole key."""

    name: bytes
    floor: U64
    mark: bytes


class BinRow(NamedTuple):
    name: bytes
    weight: int


class NoteRow(NamedTuple):
    """Below a bin."""

    name: bytes
    serial: U64
    text: bytes


class TokenRow(NamedTuple):
    """Below a bin, and forgotten with its generation."""

    name: bytes
    mark: bytes


SHELF = Table("shelf", ShelfRow, key=2, indexes={"weight": ("weight",)})
LABEL = Table("label", LabelRow, key=3)
STAMP = Table("stamp", StampRow, key=3, generational=True)
LOG = Table("shelf_log", LogRow, key=3, log=True)
BIN = Table("bin", BinRow, key=1, indexes={"weight": ("weight",)})
NOTE = Table("note", NoteRow, key=2)
TOKEN = Table("token", TokenRow, key=2, generational=True, log=True)
TABLES: tuple[AnyTable, ...] = (SHELF, LABEL, STAMP, LOG, BIN, NOTE, TOKEN)
MIGRATIONS = (Migration(1, "shelves", tuple(CreateTable(table.shape) for table in TABLES)),)
FLOORS = (0, 1, 2**63, 2**64 - 1)
SHELVES = [ShelfRow(b"s%02d" % number, floor, -number) for number in range(30) for floor in FLOORS]
PROBES = (ScopeProbe(LABEL, (2**63 + 5,)), ScopeProbe(STAMP, (b"k",)), ScopeProbe(LOG, (b"k",)))


def put(store: Store, *rows: tuple[AnyTable, Sequence[Row]]) -> None:
    """Insert rows."""
    tx = store.begin(())
    tx.flush(Changes(dict(rows), {}, {}))
    tx.commit()


def probed(store: Store, scopes: Range, probes: Sequence[ScopeProbe] = PROBES) -> ProbedScopes:
    with store.read() as snapshot:
        return snapshot.probe(scopes, probes)


@pytest.fixture
def store(place: Place) -> Store:
    """Every third shelf has a label, every fourth a stamp, every fifth a line in the log; the others have like ones."""
    opened = place.open(TABLES, MIGRATIONS)
    labels = [LabelRow(*row[:2], 2**63 + 5 - min(at % 3, 1), b"t%d" % (at % 2)) for at, row in enumerate(SHELVES)]
    stamps = [StampRow(*row[:2], b"k" if at % 4 == 0 else b"l", at) for at, row in enumerate(SHELVES)]
    lines = [LogRow(*row[:2], b"k" if at % 5 == 0 else b"l") for at, row in enumerate(SHELVES)]
    put(opened, (SHELF, SHELVES), (LABEL, labels), (STAMP, stamps), (LOG, lines))
    return opened


def expected(shelves: Sequence[ShelfRow]) -> list[set[tuple[bytes, int]]]:
    """The shelves that have a match of each probe."""
    places = {row[:2]: at for at, row in enumerate(SHELVES)}
    return [{row[:2] for row in shelves if places[row[:2]] % step == 0} for step in (3, 4, 5)]


@pytest.mark.parametrize("by", ["", "weight"])
def test_a_probe_may_pass_over_scopes_in_which_a_column_is_low(store: Store, by: str) -> None:
    for number in (-99, -10, 1):
        page = probed(
            store,
            Range(SHELF, by, (), 500),
            [ScopeProbe(LABEL, (2**63 + 5,), (("text", b"t0"), ("text", b"t1")), ("weight", number))],
        )
        high = {row[:2] for row in SHELVES if row.weight >= number}
        assert {key[:2] for key in page.rows[0]} & high == expected(SHELVES)[0] & high
        assert page.tried == len(SHELVES)


def test_keys_of_a_log_table_are_found_by_their_last_column(store: Store) -> None:
    with store.read() as snapshot:
        found = snapshot.keys_ending(LOG, b"k", 1_000_000)
        assert found is not None
        assert {key[:2] for key in found} == expected(SHELVES)[2]
        assert snapshot.keys_ending(LOG, b"never", 1_000_000) == []
        assert snapshot.keys_ending(LOG, b"k", 1) is None


def test_an_empty_log_table_has_no_keys(place: Place) -> None:
    with place.open(TABLES, MIGRATIONS).read() as snapshot:
        assert snapshot.keys_ending(LOG, b"k", 1) == []


Given = TypeVar("Given", bound=NamedTuple)


def plainly(store: Store, scopes: Range, probes: Sequence[ScopeProbe]) -> ProbedScopes:
    """The same by the rows of the range, and a look-up of each key."""
    with store.read() as snapshot:
        rows = snapshot.range(scopes)
        keys = [scopes.table.key_of(row) for row in rows]
        found = [
            {
                key: row
                for key, row in snapshot.find(probe.table, [one + probe.rest for one in keys]).items()
                if probe.means(row)
            }
            for probe in probes
        ]
    return ProbedScopes(len(rows), scopes.table.index_key(scopes.by, rows[-1]) if rows else (), found)


@pytest.mark.parametrize("seed", range(4))
def test_any_look_up_finds_what_the_plain_way_finds(place: Place, seed: int) -> None:
    """Names that begin with each other, empty ones, with NULs and the greatest bytes; every bound and direction."""
    chance, store = random.Random(seed), place.open(TABLES, MIGRATIONS)
    names = list({bytes(chance.choice(b"\x00\x01a\xff") for _ in range(chance.randrange(5))) for _ in range(80)})
    marks = [b"", b"\x00", b"k", b"k\x00", b"\xff" * 3]
    floors = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
    shelves = [ShelfRow(name, floor, chance.randrange(-3, 3)) for name in names for floor in chance.sample(floors, 3)]
    bins = [BinRow(name, chance.randrange(-3, 3)) for name in names]

    def some(rows: list[Given]) -> list[Given]:
        return chance.sample(rows, len(rows) // 2)

    def under(rows: list[ShelfRow]) -> dict[AnyTable, Sequence[Row]]:
        """Rows below some of these shelves."""
        stamps = {row[:2]: StampRow(*row[:2], chance.choice(marks), chance.randrange(9)) for row in some(rows)}
        tokens = {row.name: TokenRow(row.name, chance.choice(marks)) for row in some(bins)}
        return {STAMP: list(stamps.values()), TOKEN: list(tokens.values())}

    labels = [LabelRow(*row[:2], chance.choice(floors), chance.choice(marks)) for row in some(shelves)]
    lines = [LogRow(*row[:2], chance.choice(marks)) for row in some(shelves)]
    notes = [NoteRow(row.name, chance.choice(floors), chance.choice(marks)) for row in some(bins)]
    put(store, (SHELF, shelves), (BIN, bins), (LABEL, labels), (LOG, lines), (NOTE, notes), *under(shelves).items())
    tx = store.begin([turn_lock(STAMP), turn_lock(TOKEN)])
    tx.rotate(STAMP)
    tx.rotate(TOKEN)
    tx.flush(Changes({}, under(shelves), {}))
    tx.commit()
    for _ in range(120):
        by, limit, reverse = chance.choice(["", "weight"]), chance.choice([1, 3, 20, 500]), chance.random() < 0.3
        table: AnyTable = SHELF if chance.random() < 0.5 else BIN
        ways = [table.index_key(by, row) for row in (shelves if table is SHELF else bins)]
        depth = chance.randrange(2)
        prefix = chance.choice(ways)[:depth]
        start, stop = (chance.choice([(), chance.choice(ways)[depth : depth + 1]]) for _ in range(2))
        wanted = Range(table, by, prefix, limit, start=start, stop=stop, reverse=reverse)
        mark, number = chance.choice(marks), chance.choice(floors)
        either = chance.choice([(), (("text", chance.choice(marks)),)])
        probes = [
            *([ScopeProbe(LABEL, (number,), either), ScopeProbe(STAMP, (mark,)), ScopeProbe(LOG, (mark,))]),
            ScopeProbe(STAMP, (mark,), (("value", 3), ("value", 4))),
        ]
        if table is BIN:
            probes = [ScopeProbe(NOTE, (number,), either), ScopeProbe(TOKEN, (mark,))]
        assert probed(store, wanted, probes) == plainly(store, wanted, probes), (wanted, probes)
