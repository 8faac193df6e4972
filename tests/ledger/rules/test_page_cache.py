"""Pages of the tree in memory: committed ones only, the current ones, and no more than the limit."""

from __future__ import annotations

from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.model import DeleteEntity, Operation, SetEntity
from semel.surfaces.ledger.rules.group_rows import PageCache
from semel.surfaces.ledger.rules.packed_tree import PLACE_BYTES, place_bytes, read_packed, unpack_page
from semel.surfaces.ledger.rules.state_tree import BUCKETS
from semel.surfaces.ledger.tables import LEDGER_TOPS, LEDGER_TREE
from tests.ledger.rules.rig import OWN, LedgerDesk

NAMES = [b"key-%d" % number for number in range(300)]


def group(desk: LedgerDesk, *operations: Operation) -> real.WriteMany:
    return real.WriteMany(tuple(desk.command(OWN, one) for one in operations))


def committed(desk: LedgerDesk, *operations: Operation) -> None:
    """A group that is committed, and whose pages the cache takes over, as the queue does it."""
    desk.ledger.pages.take(desk.carry_out(group(desk, *operations)).tree)


def test_nothing_enters_the_cache_before_the_commit() -> None:
    desk = LedgerDesk()
    desk.ledger.pages = PageCache()
    answer = desk.carry_out(group(desk, SetEntity(b"a", b"1")))
    assert len(desk.ledger.pages) == 0
    desk.ledger.pages.take(answer.tree)
    assert len(desk.ledger.pages) == 1


def test_the_cache_has_the_current_tree_as_it_is_stored() -> None:
    desk = LedgerDesk()
    desk.ledger.pages = PageCache()
    for start in range(0, len(NAMES), 20):
        committed(desk, *(SetEntity(name, b"x") for name in NAMES[start : start + 20]))
    committed(desk, *(DeleteEntity(name) for name in NAMES[:50]))
    rows = {(row.height, row.bucket): row for row in desk.rows(LEDGER_TREE)}
    [tops] = desk.rows(LEDGER_TOPS)
    pages = desk.ledger.pages.pages
    for name, page in pages.items():
        path, height = name[PLACE_BYTES:], int.from_bytes(page[0], "big")
        stored = read_packed(rows[height, path[0]].pages, path, page[0])
        assert stored is not None
        assert unpack_page(stored) == unpack_page(page)
    for bucket in range(BUCKETS):
        height = tops.heights[8 * bucket : 8 * bucket + 8]
        if any(height):
            assert pages[place_bytes(OWN) + bytes((bucket,))][0] == height


def test_the_oldest_pages_go_first_beyond_the_limit() -> None:
    desk = LedgerDesk()
    desk.ledger.pages = PageCache(5)
    committed(desk, *(SetEntity(name, b"x") for name in NAMES[:40]))
    assert len(desk.ledger.pages) == 5
    committed(desk, *(SetEntity(name, b"y") for name in NAMES[:40]))  # most pages are read from the store
    assert len(desk.ledger.pages) == 5


def test_a_cache_without_room_takes_nothing() -> None:
    desk = LedgerDesk()
    committed(desk, SetEntity(b"a", b"1"))
    assert len(desk.ledger.pages) == 0
