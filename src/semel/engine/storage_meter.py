"""The storage meter: what the writes of a principal store, compared with its limits inside the batch that stores it.

A write is judged after its rules: a replay adds nothing and is answered, a write that adds keys or bytes beyond a limit
of its principal is undone alone, and nothing of it is stored. Surfaces say what a changed row adds (`StorageCharge`)
and which content is gone (`StorageRelease`), by containers: a part of a stream, an hour of jobs. Rows do not name
their principal, so a container is given back as a whole.

The notes of a batch are rows of its own transaction: a crash loses none. `QuotaShares` of the server adds them up. The
sums in memory are those of this process; of another node's writes they know what was last read, so limits are exact for
one process and late by seconds for several. With the meter off nothing is counted and no row is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from semel.engine.back_pressure import NO_PRINCIPAL
from semel.engine.contract import EngineError
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Row
from semel.store.table import Table

MAX_PRINCIPALS = 10_000
"""Limit on the principals that are counted; what others store is not counted."""


class StorageCharge(NamedTuple):
    """Keys and bytes that a changed row adds to a container; below 0 for what it gives back."""

    container: bytes
    keys: int
    size: int
    owner: str = NO_PRINCIPAL
    """The principal that the row names; empty for the caller of the write."""
    until: int = NEVER
    """When the container is given back, in milliseconds of the wall clock."""


class StorageRelease(NamedTuple):
    """Containers that are gone, from `low` to `high`, with both."""

    low: bytes
    high: bytes


RowMeter = Callable[[Any, Any, int], Iterable[StorageCharge | StorageRelease]]
"""What a change of a row adds: from the row before, the row after (None if there is none), and the time in ms."""


class StorageLimits(NamedTuple):
    """The most keys and bytes that a principal may have stored; 0 is no limit."""

    keys: int = 0
    size: int = 0


class StorageFullError(EngineError):
    """The write would store more than a quota of its principal allows; nothing was stored."""

    def __init__(self, quota: str, limit: int) -> None:
        super().__init__(f"The quota {quota} of this principal is {limit}; nothing was stored.")
        self.quota = quota
        self.limit = limit


class StorageNoteRow(NamedTuple):
    """What one batch has added to a container, or, with `high`, containers that are gone."""

    at: int
    id: bytes
    container: bytes
    high: bytes
    """The last container that is gone; empty if this is no release."""
    principal: bytes
    keys: int
    size: int
    until: int
    checksum: int = 0


STORAGE_NOTE = Table("storage_note", StorageNoteRow, key=2)

STORED_KEYS, STORED_BYTES = "stored_keys", "stored_bytes"


class StorageTally:
    """What the writes of one transaction have added and given back."""

    def __init__(self) -> None:
        self.added: Counter[tuple[str, bool]] = Counter()
        """What each principal has added: keys (False) and bytes (True)."""
        self._charges: dict[tuple[str, bytes], StorageCharge] = {}
        self._releases: dict[StorageRelease, None] = {}

    def add(self, principal: str, items: Iterable[StorageCharge | StorageRelease]) -> None:
        """Count what a write has added."""
        for item in items:
            if isinstance(item, StorageRelease):
                self._releases[item] = None
                continue
            owner = item.owner or principal
            known = self._charges.get((owner, item.container))
            keys, size = (0, 0) if known is None else (known.keys, known.size)
            merged = item._replace(keys=keys + item.keys, size=size + item.size)
            self._charges[owner, item.container] = merged
            self.added[owner, False] += max(0, merged.keys) - max(0, keys)
            self.added[owner, True] += max(0, merged.size) - max(0, size)

    def notes(self, now_ms: int, mark: bytes) -> list[StorageNoteRow]:
        """The rows to store with the transaction; `mark` tells them from those of others. Charges come first."""
        rows = [
            StorageNoteRow(now_ms, b"", one.container, b"", owner.encode(), one.keys, one.size, one.until)
            for (owner, _), one in self._charges.items()
            if one.keys or one.size
        ]
        rows += [StorageNoteRow(now_ms, b"", low, high, b"", 0, 0, NEVER) for low, high in self._releases]
        return [row._replace(id=mark + number.to_bytes(4, "big")) for number, row in enumerate(rows)]


def _no_limits(principal: str) -> StorageLimits:
    return StorageLimits()


class StorageMeter:
    """The limits and sums of all principals. Changed on the event loop only; batches in other threads read it."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether any principal has a limit; otherwise nothing is counted."""
        self.rows: Mapping[AnyTable, RowMeter] = MappingProxyType({})
        self.limits_of: Callable[[str], StorageLimits] = _no_limits
        self.on_refusal: Callable[[str, str], None] = lambda principal, quota: None
        """Called on the event loop for each refused write."""
        self.used: dict[str, StorageLimits] = {}
        """The keys and bytes that each principal has stored."""
        self.recent: Counter[tuple[str, bool]] = Counter()
        """What was added since the sums were last read; see `begin_read`."""

    def counts(self, principal: str) -> bool:
        """Whether the writes of a principal have to be judged here."""
        return self.is_on and principal != NO_PRINCIPAL and any(self.limits_of(principal))

    def weigh(
        self,
        tally: StorageTally,
        principal: str,
        changes: Iterator[tuple[AnyTable, Row | None, Row | None]],
        now_ms: int,
    ) -> StorageFullError | None:
        """Add a decided write to the tally of its transaction; or the refusal, and then the tally is unchanged."""
        rows = self.rows
        items = [item for table, before, after in changes for item in rows[table](before, after, now_ms)]
        if not items:
            return None
        counted = [item for item in items if self._is_counted(item, principal)]
        full = self._refusal(tally, principal, counted) if self.counts(principal) else None
        if full is None:
            tally.add(principal, counted)
        return full

    def take(self, tally: StorageTally | None) -> None:
        """The transaction of this tally is on disk; None if nothing was counted."""
        if tally is None:
            return
        self.recent += tally.added
        for (owner, is_size), number in tally.added.items():
            known = self.used.get(owner, StorageLimits())
            self.used[owner] = StorageLimits(known.keys + number * (not is_size), known.size + number * is_size)

    def note_failure(self, principal: str, error: EngineError) -> None:
        """Tell of a refusal; called for each write that was not stored."""
        if isinstance(error, StorageFullError):
            self.on_refusal(principal, error.quota)

    def give_back(self, given: Mapping[str, StorageLimits]) -> None:
        """Content of these principals is gone."""
        for owner, one in given.items():
            known = self.used.get(owner, StorageLimits())
            left = StorageLimits(max(0, known.keys - one.keys), max(0, known.size - one.size))
            if any(left):
                self.used[owner] = left
            else:
                self.used.pop(owner, None)

    def begin_read(self) -> None:
        """The sums are about to be read: what is added from now on may not be in them."""
        self.recent.clear()

    def end_read(self, used: Mapping[str, StorageLimits]) -> None:
        """Take the sums that were read, and add what was stored meanwhile: some of it may be counted twice for now."""
        recent, self.recent = self.recent, Counter()
        self.used = dict(used)
        for (owner, is_size), number in recent.items():
            known = self.used.get(owner, StorageLimits())
            self.used[owner] = StorageLimits(known.keys + number * (not is_size), known.size + number * is_size)

    def _is_counted(self, item: StorageCharge | StorageRelease, principal: str) -> bool:
        """Give-backs are always noted; what is added, only for a principal with a limit."""
        if isinstance(item, StorageRelease) or (item.keys <= 0 and item.size <= 0):
            return True
        owner = item.owner or principal
        return self.counts(owner) and (owner in self.used or len(self.used) < MAX_PRINCIPALS)

    def _refusal(
        self, tally: StorageTally, principal: str, items: Sequence[StorageCharge | StorageRelease]
    ) -> StorageFullError | None:
        own = [one for one in items if isinstance(one, StorageCharge) and one.owner in (NO_PRINCIPAL, principal)]
        limits, used = self.limits_of(principal), self.used.get(principal, StorageLimits())
        keys, size = sum(one.keys for one in own), sum(one.size for one in own)
        if limits.keys and keys > 0 and used.keys + tally.added[principal, False] + keys > limits.keys:
            return StorageFullError(STORED_KEYS, limits.keys)
        if limits.size and size > 0 and used.size + tally.added[principal, True] + size > limits.size:
            return StorageFullError(STORED_BYTES, limits.size)
        return None
