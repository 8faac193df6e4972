"""The tree against its definition: the same leaves make the same root, whatever way they came; proofs lead to it."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest

from semel.surfaces.ledger.model import ZERO, Entity, Sibling, Side
from semel.surfaces.ledger.rules.packed_tree import pack_page, page_bytes
from semel.surfaces.ledger.rules.state_tree import (
    EMPTY_BUCKET,
    LeafChange,
    TreeLeaf,
    TreeNode,
    TreePage,
    branch_of,
    change,
    edit_bucket,
    fold,
    leaf_hash,
    paths_of,
    read_page,
    way_up,
    without_pages,
)

BUCKET = 7


def pack_pages(pages: dict[bytes, TreePage]) -> bytes:
    """The stored form of the pages of one bucket."""
    return b"".join(page_bytes(path, pack_page(bytes(8), page)) for path, page in pages.items())


def slow_root(leaves: list[tuple[bytes, bytes]], depth: int = 0) -> bytes:
    """The definition, word by word: leaves are (path, hash)."""
    if not leaves:
        return ZERO
    if len(leaves) == 1:
        return leaves[0][1]
    sides: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]] = ([], [])
    for path, digest in leaves:
        sides[path[depth // 8] >> (7 - depth % 8) & 1].append((path, digest))
    return sha256(b"\1" + slow_root(sides[0], depth + 1) + slow_root(sides[1], depth + 1)).digest()


class Bucket:
    """One bucket over many blocks, with every page that was ever written."""

    def __init__(self) -> None:
        self.pages: dict[tuple[bytes, int], TreePage] = {}
        self.leaves: dict[bytes, Entity] = {}
        self.height = 0
        self.top = 0
        self.root = EMPTY_BUCKET

    def apply(self, changes: dict[bytes, Entity | None]) -> None:
        self.height += 1
        edit = edit_bucket(
            BUCKET, self.top, [change(key, entity) for key, entity in changes.items()], self.height, self.load
        )
        for path, height in edit.replaced:
            assert (path, height) in self.pages
        stored = pack_pages(edit.pages)
        for path, page in edit.pages.items():
            assert read_page(stored, path) == page
            self.pages[path, self.height] = page
        self.top = self.height if edit.pages else 0
        self.root = edit.root
        for key, entity in changes.items():
            if entity is None:
                self.leaves.pop(key, None)
            else:
                self.leaves[key] = entity

    def load(self, path: bytes, height: int) -> TreePage:
        return self.pages[path, height]

    def slow(self) -> bytes:
        if not self.leaves:
            return EMPTY_BUCKET
        return slow_root([(sha256(key).digest(), leaf_hash(entity)) for key, entity in self.leaves.items()])

    def fold_path(self, key: bytes) -> tuple[TreeLeaf | None, bytes]:
        """What stands where a key's path ends, and the root that its siblings lead to."""
        if not self.top:
            return None, EMPTY_BUCKET
        digest, path, height = sha256(key).digest(), bytes((BUCKET,)), self.top
        siblings: list[Sibling] = []
        while True:
            page = self.load(path, height)
            branch = branch_of(digest, len(path) - 1)
            spot, found = way_up(page, branch)
            siblings = found + siblings
            slot = page[branch]
            if not isinstance(slot, TreeNode):
                break
            path, height = path + bytes((branch,)), slot.height
        assert not isinstance(spot, TreeNode)
        current = ZERO if spot is None else spot.hash
        for depth, sibling in zip(range(len(siblings) - 1, -1, -1), siblings, strict=True):
            bit = digest[depth // 8] >> (7 - depth % 8) & 1
            assert sibling.side is (Side.LEFT if bit else Side.RIGHT)
            pair = sibling.hash + current if bit else current + sibling.hash
            current = sha256(b"\1" + pair).digest()
        return spot, current


@pytest.mark.parametrize("seed", range(12))
def test_any_history_gives_the_root_of_the_definition(seed: int) -> None:
    chance = random.Random(seed)
    bucket = Bucket()
    names = [b"key-%d" % number for number in range(chance.choice((2, 5, 40, 300)))]
    for height in range(1, 60):
        chosen = chance.sample(names, chance.randint(1, min(len(names), 20)))
        dies = chance.random() < 0.5
        bucket.apply({key: None if dies else Entity(key, chance.randbytes(3), 0, height) for key in chosen})
        assert bucket.root == bucket.slow()
        for key in chance.sample(names, min(len(names), 10)):
            spot, root = bucket.fold_path(key)
            assert root == bucket.root
            if key in bucket.leaves:
                assert spot == TreeLeaf(leaf_hash(bucket.leaves[key]), key)
            else:
                assert spot is None or spot.key != key


def test_old_heights_stay_readable() -> None:
    bucket = Bucket()
    tops = []
    for height in range(1, 40):
        bucket.apply({b"key-%d" % (height % 17): Entity(b"key-%d" % (height % 17), b"%d" % height, 0, height)})
        tops.append((bucket.top, bucket.root))
    for top, root in tops:
        bucket.top = top
        assert bucket.fold_path(b"key-3")[1] == root
        assert bucket.fold_path(b"nothing")[1] == root


def test_keys_with_long_common_paths_are_told_apart() -> None:
    # Digests made by hand: three keys that share 120 levels of four branches, more than any real ones will.
    shared = b"\xab" * 30
    made = {b"a": shared + b"\x00\x00", b"b": shared + b"\x00\x01", b"c": shared + b"\x80\x00"}
    pages: dict[tuple[bytes, int], TreePage] = {}

    def load(path: bytes, height: int) -> TreePage:
        return pages[path, height]

    first = [LeafChange(made[key], key, sha256(key).digest()) for key in (b"a", b"c")]
    edit = edit_bucket(BUCKET, 0, first, 1, load)
    assert edit.root == slow_root([(one.digest, one.hash) for one in first if one.hash is not None])
    assert max(len(path) for path in edit.pages) == 121


def test_pages_come_back_from_their_bytes_by_path() -> None:
    pages: dict[bytes, TreePage] = {
        b"\7": (None, TreeLeaf(b"h" * 32, b"key"), TreeNode(b"n" * 32, 2**40), TreeLeaf(b"z" * 32, b"")),
        b"\7\2": (TreeNode(b"a" * 32, 1), None, None, None),
        b"\7\2\3": (TreeLeaf(b"b" * 32, b"k" * 5_000), TreeLeaf(b"c" * 32, b"2"), None, None),
    }
    stored = pack_pages(pages)
    assert paths_of(stored) == list(pages)
    assert {path: read_page(stored, path) for path in pages} == pages
    assert read_page(stored, b"\7\3") is None
    assert isinstance(fold(pages[b"\7"]), TreeNode)
    left = without_pages(stored, {b"\7", b"\7\2\3", b"\1"})
    assert left == pack_pages({b"\7\2": pages[b"\7\2"]})
    assert without_pages(left, {b"\7\2"}) == b""


@pytest.mark.parametrize("seed", range(6))
def test_one_change_after_the_other_makes_the_pages_of_all_of_them_together(seed: int) -> None:
    """A single change takes a shorter way through the tree: what it leaves must be the same."""
    chance = random.Random(seed)
    names = [b"key-%d" % number for number in range(120)]
    bucket = Bucket()
    for _ in range(150):
        key = chance.choice(names)
        top, before = bucket.top, dict(bucket.leaves)
        entity = None if chance.random() < 0.4 else Entity(key, chance.randbytes(3), 0, bucket.height + 1)
        one = change(key, entity)
        alone = edit_bucket(BUCKET, top, [one], bucket.height + 1, bucket.load)
        with_itself = edit_bucket(BUCKET, top, [one, one], bucket.height + 1, bucket.load)
        assert alone == with_itself
        bucket.apply({key: entity})
        assert (bucket.root == bucket.slow(), before == {}) in ((True, True), (True, False))
