"""The tree against its definition: the same leaves make the same root, whatever way they came; proofs lead to it."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest

from semel.surfaces.ledger.model import ZERO, Entity, Sibling, Side
from semel.surfaces.ledger.rules.state_tree import (
    BRANCHES,
    EMPTY_BUCKET,
    FullTreePage,
    LeafChange,
    TreeLeaf,
    TreeNode,
    TreePage,
    change,
    edit_bucket,
    fold,
    leaf_hash,
    nibble,
    read_page,
    way_up,
    write_page,
)

BUCKET = 7


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
        for path, page in edit.pages.items():
            self.pages[path, self.height] = read_page(write_page(page))
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
            branch = nibble(digest, len(path) - 1)
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
    # Digests made by hand: three keys that share 60 levels of sixteen branches, more than any real ones will.
    shared = b"\xab" * 30
    made = {b"a": shared + b"\x00\x00", b"b": shared + b"\x00\x01", b"c": shared + b"\x80\x00"}
    pages: dict[tuple[bytes, int], TreePage] = {}

    def load(path: bytes, height: int) -> TreePage:
        return pages[path, height]

    first = [LeafChange(made[key], key, sha256(key).digest()) for key in (b"a", b"c")]
    edit = edit_bucket(BUCKET, 0, first, 1, load)
    assert edit.root == slow_root([(one.digest, one.hash) for one in first if one.hash is not None])
    assert max(len(path) for path in edit.pages) == 61


def test_a_page_comes_back_from_its_bytes() -> None:
    page: TreePage = (
        None,
        TreeLeaf(b"h" * 32, b"key"),
        TreeNode(b"n" * 32, 2**40),
        *(None,) * (BRANCHES - 4),
        TreeLeaf(b"z" * 32, b""),
    )
    assert read_page(write_page(page)) == page
    assert isinstance(fold(page), TreeNode)


def test_pages_fill_up_and_empty_again() -> None:
    """A page with pages beneath all of its branches is changed in its stored form, until it no longer is one."""
    chance = random.Random(5)
    bucket = Bucket()
    names = [b"key-%d" % number for number in range(700)]
    were_full = []
    for step, is_death in enumerate((False, True)):
        chance.shuffle(names)
        for start in range(0, len(names), 50):
            height = bucket.height + 1
            some = names[start : start + 50]
            bucket.apply({key: None if is_death else Entity(key, b"%d" % step, 0, height) for key in some})
            assert bucket.root == bucket.slow()
            assert bucket.fold_path(chance.choice(names))[1] == bucket.root
            were_full.append(bucket.top > 0 and isinstance(bucket.load(bytes((BUCKET,)), bucket.top), FullTreePage))
    assert bucket.leaves == {}
    assert (any(were_full), were_full[0], were_full[-1]) == (True, False, False)


def test_a_full_page_is_the_same_read_or_stored() -> None:
    nodes = tuple(TreeNode(bytes((number,)) * 32, number + 1) for number in range(BRANCHES))
    page = read_page(write_page(nodes))
    assert isinstance(page, FullTreePage)
    assert (tuple(page), page[2:4], fold(page)) == (nodes, nodes[2:4], fold(nodes))
    changed = page.changed({3: TreeNode(b"x" * 32, 9)})
    assert tuple(changed) == (*nodes[:3], TreeNode(b"x" * 32, 9), *nodes[4:])
    assert write_page(changed) == write_page(tuple(changed))
    assert [way_up(page, branch) for branch in range(BRANCHES)] == [way_up(nodes, branch) for branch in range(BRANCHES)]
    with pytest.raises(IndexError):
        page[BRANCHES]
