"""The rows and pages that groups of plain transactions need.

They are loaded in stages: first all rows that the requests name; then the last blocks of the places with the first
pages of the tree that are not in memory; then further pages, level by level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from semel.engine.plain_write import LoadedByKey, LoadPlain
from semel.store.protocol import AnyTable, Row
from semel.store.table import Key
from semel.surfaces.ledger.commands import WriteCommand
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.packed_tree import (
    NO_HEIGHT,
    PLACE_BYTES,
    KnownPage,
    below,
    is_known,
    place_bytes,
    read_packed,
    way_of,
    whole_way,
)
from semel.surfaces.ledger.rules.state_tree import BUCKETS, seahash
from semel.surfaces.ledger.tables import (
    ALONE,
    LEDGER_BLOCK,
    LEDGER_ENTITY,
    LEDGER_KEY,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    LEDGER_TERM,
    LEDGER_TOPS,
    LEDGER_TREE,
)

MAX_PAGE_BYTES = 1024 * 1024
"""Limit of bytes of tree rows that are loaded on the event loop; a row may have the pages of a large transaction."""

FIRST_ROWS = 16
"""Tree rows that are loaded before their bytes are counted; each further load has twice as many."""

PlainPath = tuple[int, bytes]
"""The bucket of a key, and its way in the tree."""
Pages = dict[bytes, KnownPage]


class LoadedGroups(NamedTuple):
    """What was loaded for the groups of a batch."""

    rows: LoadedByKey
    paths: Sequence[Sequence[PlainPath]]
    """The paths of the transactions, by group."""
    known: Mapping[bytes, KnownPage]
    """Pages in memory."""
    pages: Pages | None
    """Pages that were loaded; None if there are too many of them."""


def load_groups(
    load: LoadPlain, groups: Sequence[Sequence[WriteCommand]], known: Mapping[bytes, KnownPage]
) -> LoadedGroups:
    """Load what these groups need; `known` are the pages in memory."""
    places: dict[LedgerPlace, bytes] = {}
    streams: dict[Key, None] = {}
    names: dict[Key, None] = {}
    entities: dict[Key, None] = {}
    paths: list[list[PlainPath]] = []
    for commands in groups:
        some: list[PlainPath] = []
        for command in commands:
            place, client, _, name, operations = command.write[:5]
            before = places.get(place)
            if before is None:
                before = places[place] = place_bytes(place)
            streams[*place, client] = None
            if name:
                names[*place, client, name] = None
            key: bytes = operations[0].key  # type: ignore[union-attr]
            entities[*place, key] = None
            bucket = seahash(key) % BUCKETS
            some.append((bucket, way_of(before, bucket, key)))
        paths.append(some)
    keys: dict[AnyTable, Iterable[Key]] = {
        LEDGER_TERM: (ALONE,),
        LEDGER_ORG: {(place.org,): None for place in places},
        LEDGER_PLACE: places,
        LEDGER_TOPS: places,
        LEDGER_STREAM: streams,
        LEDGER_ENTITY: entities,
        LEDGER_KEY: names,
    }
    rows: dict[AnyTable, Mapping[Key, Row]] = dict(load(keys, ()).rows)
    heads = [(*row[:2], row.height) for row in rows[LEDGER_PLACE].values() if row.height]
    missing = _missing_pages(groups, paths, rows[LEDGER_TOPS], known)
    first = list({one.row: None for one in missing})[:FIRST_ROWS]
    loaded = load({LEDGER_BLOCK: heads, LEDGER_TREE: first}, ()).rows
    rows[LEDGER_BLOCK] = loaded[LEDGER_BLOCK]
    return LoadedGroups(rows, paths, known, _load_pages(_TreeRows(load, loaded[LEDGER_TREE]), missing, known))


class _Missing(NamedTuple):
    """A page that is not in memory, and the rest of the path that leads through it."""

    place: LedgerPlace
    key: bytes
    way: bytes
    at: int
    """The length of its name."""
    height: bytes

    @property
    def row(self) -> Key:
        """The key of the row that has the page."""
        return (*self.place, int.from_bytes(self.height, "big"), self.way[PLACE_BYTES])


def _missing_pages(
    groups: Sequence[Sequence[WriteCommand]],
    paths: Sequence[Sequence[PlainPath]],
    tops: Mapping[Key, Row],
    known: Mapping[bytes, KnownPage],
) -> list[_Missing]:
    """The first page on each of these paths that is not in memory."""
    missing: list[_Missing] = []
    for commands, some in zip(groups, paths, strict=True):
        for command, (bucket, way) in zip(commands, some, strict=True):
            place = command.write.place
            top = tops.get(place)
            height = NO_HEIGHT if top is None else top.heights[8 * bucket : 8 * bucket + 8]
            if height != NO_HEIGHT and not is_known(known, way, height):
                key: bytes = command.write.operations[0].key  # type: ignore[union-attr]
                found = _walk({}, known, way, PLACE_BYTES + 1, height, key)
                if found is not None:
                    missing.append(_Missing(place, key, *found))
    return missing


class _TreeRows:
    """The rows of the tree that were loaded, each once."""

    def __init__(self, load: LoadPlain, first: Mapping[Key, Row]) -> None:
        self._load = load
        self.rows: dict[Key, Row] = {}
        self._left = MAX_PAGE_BYTES
        self._take(first)

    def add(self, wanted: Iterable[Key]) -> bool:
        """Load those of these rows that are not there; False if all rows together have too many bytes."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self.rows]
        start, count = 0, FIRST_ROWS
        while self._left >= 0 and start < len(missing):
            self._take(self._load({LEDGER_TREE: missing[start : start + count]}, ()).rows[LEDGER_TREE])
            start, count = start + count, 2 * count
        return self._left >= 0

    def _take(self, rows: Mapping[Key, Row]) -> None:
        self.rows.update(rows)
        self._left -= sum(len(row.pages) for row in rows.values())


def _load_pages(trees: _TreeRows, missing: Sequence[_Missing], known: Mapping[bytes, KnownPage]) -> Pages | None:
    """All pages that are not in memory, level by level; None if their rows have too many bytes."""
    pages: Pages = {}
    while missing:
        if not trees.add(one.row for one in missing):
            return None
        for one in missing:
            name = one.way[: one.at]
            page = read_packed(trees.rows[one.row].pages, name[PLACE_BYTES:], one.height)
            assert page is not None, "a page of the tree is missing"
            pages[name] = page
        further = [(one, _walk(pages, known, one.way, one.at, one.height, one.key)) for one in missing]
        missing = [_Missing(one.place, one.key, *found) for one, found in further if found is not None]
    return pages


def _walk(
    pages: Mapping[bytes, KnownPage],
    known: Mapping[bytes, KnownPage],
    way: bytes,
    at: int,
    height: bytes,
    key: bytes,
) -> tuple[bytes, int, bytes] | None:
    """Go on through pages that are there, to the first one that must be loaded; None if there is none."""
    while True:
        name = way[:at]
        page = pages.get(name) or known.get(name)
        if page is None or page[0] != height:
            return way, at, height
        if at == len(way):
            way = whole_way(way, key)
        written = below(page, way[at])
        if written is None:
            return None
        height, at = written, at + 1
