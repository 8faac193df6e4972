"""The state of a place: conditions, the effect of operations, and the rows that a transaction loads and stores.

The first condition that fails decides for the whole transaction, and nothing is changed. An entity that has expired by
the logged time of the transaction counts as absent; no other clock is read, so a replay of the log agrees.

A replaced entity is stored as past under the height that replaced it, and the new pages of the tree are written beside
the old ones, one row for each bucket that a block changes, with the root of the bucket: each height can be read and
proved as long as its rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from semel.engine.contract import Stage, View, demand
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.ledger.commands import WriteDeclined, WriteErrorCode
from semel.surfaces.ledger.limits import MAX_TOLD_VALUE_BYTES
from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    Entity,
    LedgerPlace,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.rules.chain import state_key, subject_of
from semel.surfaces.ledger.rules.group_rows import PageCache, WorkingPlace, WorkingRows
from semel.surfaces.ledger.rules.packed_tree import below, place_bytes
from semel.surfaces.ledger.rules.state_tree import (
    STEPS,
    LeafChange,
    TreePage,
    branch_of,
    bucket_of,
    change,
    edit_bucket,
    next_page,
    read_page,
)
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    LEDGER_ENTITY,
    LEDGER_PAST,
    LEDGER_ROOTS,
    LEDGER_TOPS,
    LEDGER_TREE,
    LEDGER_VALUE,
    ROOTS_EVERY,
    EntityRow,
    PastRow,
    RootsRow,
    TopsRow,
    TreeRow,
    ValueRow,
)


class HeldEntity(NamedTuple):
    """An entity with the data that conditions need: of a large value that existed before, only the hash is known."""

    key: bytes
    value: bytes | None
    size: int
    digest: bytes
    expires_at: int
    version: int

    def equals(self, value: bytes) -> bool:
        """Whether the entity has this value."""
        if self.value is not None:
            return self.value == value
        return self.size == len(value) and self.digest == sha256(value).digest()


State = dict[bytes, HeldEntity | None]
"""Entities by key; None for absent ones."""


class ConditionFailedError(Exception):
    """Carries the answer of a failed condition."""

    def __init__(self, declined: WriteDeclined) -> None:
        super().__init__(declined.message)
        self.declined = declined


def apply_operations(operations: Iterable[Operation], state: State, height: int, now_seconds: int) -> None:
    """Change the state; `ConditionFailedError` if a condition does not hold."""
    for operation in operations:
        key = state_key(operation)
        if isinstance(operation, SetEntity):
            if operation.condition is not None:
                check_condition(operation.condition, key, _present(state[key], now_seconds))
            value = operation.value
            state[key] = HeldEntity(key, value, len(value), b"", operation.expires_at, height)
        elif isinstance(operation, CreateRelationship):
            state[key] = state[key] or HeldEntity(key, b"", 0, b"", 0, height)
        else:
            state[key] = None


def is_expired(expires_at: int, now_seconds: int) -> bool:
    """Whether an entity has expired; 0 means never."""
    return 0 < expires_at <= now_seconds


def _present(entity: HeldEntity | None, now_seconds: int) -> HeldEntity | None:
    return None if entity is None or is_expired(entity.expires_at, now_seconds) else entity


_HOLDS: dict[ConditionKind, Callable[[SetCondition, HeldEntity | None], bool]] = {
    ConditionKind.NOT_EXISTS: lambda condition, entity: entity is None,
    ConditionKind.MUST_EXIST: lambda condition, entity: entity is not None,
    ConditionKind.VERSION: lambda condition, entity: entity is not None and entity.version == condition.version,
    ConditionKind.VALUE: lambda condition, entity: entity is not None and entity.equals(condition.value),
}
_IF_PRESENT = {
    ConditionKind.NOT_EXISTS: (WriteErrorCode.KEY_EXISTS, "There is an entity under this key."),
    ConditionKind.VERSION: (WriteErrorCode.VERSION_MISMATCH, "The entity has another version."),
    ConditionKind.VALUE: (WriteErrorCode.VALUE_MISMATCH, "The entity has another value."),
}
_IF_ABSENT = (WriteErrorCode.KEY_NOT_FOUND, "There is no entity under this key.")


def check_condition(condition: SetCondition, key: bytes, entity: HeldEntity | None) -> None:
    """Check a condition against an entity."""
    if _HOLDS[condition.check](condition, entity):
        return
    code, message = _IF_ABSENT if entity is None else _IF_PRESENT[condition.check]
    if entity is None:
        raise ConditionFailedError(WriteDeclined(code, message, key=key))
    value = entity.value if entity.size <= MAX_TOLD_VALUE_BYTES else None
    raise ConditionFailedError(
        WriteDeclined(code, message, key=key, current_version=entity.version, current_value=value)
    )


_STALE = Struct(">BQI")
_PAGE, _VALUE = 1, 2


def bucket_height(tops: TopsRow, bucket: int) -> int:
    """The height of a bucket's root page; 0 if it is empty."""
    return int.from_bytes(tops.heights[8 * bucket : 8 * bucket + 8], "big")


def tree_key(place: LedgerPlace, path: bytes, height: int) -> Key:
    """The key of the row with the page of a path that a height wrote."""
    return (*place, height, path[0])


def stored_page(row: TreeRow | None, path: bytes) -> TreePage:
    """The page of a path in a row that must have it."""
    page = None if row is None else read_page(row.pages, path)
    assert page is not None, "a page of the tree is missing"
    return page


_PathEnd = tuple[LedgerPlace, bytes, int, bytes]
"""Where a walk along the path of a key has come to: the next page and the height that wrote it; and the digest."""


def page_needs(
    view: View,
    keys: Mapping[LedgerPlace, Iterable[bytes]],
    cache: PageCache,
    beside: Sequence[tuple[AnyTable, Key]] = (),
) -> Generator[Stage, View, None]:
    """All pages on the paths of these keys in the current state that the cache does not have, one level for each
    stage; and other rows.
    """
    ends: list[_PathEnd] = []
    for place, some in keys.items():
        tops = view.get(LEDGER_TOPS, place)
        for key in some if tops is not None else ():
            bucket = bucket_of(key)
            if height := bucket_height(tops, bucket):  # type: ignore[arg-type]
                ends.append((place, bytes((bucket,)), height, sha256(key).digest()))
    paths = [end for end in (_walk(end, cache) for end in ends) if end is not None]
    while paths or beside:
        pages = [(LEDGER_TREE, tree_key(place, path, height)) for place, path, height, _ in paths]
        yield Stage(keys=[*pages, *beside])
        beside = ()
        further = []
        for place, path, height, digest in paths:
            row = view.get(LEDGER_TREE, tree_key(place, path, height))
            below = None if row is None else next_page(digest, stored_page(row, path), len(path) - 1)
            if below is not None:
                end = _walk((place, path + bytes((branch_of(digest, len(path) - 1),)), below, digest), cache)
                if end is not None:
                    further.append(end)
        paths = further


def _walk(end: _PathEnd, cache: PageCache) -> _PathEnd | None:
    """Go on through pages in memory: to the first page that must be read, or None if there is none."""
    place, path, height, digest = end
    before = place_bytes(place)
    while (page := cache.pages.get(before + path)) is not None and page[0] == height.to_bytes(8, "big"):
        branch = branch_of(digest, len(path) - 1)
        written = below(page, branch)
        if written is None:
            return None
        path, height = path + STEPS[branch], int.from_bytes(written, "big")
    return place, path, height, digest


def demand_pages(view: View, keys: Mapping[LedgerPlace, Iterable[bytes]], cache: PageCache) -> None:
    """Load all missing pages of a level at once, for a decision that needs other pages than expected."""
    for stage in page_needs(view, keys, cache):
        demand(view, stage.keys)


def load_state(view: View, place: LedgerPlace, operations: Iterable[Operation]) -> State:
    """The entities that operations change."""
    found: State = {}
    for operation in operations:
        key = state_key(operation)
        if key not in found:
            row = view.get(LEDGER_ENTITY, (*place, key))
            found[key] = None if row is None else _held_of(row)
    return found


def grown(before: State, after: State) -> int:
    """The bytes of keys and values that a transaction adds to the state; negative if it removes more."""
    return sum(_bytes_of(key, held) - _bytes_of(key, before[key]) for key, held in after.items())


def _bytes_of(key: bytes, held: HeldEntity | None) -> int:
    return 0 if held is None else len(key) + held.size


def store_state(rows: WorkingRows, tip: WorkingPlace, before: State, after: State) -> tuple[bytes, bytes]:
    """Write the state of the next block; returns its root and, if the place frees old rows, what was replaced."""
    view, place, height, frees = rows.view, tip.place, tip.height + 1, tip.before.retain > 0
    changes: dict[int, list[LeafChange]] = {}
    stale: list[bytes] = []
    for key, held in after.items():
        old = before[key]
        if held is old:
            continue
        stale += _store_entity(view, place, height, key, old, held)
        leaf = change(key, None if held is None else _entity(held))
        changes.setdefault(bucket_of(key), []).append(leaf)
    if changes:
        replaced = _store_tree(rows, tip, height, changes)
        if frees:
            stale += (_stale(_PAGE, path, old_height) for path, old_height in replaced)
    if height % ROOTS_EVERY == 0:
        tops = tip.tops()
        view.insert(LEDGER_ROOTS, RootsRow(*place, height, tops.roots, tops.heights))
    return sha256(tip.roots).digest(), b"".join(stale) if frees else b""


def _store_tree(
    rows: WorkingRows, tip: WorkingPlace, height: int, changes: Mapping[int, Sequence[LeafChange]]
) -> list[tuple[bytes, int]]:
    """Write the changed pages and roots of buckets; returns the pages that were replaced."""
    place = tip.place
    replaced: list[tuple[bytes, int]] = []

    def load(path: bytes, written: int) -> TreePage:
        return rows.page(place, path, written)

    for bucket, group in changes.items():
        edit = edit_bucket(bucket, tip.bucket_height(bucket), group, height, load)
        tip.set_bucket(bucket, edit.root, height if edit.pages else 0)
        pages = rows.tree.add(place, height, edit)
        rows.view.insert(LEDGER_TREE, TreeRow(*place, height, bucket, edit.root, pages))
        replaced += edit.replaced
    return replaced


class StaleRow(NamedTuple):
    """A row that a block replaced: a tree page by its path or a large value by its key, and both heights."""

    is_page: bool
    name: bytes
    height: int


def stale_rows(stored: bytes) -> list[StaleRow]:
    """The rows that a block replaced."""
    found = []
    place = 0
    while place < len(stored):
        kind, height, size = _STALE.unpack_from(stored, place)
        place += _STALE.size
        found.append(StaleRow(kind == _PAGE, stored[place : place + size], height))
        place += size
    return found


def value_key(place: LedgerPlace, key: bytes, version: int) -> Key:
    """The key of a large value."""
    return (*place, version, key)


def _stale(kind: int, name: bytes, height: int) -> bytes:
    return _STALE.pack(kind, height, len(name)) + name


def _store_entity(
    view: View, place: LedgerPlace, height: int, key: bytes, old: HeldEntity | None, new: HeldEntity | None
) -> list[bytes]:
    """Write the rows of one key; returns the large value that it no longer has, if any."""
    stale = []
    subject = subject_of(key)
    if old is not None:
        ended = PastRow(*place, key, height, _kept(old), old.size, old.expires_at, old.version, subject)
        view.insert(LEDGER_PAST, ended)
        if old.size > INLINE_BYTES:
            stale.append(_stale(_VALUE, key, old.version))
    if new is None:
        view.delete(LEDGER_ENTITY, (*place, key))
    else:
        view.put(LEDGER_ENTITY, EntityRow(*place, key, _kept(new), new.size, new.expires_at, new.version, subject))
        if new.size > INLINE_BYTES:
            view.insert(LEDGER_VALUE, ValueRow(*place, height, key, _entity(new).value))
    return stale


def _held_of(row: EntityRow) -> HeldEntity:
    is_large = row.size > INLINE_BYTES
    value, digest = (None, row.value) if is_large else (row.value, b"")
    return HeldEntity(row.key, value, row.size, digest, row.expires_at, row.version)


def _kept(held: HeldEntity) -> bytes:
    """The part of a value that is stored in the row of its entity."""
    if held.value is None:
        return held.digest
    return held.value if held.size <= INLINE_BYTES else sha256(held.value).digest()


def _entity(held: HeldEntity) -> Entity:
    """An entity that this transaction has set, so that its value is known."""
    assert held.value is not None, "an unchanged entity is not hashed again"
    return Entity(held.key, held.value, held.expires_at, held.version)
