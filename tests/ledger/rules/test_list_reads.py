"""How often a page asks the store for something, on any store: at most as often as 20 statements allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from semel.engine.reading import Reading
from semel.store.protocol import Changes, Snapshot
from semel.surfaces.ledger import key_scan, pagination
from semel.surfaces.ledger.limits import MAX_LISTED_ROWS
from semel.surfaces.ledger.model import CreateRelationship, Entity, LedgerPlace, SetEntity
from semel.surfaces.ledger.pagination import LedgerPage
from semel.surfaces.ledger.reading import blocks, read_entities
from semel.surfaces.ledger.tables import INLINE_BYTES, LEDGER_ENTITY, LEDGER_PAST, EntityRow, PastRow
from tests.ledger.rules.rig import BEGIN, LedgerDesk

MOST_READS = 17
"""20 statements, without those that begin the transaction, read the clock and end it."""
ITEMS = 1_000
MANY = MAX_LISTED_ROWS + 1_000


class Counted:
    """A snapshot that counts the questions."""

    def __init__(self, inside: Snapshot) -> None:
        self._inside = inside
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._inside, name)
        if not callable(asked):
            return asked
        self.calls.append(name)
        return asked


def cost(desk: LedgerDesk, ask: Callable[[Reading], Any]) -> tuple[Any, Sequence[str]]:
    """An answer, and what was asked for it."""
    counted: list[Counted] = []

    def through(snapshot: Snapshot) -> Counted:
        counted.append(Counted(snapshot))
        return counted[-1]

    found = desk.look(ask, through)
    [one] = counted
    return found, one.calls


@pytest.fixture
def vault() -> tuple[LedgerDesk, LedgerPlace]:
    """More than a page of everything, in two blocks that are then written over."""
    desk = LedgerDesk()
    place = desk.make_vault(9)
    for value in (b"before", b"after"):
        for first in range(0, ITEMS + 200, 400):
            numbers = range(first, first + 400)
            desk.commit(place, *[SetEntity(b"%05d" % number, value) for number in numbers])
            desk.commit(place, *[CreateRelationship(b"doc:%d" % number, b"viewer", b"user:1") for number in numbers])
    desk.commit(place, *[SetEntity(b"large:%03d" % number, bytes(INLINE_BYTES + 1)) for number in range(400)])
    desk.commit(place, *[SetEntity(b"large:%03d" % number, bytes(INLINE_BYTES + 2)) for number in range(400)])
    return desk, place


HEIGHTS = {"now": None, "a-recent-height": 13, "an-old-height": 6}


def _entities(
    reading: Reading, place: LedgerPlace, prefix: bytes, height: int | None, limit: int, token: str
) -> LedgerPage[Entity]:
    return pagination.list_entities(reading, place, prefix, height, False, limit, token)


@pytest.mark.parametrize("recent", [1_000, 0], ids=["by-blocks", "by-the-past"])
@pytest.mark.parametrize("height", HEIGHTS.values(), ids=HEIGHTS)
def test_e1_a_page_of_a_thousand_asks_few_questions(
    vault: tuple[LedgerDesk, LedgerPlace], height: int | None, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_scan, "MAX_RECENT_BLOCKS", recent)
    desk, place = vault
    asks: list[Callable[..., LedgerPage[Any]]] = [
        lambda reading, token: pagination.list_entities(reading, place, b"0", height, False, ITEMS, token),
        lambda reading, token: pagination.list_relationships(reading, place, None, None, None, height, ITEMS, token),
        lambda reading, token: pagination.list_resources(reading, place, b"doc", height, ITEMS, token),
    ]
    for ask in asks:
        first, calls = cost(desk, partial(ask, token=""))
        assert (len(first.items), len(calls) <= MOST_READS) == (ITEMS, True), calls
        second, calls = cost(desk, partial(ask, token=first.token))
        assert (len(second.items), len(calls) <= MOST_READS) == (200, True), calls


def test_e1_large_values_are_asked_for_at_once(vault: tuple[LedgerDesk, LedgerPlace]) -> None:
    desk, place = vault
    for height in (None, 13):
        page, calls = cost(
            desk,
            partial(_entities, place=place, prefix=b"large", height=height, limit=ITEMS, token=""),
        )
        assert (len(page.items), len(calls) <= MOST_READS) == (400, True), calls
    keys = [b"large:%03d" % number for number in range(400)]
    (found, _), calls = cost(desk, lambda reading: read_entities(reading, place, keys))
    assert (len(found), len(calls) <= MOST_READS) == (400, True), calls
    (told, _), calls = cost(desk, lambda reading: blocks(reading, place, 1, ITEMS))
    assert (len(told) > 1, len(calls) <= MOST_READS) == (True, True), calls


@pytest.mark.parametrize("limit", [1, 10, ITEMS])
def test_e1_a_page_that_leaves_out_thousands_asks_few_questions(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired entities now, and keys that are gone at an older height: as many as a page looks at, and more."""
    monkeypatch.setattr(key_scan, "MAX_RECENT_BLOCKS", 0)
    desk = LedgerDesk()
    place = desk.make_vault(9)
    for _ in range(3):
        desk.commit(place, SetEntity(b"z", b"live"))
    expired = [EntityRow(*place, b"e%05d" % number, b"", 0, BEGIN - 5, 1, b"") for number in range(MANY)]
    gone = [PastRow(*place, b"g%05d" % number, 2, b"", 0, 0, 1, b"") for number in range(MANY)]
    tx = desk.memory.begin(())
    tx.flush(Changes({LEDGER_ENTITY: expired, LEDGER_PAST: gone}, {}, {}))
    tx.commit()
    for height in (None, 2):
        found: list[Entity] = []
        token = ""
        for _ in range(20):
            page, calls = cost(
                desk,
                partial(_entities, place=place, prefix=b"", height=height, limit=limit, token=token),
            )
            assert len(calls) <= MOST_READS, calls
            found += page.items
            token = page.token
            if not token:
                break
        assert ([one.key for one in found], token) == ([b"z"], "")
