"""The state of a place in rows: what a transaction loads of it, and what it leaves behind.

The entity that is replaced goes into the past under the height that ended it, new pages of the tree are written beside
the old ones, and the roots of the buckets are kept for every height that changed them: each height can be read and
proved for as long as its rows are kept.
"""

from __future__ import annotations

from collections.abc import Generator
from hashlib import sha256
from struct import Struct

from semel.contracts.ledger.model import Place
from semel.contracts.ledger.rules.operations import State
from semel.contracts.ledger.rules.records import entity_of
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
    LEDGER_BUCKET,
    LEDGER_ENTITY,
    LEDGER_PAGE,
    LEDGER_PAST,
    LEDGER_TOPS,
    BucketRow,
    EntityRow,
    PageRow,
    PastRow,
    TopsRow,
)
from semel.engine.contract import Stage, View
from semel.engine.demand import demand
from semel.store.table import Key

_HEIGHT = Struct(">Q")
_STALE = Struct(">QB")


def tops_of(view: View, place: Place) -> TopsRow:
    """The roots of the buckets as they are now."""
    return view.get(LEDGER_TOPS, place) or TopsRow(*place, EMPTY_BUCKET * BUCKETS, bytes(8 * BUCKETS))


def bucket_height(tops: TopsRow, bucket: int) -> int:
    """The height of a bucket's root page; 0 when it is empty."""
    return int(_HEIGHT.unpack_from(tops.heights, 8 * bucket)[0])


def page_key(place: Place, path: bytes, height: int) -> Key:
    """Where a page stands."""
    return (*place, height, path)


def page_needs(view: View, place: Place, keys: list[bytes]) -> Generator[Stage, View, None]:
    """Every page on the paths of these keys, a level a stage; for changes of the state as it is now."""
    tops = tops_of(view, place)
    paths = []
    for key in keys:
        bucket = bucket_of(key)
        if height := bucket_height(tops, bucket):
            paths.append((bytes((bucket,)), height, sha256(key).digest()))
    while paths:
        yield Stage(keys=[(LEDGER_PAGE, page_key(place, path, height)) for path, height, _ in paths])
        further = []
        for path, height, digest in paths:
            row = view.get(LEDGER_PAGE, page_key(place, path, height))
            below = None if row is None else next_page(digest, read_page(row.slots), len(path) - 1)
            if below is not None:
                further.append((path + bytes((nibble(digest, len(path) - 1),)), below, digest))
        paths = further


def demand_pages(view: View, place: Place, keys: list[bytes]) -> None:
    """Ask for all missing pages of a level at once: for a decision that turned out other than it had looked."""
    for stage in page_needs(view, place, keys):
        demand(view, stage.keys)


def load_state(view: View, place: Place, keys: list[bytes]) -> State:
    """The entities of these keys."""
    rows = ((key, view.get(LEDGER_ENTITY, (*place, key))) for key in keys)
    return {key: None if row is None else entity_of(row) for key, row in rows}


def store_state(view: View, place: Place, height: int, before: State, after: State) -> tuple[bytes, bytes]:
    """Write what has changed; the new state root, and the pages that were replaced."""
    changes: dict[int, list[Change]] = {}
    for key, entity in after.items():
        if entity == before[key]:
            continue
        _store_entity(view, place, height, key, before, after)
        changes.setdefault(bucket_of(key), []).append(change(key, entity))
    tops = tops_of(view, place)
    if not changes:
        return sha256(tops.roots).digest(), b""

    def load(path: bytes, written: int) -> Page:
        row = view.get(LEDGER_PAGE, page_key(place, path, written))
        assert row is not None, "a page of the tree is missing"
        return read_page(row.slots)

    roots, heights = bytearray(tops.roots), bytearray(tops.heights)
    replaced: list[tuple[bytes, int]] = []
    for bucket, group in changes.items():
        edit = edit_bucket(bucket, bucket_height(tops, bucket), group, height, load)
        roots[32 * bucket : 32 * bucket + 32] = edit.root
        _HEIGHT.pack_into(heights, 8 * bucket, height if edit.pages else 0)
        view.insert(LEDGER_BUCKET, BucketRow(*place, bucket, height, edit.root))
        for path, page in edit.pages.items():
            view.insert(LEDGER_PAGE, PageRow(*place, height, path, write_page(page)))
        replaced += edit.replaced
        if not edit.pages:
            replaced.append((bytes((bucket,)), height))  # once nothing older is kept, no row says the same: empty
    view.put(LEDGER_TOPS, TopsRow(*place, bytes(roots), bytes(heights)))
    return sha256(roots).digest(), b"".join(_STALE.pack(old, len(path)) + path for path, old in replaced)


def stale_pages(stored: bytes) -> list[tuple[bytes, int]]:
    """The pages that a block replaced, by path and height."""
    found = []
    place = 0
    while place < len(stored):
        height, size = _STALE.unpack_from(stored, place)
        place += _STALE.size
        found.append((stored[place : place + size], height))
        place += size
    return found


def _store_entity(view: View, place: Place, height: int, key: bytes, before: State, after: State) -> None:
    old, new = before[key], after[key]
    if old is not None:
        view.insert(LEDGER_PAST, PastRow(*place, key, height, old.value, old.expires_at, old.version))
    if new is None:
        view.delete(LEDGER_ENTITY, (*place, key))
    else:
        view.put(LEDGER_ENTITY, EntityRow(*place, key, new.value, new.expires_at, new.version))
