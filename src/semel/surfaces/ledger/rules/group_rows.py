"""The rows that all transactions of a group change: organizations, places and the roots of their trees.

A decision changes them here, transaction by transaction, and writes each row once at the end. If a decision is undone,
its working rows are dropped with it. Nothing here outlives a decision except the pages of the tree, which a cache takes
over after the commit.
"""

from __future__ import annotations

from struct import Struct

from semel.engine.contract import View
from semel.kernel.clock import Now
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.rules.packed_tree import KnownPage, pack_page, page_bytes, place_bytes, unpack_page
from semel.surfaces.ledger.rules.state_tree import BUCKETS, EMPTY_BUCKET, BucketEdit, TreePage, read_page
from semel.surfaces.ledger.tables import (
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_TOPS,
    LEDGER_TREE,
    OrgRow,
    PlaceRow,
    TopsRow,
)

MAX_CACHED_PAGES = 32_768
"""Limit of pages in memory; a page takes about 800 bytes."""
_HEIGHT = Struct(">Q")


class PageCache:
    """Committed pages of current trees, for a store that this process alone writes to.

    An accelerator: a missing page is read from the store. Pages are added after their commit only. A page has the name
    of its place and path, and is used only if it has the height that its parent names: a committed page never changes.
    A page that has left its tree stays here until the oldest pages go.
    """

    def __init__(self, most: int = MAX_CACHED_PAGES) -> None:
        self._most = most
        self.pages: dict[bytes, KnownPage] = {}
        """By name, in the order in which the names were added."""

    def __len__(self) -> int:
        return len(self.pages)

    def take(self, changes: TreeChanges) -> None:
        """Take the pages of a committed decision over, in place of those that they replaced; the oldest go first."""
        pages = self.pages
        if not self._most:
            return
        pages.update(changes.pages)
        while len(pages) > self._most:
            del pages[next(iter(pages))]


class TreeChanges:
    """The pages that a decision has written, and those that it has loaded to change them, by name."""

    __slots__ = ("pages",)

    def __init__(self) -> None:
        self.pages: dict[bytes, KnownPage] = {}

    def add(self, place: LedgerPlace, height: int, edit: BucketEdit) -> bytes:
        """Add the change of a bucket by the block of a height; returns the new pages as they are stored."""
        before, written = place_bytes(place), _HEIGHT.pack(height)
        stored = []
        for path, page in edit.pages.items():
            self.pages[before + path] = written, page
            stored.append(page_bytes(path, pack_page(written, page)))
        return b"".join(stored)


def next_time(before: tuple[int, int], now: Now) -> tuple[int, int]:
    """The time of the next entry, in seconds and nanoseconds; time never falls along a log.

    A clock jump is not accepted at once (see `kernel.clock`), because a wrong date must not evict clients.
    """
    seconds, milliseconds = divmod(now.expiry_ms, 1_000)
    return max((seconds, milliseconds * 1_000_000), before)


def next_cuts(org: OrgRow, entries: int, seconds: int, cuts: tuple[int, int]) -> tuple[int, int]:
    """The cuts of commits and of clients after an entry: every `interval` entries they advance (see `commits`)."""
    if entries % org.interval:
        return cuts
    cut = seconds - org.ttl_seconds
    return max(cuts[0], cut), cuts[1] if org.fence else max(cuts[1], cut)


class WorkingOrg:
    """An organization and its log, as the transactions decided so far have left it."""

    __slots__ = (
        "at_nanos",
        "at_seconds",
        "before",
        "client_cut",
        "cut",
        "entries",
        "in_second",
        "second",
        "used_bytes",
    )

    def __init__(self, row: OrgRow) -> None:
        self.before = row
        self.entries = row.entries
        self.at_seconds, self.at_nanos = row.at_seconds, row.at_nanos
        self.cut, self.client_cut = row.cut, row.client_cut
        self.second, self.in_second = row.second, row.in_second
        self.used_bytes = row.used_bytes

    def next_time(self, now: Now) -> tuple[int, int]:
        """The time of the next entry."""
        return next_time((self.at_seconds, self.at_nanos), now)

    def enter(self, at: tuple[int, int]) -> None:
        """Add one entry to the log."""
        self.entries += 1
        self.at_seconds, self.at_nanos = at
        if self.entries % self.before.interval == 0:
            self.cut, self.client_cut = next_cuts(self.before, self.entries, at[0], (self.cut, self.client_cut))

    def row(self) -> OrgRow:
        """The row to store."""
        return self.before._replace(
            entries=self.entries,
            at_seconds=self.at_seconds,
            at_nanos=self.at_nanos,
            cut=self.cut,
            client_cut=self.client_cut,
            second=self.second,
            in_second=self.in_second,
            used_bytes=self.used_bytes,
        )


class WorkingPlace:
    """A place, the tip of its chain and the roots of its tree, as the transactions decided so far have left them."""

    __slots__ = (
        "_tops",
        "before",
        "height",
        "heights",
        "is_checked",
        "place",
        "retain",
        "roots",
        "state_root",
        "tip_hash",
    )

    def __init__(self, place: LedgerPlace, row: PlaceRow, tops: TopsRow | None) -> None:
        self.place = place
        self.before = row
        self.retain = row.retain
        self.height, self.tip_hash, self.state_root = row.height, row.tip_hash, row.state_root
        self._tops = tops
        self.roots = bytearray(EMPTY_BUCKET * BUCKETS if tops is None else tops.roots)
        """The roots of the 256 buckets."""
        self.heights = bytearray(8 * BUCKETS if tops is None else tops.heights)
        """The heights of their pages, eight bytes each; 0 if the bucket is empty."""
        self.is_checked = False
        """Whether its last block was compared with its tip."""

    def bucket_height(self, bucket: int) -> int:
        """The height of a bucket's root page; 0 if it is empty."""
        return int(_HEIGHT.unpack_from(self.heights, 8 * bucket)[0])

    def set_bucket(self, bucket: int, root: bytes, height: int) -> None:
        """The bucket has another root, whose page was written at a height; 0 if it is empty."""
        self.roots[32 * bucket : 32 * bucket + 32] = root
        _HEIGHT.pack_into(self.heights, 8 * bucket, height)

    def tops(self) -> TopsRow:
        """The roots to store."""
        return TopsRow(*self.place, bytes(self.roots), bytes(self.heights))

    def row(self) -> PlaceRow:
        """The tip to store."""
        return self.before._replace(height=self.height, tip_hash=self.tip_hash, state_root=self.state_root)

    def store(self, view: View) -> None:
        """Write the rows that have changed."""
        if self.height == self.before.height:
            return
        view.put(LEDGER_PLACE, self.row())
        tops = self.tops()
        if tops != self._tops and (self._tops is not None or any(self.heights)):
            view.put(LEDGER_TOPS, tops)


class WorkingRows:
    """The working rows of one decision, read from its view when they are first needed."""

    __slots__ = ("_cache", "_orgs", "_places", "tree", "view")

    def __init__(self, view: View, cache: PageCache) -> None:
        self.view = view
        self.tree = TreeChanges()
        self._cache = cache
        self._orgs: dict[int, WorkingOrg | None] = {}
        self._places: dict[LedgerPlace, WorkingPlace | None] = {}

    def org(self, slug: int) -> WorkingOrg | None:
        """An organization; None if there is none."""
        if slug not in self._orgs:
            row = self.view.get(LEDGER_ORG, (slug,))
            self._orgs[slug] = None if row is None else WorkingOrg(row)
        return self._orgs[slug]

    def place(self, place: LedgerPlace) -> WorkingPlace | None:
        """A place; None if there is none."""
        if place not in self._places:
            row = self.view.get(LEDGER_PLACE, place)
            self._places[place] = None if row is None else WorkingPlace(place, row, self.view.get(LEDGER_TOPS, place))
        return self._places[place]

    def page(self, place: LedgerPlace, path: bytes, height: int) -> TreePage:
        """A page of the current tree."""
        name = place_bytes(place) + path
        known = self.tree.pages.get(name) or self._cache.pages.get(name)
        if known is not None and known[0] == _HEIGHT.pack(height):
            return unpack_page(known)
        row = self.view.get(LEDGER_TREE, (*place, height, path[0]))
        page = None if row is None else read_page(row.pages, path)
        assert page is not None, "a page of the tree is missing"
        return page

    def store(self) -> None:
        """Write the rows that have changed to the view."""
        for org in self._orgs.values():
            if org is not None and org.entries != org.before.entries:
                self.view.put(LEDGER_ORG, org.row())
        for place in self._places.values():
            if place is not None:
                place.store(self.view)
