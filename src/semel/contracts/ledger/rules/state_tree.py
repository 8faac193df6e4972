"""The tree over the state of a place: what its root commits to, and how a block changes it.

A key belongs to one of 256 buckets by its SeaHash and has a path in it by its SHA-256. In a bucket stands a binary tree
in which a branch with a single leaf is that leaf: n leaves are about log2(n) deep, wherever they are, and the same
leaves always make the same tree. The state root is the hash of the 256 roots in order.

The tree is kept in pages of sixteen branches, four levels each. A block writes new pages along the paths that it
changes and leaves the old ones alone, so the tree of every height stays readable; a page names its children by the
height that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from semel.contracts.ledger.model import ZERO, Entity, Sibling, Side
from semel.contracts.ledger.rules.seahash import seahash

BUCKETS = 256
BRANCHES = 16
EMPTY_BUCKET = sha256(b"").digest()
EMPTY_STATE_ROOT = sha256(EMPTY_BUCKET * BUCKETS).digest()

_LENGTH = Struct("<I")
_TAIL = Struct(">QQ")
_HEIGHT = Struct(">Q")
_KINDS = Struct(">I")
_NONE, _LEAF, _PAGE = 0, 1, 2


class Leaf(NamedTuple):
    """A branch with one key in it."""

    hash: bytes
    key: bytes


class Node(NamedTuple):
    """A branch with more; its page was written at that height."""

    hash: bytes
    height: int


Slot = Leaf | Node | None
Page = tuple[Slot, ...]
Load = Callable[[bytes, int], Page]
"""The page of a path, as a height wrote it."""


class Change(NamedTuple):
    """What becomes of a key: its new leaf, or None when it goes."""

    digest: bytes
    key: bytes
    hash: bytes | None


class Edit(NamedTuple):
    """What a block did to one bucket: its new root, the pages written, and those that they replace."""

    root: bytes
    pages: dict[bytes, Page]
    replaced: list[tuple[bytes, int]]


def bucket_of(key: bytes) -> int:
    """The bucket of a key."""
    return seahash(key) % BUCKETS


def leaf_hash(entity: Entity) -> bytes:
    """What the tree holds of an entity."""
    key, value, expires_at, version = entity
    return sha256(
        b"".join(
            (
                b"\0",
                _LENGTH.pack(len(key)),
                key,
                _LENGTH.pack(len(value)),
                value,
                _TAIL.pack(expires_at, version),
            )
        )
    ).digest()


def change(key: bytes, entity: Entity | None) -> Change:
    """What becomes of a key."""
    return Change(sha256(key).digest(), key, None if entity is None else leaf_hash(entity))


def edit_bucket(bucket: int, before: int, changes: Sequence[Change], height: int, load: Load) -> Edit:
    """Apply changes to a bucket whose root page was written at height `before`; 0 when it is empty."""
    writer = _Writer(height, load)
    path = bytes((bucket,))
    slots = load(path, before) if before else (None,) * BRANCHES
    if before:
        writer.replaced.append((path, before))
    after = writer.branches(path, slots, changes)
    if not any(after):
        return Edit(EMPTY_BUCKET, {}, writer.replaced)
    writer.pages[path] = after
    return Edit(fold(after).hash, writer.pages, writer.replaced)


def nibble(digest: bytes, level: int) -> int:
    """Which of the sixteen branches a path takes on a level."""
    byte = digest[level >> 1]
    return byte & 15 if level & 1 else byte >> 4


def next_page(digest: bytes, page: Page, level: int) -> int | None:
    """The height of the next page on a path, None when the path ends in this one."""
    slot = page[nibble(digest, level)]
    return slot.height if isinstance(slot, Node) else None


def fold(slots: Sequence[Slot]) -> Leaf | Node:
    """The hash over branches; a leaf when there is only one."""
    level: list[Slot] = list(slots)
    while len(level) > 1:
        level = [_join(level[place], level[place + 1]) for place in range(0, len(level), 2)]
    top = level[0]
    assert top is not None, "an empty page is never kept"
    return top


def way_up(page: Page, branch: int) -> tuple[Slot, list[Sibling]]:
    """What stands where a path ends in a page, and the siblings from there to the page's root, bottom up.

    A leaf that is alone stands as high as it can. So a path that ends in an empty branch may end at the leaf beside it.
    """
    spot, siblings = page[branch], []
    level: list[Slot] = list(page)
    while len(level) > 1:
        mine, other = level[branch], level[branch ^ 1]
        joined = [_join(level[place], level[place + 1]) for place in range(0, len(level), 2)]
        if joined[branch >> 1] is mine:
            pass  # nothing beside it
        elif joined[branch >> 1] is other and not isinstance(other, Node):
            spot = other
        else:
            siblings.append(Sibling(ZERO if other is None else other.hash, Side.LEFT if branch & 1 else Side.RIGHT))
        level, branch = joined, branch >> 1
    return spot, siblings


def write_page(page: Page) -> bytes:
    """A page as it is stored."""
    kinds = 0
    parts: list[bytes] = []
    for slot in page:
        kinds <<= 2
        if isinstance(slot, Leaf):
            kinds |= _LEAF
            parts += (slot.hash, _LENGTH.pack(len(slot.key)), slot.key)
        elif slot is not None:
            kinds |= _PAGE
            parts += (slot.hash, _HEIGHT.pack(slot.height))
    return b"".join((_KINDS.pack(kinds), *parts))


def read_page(stored: bytes) -> Page:
    """A page from the store."""
    kinds = _KINDS.unpack_from(stored)[0]
    place = 4
    slots: list[Slot] = []
    for shift in range(30, -2, -2):
        kind = kinds >> shift & 3
        if kind == _NONE:
            slots.append(None)
            continue
        digest = stored[place : place + 32]
        place += 32
        if kind == _PAGE:
            slots.append(Node(digest, _HEIGHT.unpack_from(stored, place)[0]))
            place += 8
        else:
            size = _LENGTH.unpack_from(stored, place)[0]
            slots.append(Leaf(digest, stored[place + 4 : place + 4 + size]))
            place += 4 + size
    return tuple(slots)


def _join(left: Slot, right: Slot) -> Slot:
    if right is None and not isinstance(left, Node):
        return left
    if left is None and not isinstance(right, Node):
        return right
    both = b"\1" + (ZERO if left is None else left.hash) + (ZERO if right is None else right.hash)
    return Node(sha256(both).digest(), 0)


class _Writer:
    def __init__(self, height: int, load: Load) -> None:
        self._height = height
        self._load = load
        self.pages: dict[bytes, Page] = {}
        self.replaced: list[tuple[bytes, int]] = []

    def branches(self, path: bytes, slots: Page, changes: Iterable[Change]) -> Page:
        """The branches of a page after some changes."""
        grouped: dict[int, list[Change]] = {}
        for one in changes:
            grouped.setdefault(nibble(one.digest, len(path) - 1), []).append(one)
        after = list(slots)
        for branch, group in grouped.items():
            after[branch] = self._branch(path + bytes((branch,)), slots[branch], group)
        return tuple(after)

    def _branch(self, path: bytes, slot: Slot, changes: list[Change]) -> Slot:
        if isinstance(slot, Node):
            self.replaced.append((path, slot.height))
            return self._keep(path, self.branches(path, self._load(path, slot.height), changes))
        leaves = {} if slot is None else {slot.key: Change(sha256(slot.key).digest(), slot.key, slot.hash)}
        leaves.update((one.key, one) for one in changes)
        left = [one for one in leaves.values() if one.hash is not None]
        if len(left) > 1:
            return self._keep(path, self.branches(path, (None,) * BRANCHES, left))
        return Leaf(left[0].hash, left[0].key) if left and left[0].hash is not None else None

    def _keep(self, path: bytes, page: Page) -> Slot:
        """A page is kept while there are two leaves beneath it; a single one moves up."""
        taken = [slot for slot in page if slot is not None]
        if not taken:
            return None
        if len(taken) == 1 and isinstance(taken[0], Leaf):
            return taken[0]
        self.pages[path] = page
        return Node(fold(page).hash, self._height)
