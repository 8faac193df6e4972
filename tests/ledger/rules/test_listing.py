"""Lists over many pages lose nothing and repeat nothing, whatever ends a page and whatever is written meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.store.protocol import Changes
from semel.surfaces.ledger import key_scan, pagination
from semel.surfaces.ledger.limits import MAX_LISTED_ROWS
from semel.surfaces.ledger.model import (
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    LedgerPlace,
    SetEntity,
)
from semel.surfaces.ledger.pagination import LedgerPage
from semel.surfaces.ledger.rules.chain import relationship_key, split_relationship
from semel.surfaces.ledger.tables import LEDGER_PAST, PastRow
from tests.ledger.rules.rig import BEGIN, LedgerDesk, State

MOST_PAGES = 1_000
BLOCKS = 14
TYPES = (b"doc", b"folder", b"")
NAMES = [b"a", b"a\xc3\xbf", b"ab", b"abc", b"ac", b"b", b"ba", b"\xc3\xa9", b"\xf4\x8f\xbf\xbf"]
RESOURCES = [b"doc:1", b"doc:2", b"doc:22", b"folder:1", b"folder:2", b"group:1"]
RELATIONS = [b"editor", b"viewer"]
SUBJECTS = [b"user:1", b"user:2", b"user:33"]
EXPIRIES = (0, 0, BEGIN - 5, BEGIN + 10**6)

Ask = Callable[[Reading, str], LedgerPage[Any]]


def pages(desk: LedgerDesk, ask: Ask, between: Callable[[], object] = lambda: None) -> list[LedgerPage[Any]]:
    """Every page of a list, with something done before each but the first."""
    found = [desk.look(lambda reading: ask(reading, ""))]
    while len(found) < MOST_PAGES:
        if not found[-1].token:
            return found
        between()
        found.append(desk.look(lambda reading: ask(reading, found[-1].token)))
    raise AssertionError("a list without an end")


def items(found: Iterable[LedgerPage[Any]]) -> list[Any]:
    return [item for page in found for item in page.items]


# -- against the plainest account -------------------------------------------------------------------------------------


class End(NamedTuple):
    """What ends a page: the limit that is asked for, or one of the server's own bounds, made small."""

    limit: int
    bounds: dict[str, int]


ENDS = {
    "limit-1": End(1, {}),
    "limit-3": End(3, {}),
    "limit-and-chunks-of-1": End(2, {"CHUNK": 1}),
    "chunks-of-3": End(1_000, {"CHUNK": 3}),
    "bytes": End(1_000, {"MAX_PAGE_BYTES": 8}),
    "every-byte": End(1_000, {"MAX_PAGE_BYTES": 0, "CHUNK": 2}),
    "rows-looked-at": End(1_000, {"MAX_LISTED_ROWS": 2}),
    "one-row-looked-at": End(1_000, {"MAX_LISTED_ROWS": 1, "CHUNK": 1}),
    "the-past-walked-through": End(3, {"MAX_RECENT_BLOCKS": 0}),
    "the-past-in-chunks-of-1": End(2, {"MAX_RECENT_BYTES": 0, "CHUNK": 1}),
    "the-past-in-chunks-of-3": End(1_000, {"MAX_RECENT_BLOCKS": 3, "CHUNK": 3, "MAX_LISTED_ROWS": 20}),
    "all-of-them": End(2, {"MAX_LISTED_ROWS": 5, "MAX_PAGE_BYTES": 20, "CHUNK": 3}),
}


class List(NamedTuple):
    """A list as it is asked for at a height, and what it must tell of a state."""

    ask: Callable[[LedgerPlace, int | None, int], Ask]
    expected: Callable[[State], list[Any]]


def entities(prefix: bytes, include_expired: bool) -> List:
    def ask(place: LedgerPlace, height: int | None, limit: int) -> Ask:
        return lambda reading, token: pagination.list_entities(
            reading, place, prefix, height, include_expired, limit, token
        )

    def expected(state: State) -> list[Entity]:
        found = [state[key] for key in sorted(state) if key[:1] != b"\0" and key.startswith(prefix)]
        return [one for one in found if include_expired or not one.expires_at or one.expires_at > BEGIN]

    return List(ask, expected)


def relationships(*wanted: bytes | None) -> List:
    def ask(place: LedgerPlace, height: int | None, limit: int) -> Ask:
        resource, relation, subject = wanted
        return lambda reading, token: pagination.list_relationships(
            reading, place, resource, relation, subject, height, limit, token
        )

    def expected(state: State) -> list[tuple[bytes, ...]]:
        found = [split_relationship(key) for key in sorted(state) if key[:1] == b"\0"]
        return [parts for parts in found if all(want in (None, part) for want, part in zip(wanted, parts, strict=True))]

    return List(ask, expected)


def resources(kind: bytes) -> List:
    def ask(place: LedgerPlace, height: int | None, limit: int) -> Ask:
        return lambda reading, token: pagination.list_resources(reading, place, kind, height, limit, token)

    def expected(state: State) -> list[bytes]:
        found = [split_relationship(key)[0] for key in sorted(state) if key[:1] == b"\0"]
        return list(dict.fromkeys(one for one in found if not kind or one.startswith(kind + b":")))

    return List(ask, expected)


LISTS = {
    "entities": entities(b"", include_expired=True),
    "entities-unexpired": entities(b"", include_expired=False),
    "entities-by-prefix": entities(b"a", include_expired=True),
    "entities-by-a-last-prefix": entities(b"\xf4\x8f\xbf\xbf", include_expired=True),
    "relationships": relationships(None, None, None),
    "relationships-of-a-resource": relationships(b"doc:2", None, None),
    "relationships-by-two": relationships(b"doc:2", b"viewer", None),
    "relationships-of-a-subject": relationships(None, None, b"user:1"),
    "relationships-by-resource-and-subject": relationships(b"doc:22", None, b"user:33"),
    "relationships-by-relation-and-subject": relationships(None, b"viewer", b"user:2"),
    "relationships-by-all": relationships(b"doc:1", b"viewer", b"user:2"),
    "relationships-by-relation": relationships(None, b"editor", None),
    **{f"resources-{kind.decode() or 'all'}": resources(kind) for kind in TYPES},
}


class Busy:
    """A vault in which one transaction after another changes a little of everything."""

    def __init__(self, seed: int) -> None:
        self.desk = LedgerDesk()
        self.place = self.desk.make_vault(9)
        self._chance = random.Random(seed)
        for _ in range(BLOCKS):
            self.go_on()

    @property
    def states(self) -> list[State]:
        return self.desk.states[self.place]

    def go_on(self) -> None:
        self.desk.commit(self.place, *[self._operation() for _ in range(self._chance.randint(1, 6))])

    def _operation(self) -> SetEntity | DeleteEntity | CreateRelationship | DeleteRelationship:
        chance = self._chance
        if chance.random() < 0.5:
            name = chance.choice(NAMES)
            set_it = SetEntity(name, chance.randbytes(chance.randrange(6)), chance.choice(EXPIRIES))
            return set_it if chance.random() < 0.6 else DeleteEntity(name)
        parts = chance.choice(RESOURCES), chance.choice(RELATIONS), chance.choice(SUBJECTS)
        return CreateRelationship(*parts) if chance.random() < 0.6 else DeleteRelationship(*parts)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", LISTS)
def test_pages_together_are_the_state_of_one_height(name: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the current one and of older ones, while the chain goes on after every page."""
    limit, bounds = ENDS[end]
    for bound, value in bounds.items():
        monkeypatch.setattr(pagination if hasattr(pagination, bound) else key_scan, bound, value)
    ask, expected = LISTS[name]
    busy = Busy(1)
    for back in (None, 0, 1, BLOCKS // 2, BLOCKS - 1):
        tip = len(busy.states) - 1
        height = tip - (back or 0)
        found = pages(busy.desk, ask(busy.place, None if back is None else height, limit), busy.go_on)
        assert items(found) == expected(busy.states[height])
        assert {page.height for page in found} == {height}
        assert max(len(page.items) for page in found) <= min(limit, bounds.get("MAX_LISTED_ROWS", limit))


def test_a_state_that_is_no_longer_kept_ends_a_list() -> None:
    desk = LedgerDesk()
    place = desk.make_vault(9, retain=2)
    desk.commit(place, *[SetEntity(b"%d" % number, b"") for number in range(4)])

    def ask(reading: Reading, token: str) -> LedgerPage[Entity]:
        return pagination.list_entities(reading, place, b"", None, True, 1, token)

    first = desk.look(lambda reading: ask(reading, ""))
    for _ in range(2):
        desk.commit(place, DeleteEntity(b"3"))
    assert [one.key for one in desk.look(lambda reading: ask(reading, first.token)).items] == [b"1"]
    desk.commit(place, DeleteEntity(b"3"))
    with pytest.raises(Refused, match="no longer kept"):
        desk.look(lambda reading: ask(reading, first.token))


# -- many that are gone -----------------------------------------------------------------------------------------------

LIVE = (b"doc:5", b"viewer", b"user:50000")
NEXT = (b"doc:7", b"viewer", b"user:1")
GONE = MAX_LISTED_ROWS + 300


def gone(place: LedgerPlace, resource: bytes, first: int) -> list[PastRow]:
    """Relationships that were there from height 1 to height 2."""
    keys = (relationship_key(resource, b"viewer", b"user:%05d" % (first + number)) for number in range(GONE))
    return [PastRow(*place, key, 2, b"", 0, 0, 1, split_relationship(key)[2]) for key in keys]


PASTS = {"before": (b"doc:5", 0), "behind": (b"doc:5", 50_001), "in-another-before": (b"doc:4", 0)}


@pytest.mark.parametrize("where", PASTS)
def test_a_resource_among_thousands_of_relationships_that_are_gone(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one page looks at, at an older height: their rows are put into the store as deletions leave them."""
    monkeypatch.setattr(key_scan, "MAX_RECENT_BLOCKS", 0)
    desk = LedgerDesk()
    place = desk.make_vault(9)
    for _ in range(3):
        desk.commit(place, CreateRelationship(*LIVE), CreateRelationship(*NEXT))
    tx = desk.memory.begin(())
    tx.flush(Changes({LEDGER_PAST: gone(place, *PASTS[where])}, {}, {}))
    tx.commit()
    for kind, height, expected in (
        (resources(b"doc"), None, [LIVE[0], NEXT[0]]),
        (resources(b""), 2, [LIVE[0], NEXT[0]]),
        (relationships(None, None, None), None, [LIVE, NEXT]),
    ):
        found = pages(desk, kind.ask(place, height, 100))
        assert items(found) == expected
        assert (len(found) > 1) == (height is not None)
