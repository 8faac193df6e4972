"""Packed pages against the tree of the full rules: one leaf after another gives the same roots and the same bytes."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest

from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.packed_tree import (
    NO_HEIGHT,
    PLACE_BYTES,
    KnownPage,
    MissingPageError,
    below,
    is_known,
    pack_page,
    page_bytes,
    place_bytes,
    put_leaf,
    read_packed,
    unpack_page,
    way_of,
    whole_way,
)
from semel.surfaces.ledger.rules.state_tree import BRANCHES, LeafChange, TreeNode, TreePage, branch_of, edit_bucket

BUCKET = 7
PLACE = place_bytes(LedgerPlace(2**62, 3))
SEEDS = range(8)


class TwoTrees:
    """One bucket in both forms. `depth` cuts the ways, so that whole ones are needed below it."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.height = 0
        self.top = 0
        self.full: dict[tuple[bytes, int], TreePage] = {}
        self.pages: dict[bytes, KnownPage] = {}

    def put(self, key: bytes, leaf: bytes) -> None:
        """Set a leaf in both, and compare."""
        self.height += 1
        change = LeafChange(sha256(key).digest(), key, leaf)
        edit = edit_bucket(BUCKET, self.top, (change,), self.height, lambda path, height: self.full[path, height])
        self.full |= {(path, self.height): page for path, page in edit.pages.items()}
        written, before = self.height.to_bytes(8, "big"), self.top.to_bytes(8, "big")
        way = way_of(PLACE, BUCKET, key)[: PLACE_BYTES + 1 + self.depth]
        new: dict[bytes, KnownPage] = {}
        root, pages = put_leaf(new, self.pages, way, before, leaf, key, written)
        assert root == edit.root
        stored = b"".join(page_bytes(path, pack_page(written, page)) for path, page in edit.pages.items())
        assert pages == stored
        assert {name: page[:6] for name, page in new.items()} == {
            PLACE + path: pack_page(written, page)[:6] for path, page in edit.pages.items()
        }
        for path, page in edit.pages.items():
            packed = read_packed(pages, path, written)
            assert packed == pack_page(written, page)
            assert unpack_page(new[PLACE + path]) == page
            self._compare_branches(new[PLACE + path], page)
        assert read_packed(pages, b"\1", written) is None
        for name, one in new.items():  # some as if they had been loaded, and some as the full rules leave them
            unpacked = unpack_page(one)
            self.pages[name] = (one, pack_page(written, unpacked), (written, unpacked))[self.height % 3]
        self.top = self.height
        self._compare_known(key, written)

    def _compare_known(self, key: bytes, written: bytes) -> None:
        """The path is known as a whole, and not without one of its pages, or with one of another height."""
        way = way_of(PLACE, BUCKET, key)
        names = [way[:at] for at in range(PLACE_BYTES + 1, len(way)) if way[:at] in self.pages]
        if len(names) < self.depth - 1 and all(len(self.pages[name]) > 2 for name in names):
            assert is_known(self.pages, way, written)
        for name in names:
            page = self.pages[name]
            assert not is_known({one: page for one, page in self.pages.items() if one != name}, way, written)
            assert not is_known(self.pages | {name: (b"other", *page[1:])}, way, written)

    @staticmethod
    def _compare_branches(packed: KnownPage, page: TreePage) -> None:
        for branch in range(BRANCHES):
            slot, height = page[branch], below(packed, branch)
            assert height == (slot.height.to_bytes(8, "big") if isinstance(slot, TreeNode) else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_leaves_one_after_another_give_the_pages_of_the_full_rules(seed: int) -> None:
    chance = random.Random(seed)
    trees = TwoTrees([16, 16, 1, 2][seed % 4])
    keys = [b"k" * chance.choice((1, 1, 60)) + b"%d" % number for number in range([3, 40, 400][seed % 3])]
    for _ in range(300):
        trees.put(chance.choice(keys), chance.randbytes(32))
    assert len(trees.pages) == len({path for path, height in trees.full})


def test_keys_with_a_long_common_path_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sha256
    made = {b"a": bytes(32), b"b": bytes(29) + b"\1\0\0", b"c": bytes(31) + b"\1"}

    class Digest:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def digest(self) -> bytes:
            return made.get(self._data) or real(self._data).digest()

    monkeypatch.setattr("tests.ledger.rules.test_packed_tree.sha256", Digest)
    monkeypatch.setattr("semel.surfaces.ledger.rules.packed_tree.sha256", Digest)
    monkeypatch.setattr("semel.surfaces.ledger.rules.state_tree.sha256", Digest)
    trees = TwoTrees(16)
    for key in (b"a", b"b", b"c", b"b", b"a", b"other", b"c"):
        trees.put(key, key.ljust(32))
    assert max(map(len, trees.pages)) - PLACE_BYTES > 100


def test_a_way_names_the_pages_and_branches_of_the_path() -> None:
    digest = sha256(b"key").digest()
    way, whole = way_of(PLACE, BUCKET, b"key"), whole_way(way_of(PLACE, BUCKET, b"other"), b"key")
    assert whole[: len(way)] == way
    assert list(whole[PLACE_BYTES:]) == [BUCKET, *(branch_of(digest, level) for level in range(128))]


def test_a_page_of_another_height_counts_as_missing_and_nothing_is_changed() -> None:
    pages: dict[bytes, KnownPage] = {}
    keys = [b"%d" % number for number in range(20)]
    before = NO_HEIGHT
    for number, key in enumerate(keys, 1):
        put_leaf(pages, {}, way_of(PLACE, BUCKET, key), before, key.ljust(32), key, number.to_bytes(8, "big"))
        before = number.to_bytes(8, "big")
    way, known = way_of(PLACE, BUCKET, keys[0]), dict(pages)
    with pytest.raises(MissingPageError):
        put_leaf(pages, {}, way, (19).to_bytes(8, "big"), bytes(32), keys[0], bytes(8))
    missing = dict(pages)
    del missing[way[: PLACE_BYTES + 2]]
    left = dict(missing)
    with pytest.raises(MissingPageError):
        put_leaf(missing, {}, way, before, bytes(32), keys[0], bytes(8))
    assert (missing, pages) == (left, known)
