"""The state of a place in rows: what a transaction loads, and what it writes.

The entity that is replaced goes into the past under the height that ended it, new pages of the tree are written beside
the old ones, and the roots of the buckets are kept for every height that changed them: each height can be read and
proved for as long as its rows are kept.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from semel.contracts.ledger.model import Entity, Place
from semel.contracts.ledger.rules.encoding import subject_of
from semel.contracts.ledger.rules.operations import Held, State
from semel.contracts.ledger.rules.state_tree import (
    BUCKETS,
    EMPTY_BUCKET,
    Change,
    Page,
    bucket_of,
    change,
    edit_bucket,
    next_page,
    nibble,
    read_page,
    write_page,
)
from semel.contracts.ledger.tables import (
    INLINE_BYTES,
    LEDGER_BUCKET,
    LEDGER_ENTITY,
    LEDGER_PAGE,
    LEDGER_PAST,
    LEDGER_ROOTS,
    LEDGER_TOPS,
    LEDGER_VALUE,
    ROOTS_EVERY,
    BucketRow,
    EntityRow,
    PageRow,
    PastRow,
    RootsRow,
    TopsRow,
    ValueRow,
)
from semel.engine.contract import Stage, View
from semel.engine.demand import demand
from semel.store.protocol import AnyTable
from semel.store.table import Key

_HEIGHT = Struct(">Q")
_STALE = Struct(">BQI")
_PAGE, _VALUE = 1, 2


def tops_of(view: View, place: Place) -> TopsRow:
    """The roots of the buckets as they are now."""
    return view.get(LEDGER_TOPS, place) or TopsRow(*place, EMPTY_BUCKET * BUCKETS, bytes(8 * BUCKETS))


def bucket_height(tops: TopsRow, bucket: int) -> int:
    """The height of a bucket's root page; 0 when it is empty."""
    return int(_HEIGHT.unpack_from(tops.heights, 8 * bucket)[0])


def page_key(place: Place, path: bytes, height: int) -> Key:
    """The key of a page."""
    return (*place, height, path)


def page_needs(
    view: View, place: Place, keys: list[bytes], beside: Sequence[tuple[AnyTable, Key]] = ()
) -> Generator[Stage, View, None]:
    """Every page on the paths of these keys, a level a stage, for changes of the state as it is now; and other rows."""
    tops = tops_of(view, place)
    paths = []
    for key in keys:
        bucket = bucket_of(key)
        if height := bucket_height(tops, bucket):
            paths.append((bytes((bucket,)), height, sha256(key).digest()))
    while paths or beside:
        pages = [(LEDGER_PAGE, page_key(place, path, height)) for path, height, _ in paths]
        yield Stage(keys=[*pages, *beside])
        beside = ()
        further = []
        for path, height, digest in paths:
            row = view.get(LEDGER_PAGE, page_key(place, path, height))
            below = None if row is None else next_page(digest, read_page(row.slots), len(path) - 1)
            if below is not None:
                further.append((path + bytes((nibble(digest, len(path) - 1),)), below, digest))
        paths = further


def demand_pages(view: View, place: Place, keys: list[bytes]) -> None:
    """Load all missing pages of a level at once, for a decision that needs other pages than expected."""
    for stage in page_needs(view, place, keys):
        demand(view, stage.keys)


def load_state(view: View, place: Place, keys: list[bytes]) -> State:
    """The entities of these keys."""
    rows = ((key, view.get(LEDGER_ENTITY, (*place, key))) for key in keys)
    return {key: None if row is None else _held(row) for key, row in rows}


def grown(before: State, after: State) -> int:
    """By how many bytes of keys and values a transaction makes the state larger; below zero when it gets smaller."""
    return sum(_bytes_of(key, held) - _bytes_of(key, before[key]) for key, held in after.items())


def _bytes_of(key: bytes, held: Held | None) -> int:
    return 0 if held is None else len(key) + held.size


def store_state(view: View, place: Place, height: int, before: State, after: State) -> tuple[bytes, bytes]:
    """Write what has changed; the new state root, and the pages and large values that were replaced."""
    changes: dict[int, list[Change]] = {}
    stale: list[bytes] = []
    for key, held in after.items():
        if held is before[key]:
            continue
        stale += _store_entity(view, place, height, key, before[key], held)
        changes.setdefault(bucket_of(key), []).append(change(key, None if held is None else _entity(held)))
    tops = tops_of(view, place)
    if changes:
        tops, replaced = _store_tree(view, place, height, tops, changes)
        stale += replaced
    if height % ROOTS_EVERY == 0:
        view.insert(LEDGER_ROOTS, RootsRow(*place, height, tops.roots, tops.heights))
    return sha256(tops.roots).digest(), b"".join(stale)


def _store_tree(
    view: View, place: Place, height: int, tops: TopsRow, changes: Mapping[int, Sequence[Change]]
) -> tuple[TopsRow, list[bytes]]:
    """Write the pages and roots of the buckets that change; the new roots, and the pages that were replaced."""
    stale: list[bytes] = []

    def load(path: bytes, written: int) -> Page:
        row = view.get(LEDGER_PAGE, page_key(place, path, written))
        assert row is not None, "a page of the tree is missing"
        return read_page(row.slots)

    roots, heights = bytearray(tops.roots), bytearray(tops.heights)
    for bucket, group in changes.items():
        edit = edit_bucket(bucket, bucket_height(tops, bucket), group, height, load)
        roots[32 * bucket : 32 * bucket + 32] = edit.root
        _HEIGHT.pack_into(heights, 8 * bucket, height if edit.pages else 0)
        view.insert(LEDGER_BUCKET, BucketRow(*place, bucket, height, edit.root))
        for path, page in edit.pages.items():
            view.insert(LEDGER_PAGE, PageRow(*place, height, path, write_page(page)))
        stale += [_stale(_PAGE, path, old) for path, old in edit.replaced]
        if not edit.pages:  # once nothing older is kept, no row says the same: empty
            stale.append(_stale(_PAGE, bytes((bucket,)), height))
    after = TopsRow(*place, bytes(roots), bytes(heights))
    view.put(LEDGER_TOPS, after)
    return after, stale


class Stale(NamedTuple):
    """What a block replaced: a tree page by its path or a large value by its key, and both heights."""

    is_page: bool
    name: bytes
    height: int


def stale_rows(stored: bytes) -> list[Stale]:
    """The rows that a block replaced."""
    found = []
    place = 0
    while place < len(stored):
        kind, height, size = _STALE.unpack_from(stored, place)
        place += _STALE.size
        found.append(Stale(kind == _PAGE, stored[place : place + size], height))
        place += size
    return found


def value_key(place: Place, key: bytes, version: int) -> Key:
    """The key of a large value."""
    return (*place, version, key)


def _stale(kind: int, name: bytes, height: int) -> bytes:
    return _STALE.pack(kind, height, len(name)) + name


def _store_entity(view: View, place: Place, height: int, key: bytes, old: Held | None, new: Held | None) -> list[bytes]:
    """Write the rows of one key; the large value that it no longer has, if it had one."""
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


def _held(row: EntityRow) -> Held:
    is_large = row.size > INLINE_BYTES
    value, digest = (None, row.value) if is_large else (row.value, b"")
    return Held(row.key, value, row.size, digest, row.expires_at, row.version)


def _kept(held: Held) -> bytes:
    """The part of a value that is stored in the row of its entity."""
    if held.value is None:
        return held.digest
    return held.value if held.size <= INLINE_BYTES else sha256(held.value).digest()


def _entity(held: Held) -> Entity:
    """An entity that this transaction has set, so that its value is known."""
    assert held.value is not None, "what was there before is not hashed again"
    return Entity(held.key, held.value, held.expires_at, held.version)
