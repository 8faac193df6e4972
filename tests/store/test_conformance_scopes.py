"""Look-ups of a key whose scope is not known: every store finds the same rows below the scopes of a range."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from semel.store.migrations import CreateTable, Migration
from semel.store.postgres.connection import PgConnection
from semel.store.postgres.pipeline import Filled, Rows
from semel.store.postgres.snapshot import PgSnapshot
from semel.store.protocol import AnyTable, Changes, Range, Row, Store, turn_lock
from semel.store.scopes import ProbedScopes, ScopeProbe
from semel.store.table import U64, Table
from tests.store.conformance import Place, PostgresPlace


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


@pytest.mark.parametrize("limit", [1, 7, 64, 500])
@pytest.mark.parametrize("by", ["", "weight"])
def test_pages_of_scopes_have_every_match_once(store: Store, by: str, limit: int) -> None:
    wanted, ordered = Range(SHELF, by, (), limit), sorted(SHELVES, key=lambda row: SHELF.index_key(by, row))
    for at in range(0, len(ordered), limit):
        found, page = probed(store, wanted), ordered[at : at + limit]
        assert (found.tried, found.last) == (len(page), SHELF.index_key(by, page[-1]))
        assert [{key[:2] for key in rows} for rows in found.rows] == expected(page)
        assert all(
            probe.table.key_of(row) == key
            for probe, rows in zip(PROBES, found.rows, strict=True)
            for key, row in rows.items()
        )
        *rest, last = found.last
        wanted = wanted._replace(start=(*rest, last + 1) if last < 2**64 - 1 else (*rest[:-1], rest[-1] + b"\0"))
    assert probed(store, wanted) == ProbedScopes(0, (), [{}, {}, {}])


@pytest.mark.parametrize("limit", [1, 7, 500])
@pytest.mark.parametrize("by", ["", "weight"])
def test_scopes_of_one_column_have_every_match_once(place: Place, by: str, limit: int) -> None:
    bins = [BinRow(b"b%02d" % number, -number) for number in range(40)]
    notes = [NoteRow(row.name, 2**63 + serial, b"t%d" % serial) for row in bins[::3] for serial in (1, 2)]
    store = place.open(TABLES, MIGRATIONS)
    put(store, (BIN, bins), (NOTE, notes), (TOKEN, [TokenRow(row.name, b"k") for row in bins[::4]]))
    tx = store.begin([turn_lock(TOKEN)])
    tx.rotate(TOKEN)
    tx.flush(Changes({}, {TOKEN: [TokenRow(row.name, b"k") for row in bins[::8]]}, {}))
    tx.commit()
    probes = (
        ScopeProbe(NOTE, (2**63 + 1,)),
        ScopeProbe(NOTE, (2**63 + 1,), (("text", b"t2"),)),
        ScopeProbe(TOKEN, (b"k",)),
    )
    wanted, names = Range(BIN, by, (), limit), list[list[bytes]]([[], [], []])
    while (found := probed(store, wanted, probes)).tried:
        for some, rows in zip(names, found.rows, strict=True):
            some += [key[0] for key in rows]
        wanted = wanted._replace(start=(*found.last[:-1], found.last[-1] + b"\0"))
    assert [sorted(some) for some in names] == [[row.name for row in bins[::3]], [], [row.name for row in bins[::4]]]


def test_scopes_of_a_prefix_and_below_a_bound_are_tried_alone(store: Store) -> None:
    found = probed(store, Range(SHELF, "", (b"s03",), 99, stop=(2**63,)))
    assert (found.tried, found.last) == (2, (b"s03", 1))
    assert [{key[:2] for key in rows} for rows in found.rows] == expected(SHELVES[12:14])


def test_a_row_of_the_younger_generation_hides_the_older_one(store: Store) -> None:
    tx = store.begin([turn_lock(STAMP)])
    tx.rotate(STAMP)
    tx.flush(Changes({STAMP: [StampRow(b"s00", 1, b"k", 98)]}, {STAMP: [StampRow(b"s00", 0, b"k", 99)]}, {}))
    tx.commit()
    [rows] = probed(store, Range(SHELF, "", (b"s00",), 99), [ScopeProbe(STAMP, (b"k",))]).rows
    assert {key[1]: row.value for key, row in rows.items()} == {0: 99, 1: 98}
    [rows] = probed(store, Range(SHELF, "", (b"s01",), 99), [ScopeProbe(STAMP, (b"k",))]).rows
    assert {key[1]: row.value for key, row in rows.items()} == {0: 4}, "the older generation is still read"


def test_a_probe_may_ask_for_one_of_several_columns(store: Store) -> None:
    everything = Range(SHELF, "", (), 500)
    [both, second, none, line] = probed(
        store,
        everything,
        [
            ScopeProbe(LABEL, (2**63 + 5,), (("text", b"t0"), ("text", b"t1"))),
            ScopeProbe(LABEL, (2**63 + 5,), (("text", b"t1"), ("text", b"t2"))),
            ScopeProbe(LABEL, (2**63 + 5,), (("text", b"t2"),)),
            ScopeProbe(LOG, (b"k",), (("mark", b"l"),)),
        ],
    ).rows
    assert (len(both), len(none), len(line)) == (40, 0, 0)
    assert {row.text for row in second.values()} == {b"t1"}
    assert len(second) == 20


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


def test_on_postgres_a_page_of_scopes_is_one_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[tuple[PgConnection, int]] = []
    asked = PgConnection.exchange

    def counted(line: PgConnection, statements: Sequence[Filled]) -> list[Rows]:
        trips.append((line, len(statements)))
        return asked(line, statements)

    with closing(PostgresPlace(tmp_path)) as place:
        opened = place.open(TABLES, MIGRATIONS)
        put(opened, (SHELF, SHELVES), (STAMP, [StampRow(b"s03", 1, b"k", 7)]))
        with opened.read() as snapshot:
            assert isinstance(snapshot, PgSnapshot)
            snapshot.probe(Range(SHELF, "", (), 1), PROBES)  # learns which generation is the younger
            monkeypatch.setattr(PgConnection, "exchange", counted)
            found = snapshot.probe(Range(SHELF, "", (), 500), PROBES)
            assert (found.tried, [len(rows) for rows in found.rows]) == (len(SHELVES), [0, 1, 0])
            assert len([line for line, _ in trips if line is snapshot._line]) == 1, "other lines belong to the store"


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
