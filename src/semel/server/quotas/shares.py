"""The shares of principals in what is stored: the notes of batches, added up by container.

A container is something that ends as a whole: 64 KiB of a stream, keys that expire in the same ten minutes, an hour of
jobs. A share is what one principal has in one container. When a container ends its shares are deleted, whatever they
are, and its principals may store as much again; so a wrong count does not outlive its container.

Batches add notes to the store in their own transactions. `KeepShares` adds the oldest notes to the shares and to the
totals of the principals, and deletes them, in one transaction: a crash before it leaves the notes, a crash after it the
shares. One lock for all shares: each node sends such a write about once a second, and only if there is something to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.engine.storage_meter import STORAGE_NOTE, StorageLimits, StorageNoteRow
from semel.kernel.clock import Now
from semel.kernel.verdict import NEVER
from semel.store.protocol import Lock, Range
from semel.store.table import Below, Key, Table

NOTES_AT_ONCE = 256
SHARES_AT_ONCE = 256
"""Limits on the notes that one write adds up, and on the shares that it gives back for one of them."""


class QuotaShareRow(NamedTuple):
    """What a principal has stored in a container."""

    container: bytes
    principal: bytes
    keys: int
    size: int
    until: int
    """When it is given back by itself."""
    checksum: int = 0


class QuotaTotalRow(NamedTuple):
    """The sum of the shares of a principal."""

    principal: bytes
    keys: int
    size: int
    checksum: int = 0


QUOTA_SHARE = Table(
    "quota_share", QuotaShareRow, key=2, indexes={"until": ("until",)}, partial={"until": Below("until", NEVER)}
)
QUOTA_TOTAL = Table("quota_total", QuotaTotalRow, key=1)
TABLES = (STORAGE_NOTE, QUOTA_SHARE, QUOTA_TOTAL)


class KeepShares(NamedTuple):
    """Command: add notes up, and give back shares that have expired by this time of the wall clock in ms."""

    expired: int


class DropShares(NamedTuple):
    """Command: no principal has a limit any more, so drop what was counted."""


class SharesKept(NamedTuple):
    """What was given back, and whether there is more to do."""

    given: Mapping[str, StorageLimits]
    is_more: bool


_NOTES = Range(STORAGE_NOTE, "", (), NOTES_AT_ONCE)
_SHARES = Range(QUOTA_SHARE, "", (), SHARES_AT_ONCE)
_TOTALS = Range(QUOTA_TOTAL, "", (), SHARES_AT_ONCE)


class QuotaShares:
    """The contract."""

    name = "quotas"

    def locks(self, command: KeepShares | DropShares) -> Sequence[Lock]:
        """One lock for all shares."""
        return (Lock(b"quotas"),)

    def needs(self, command: KeepShares | DropShares) -> Generator[Stage, View, None]:
        """The notes, then their shares, then the totals of the principals."""
        if isinstance(command, DropShares):
            yield Stage(ranges=[_NOTES, _SHARES, _TOTALS])
            return
        view = yield Stage(ranges=[_NOTES, _expired(command.expired)])
        notes: list[StorageNoteRow] = list(view.range(_NOTES))
        shares: list[QuotaShareRow] = list(view.range(_expired(command.expired)))
        releases = [_released(note) for note in notes if note.high]
        view = yield Stage(
            keys=[(QUOTA_SHARE, (note.container, note.principal)) for note in notes if not note.high], ranges=releases
        )
        shares += [row for wanted in releases for row in view.range(wanted)]
        principals = {note.principal for note in notes if note.principal} | {row.principal for row in shares}
        yield Stage(keys=[(QUOTA_TOTAL, (principal,)) for principal in principals])

    def order(self, command: KeepShares | DropShares) -> Order | None:
        """No order but that of arrival."""
        return None

    def decide(self, view: View, command: KeepShares | DropShares, now: Now) -> DecisionResult:
        """Add up, give back, and store the totals."""
        if isinstance(command, DropShares):
            return DecisionResult(SharesKept({}, _dropped(view)))
        sums = _Sums(view)
        notes: list[StorageNoteRow] = list(view.range(_NOTES))
        is_more = len(notes) == NOTES_AT_ONCE
        for note in notes:
            if note.high:
                gone: list[QuotaShareRow] = list(view.range(_released(note)))
                sums.give_back(gone)
                if len(gone) == SHARES_AT_ONCE:  # the note stays for the others
                    is_more = True
                    continue
            else:
                sums.add(note)
            view.delete(STORAGE_NOTE, STORAGE_NOTE.key_of(note))
        expired: list[QuotaShareRow] = list(view.range(_expired(command.expired)))
        sums.give_back(expired)
        sums.store()
        return DecisionResult(SharesKept(sums.given(), is_more or len(expired) == SHARES_AT_ONCE))

    def chores(self, reading: Reading) -> Sequence[KeepShares]:
        """No chores: `StoredUsage` sends the writes."""
        return ()


def _expired(until: int) -> Range:
    return Range(QUOTA_SHARE, "until", (), SHARES_AT_ONCE, stop=(until + 1,))


def _released(note: StorageNoteRow) -> Range:
    return Range(QUOTA_SHARE, "", (), SHARES_AT_ONCE, start=(note.container,), stop=(note.high + b"\x00",))


class _Sums:
    """The changes of shares in one transaction."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._keys: Counter[bytes] = Counter()
        self._sizes: Counter[bytes] = Counter()
        """The changes of the totals, by principal."""
        self._given: Counter[tuple[bytes, bool]] = Counter()
        """Keys (False) and bytes (True) that were given back, by principal."""

    def add(self, note: StorageNoteRow) -> None:
        """Add a note to its share; a share never falls below 0, and is deleted at 0."""
        key = (note.container, note.principal)
        known = self._view.get(QUOTA_SHARE, key) or QuotaShareRow(*key, 0, 0, note.until)
        if not self._view.get(QUOTA_SHARE, key) and note.keys <= 0 and note.size <= 0:
            return
        row = known._replace(keys=max(0, known.keys + note.keys), size=max(0, known.size + note.size))
        self._change(known, row)
        if row.keys or row.size:
            self._view.put(QUOTA_SHARE, row)
        else:
            self._view.delete(QUOTA_SHARE, key)

    def give_back(self, rows: Iterable[QuotaShareRow]) -> None:
        """Delete shares."""
        for row in rows:
            self._change(row, row._replace(keys=0, size=0))
            self._view.delete(QUOTA_SHARE, QUOTA_SHARE.key_of(row))

    def _change(self, before: QuotaShareRow, after: QuotaShareRow) -> None:
        keys, size = after.keys - before.keys, after.size - before.size
        self._keys[before.principal] += keys
        self._sizes[before.principal] += size
        self._given[before.principal, False] += max(0, -keys)
        self._given[before.principal, True] += max(0, -size)

    def store(self) -> None:
        """Write the totals."""
        for principal in self._keys:
            key: Key = (principal,)
            known = self._view.get(QUOTA_TOTAL, key) or QuotaTotalRow(principal, 0, 0)
            keys, size = known.keys + self._keys[principal], known.size + self._sizes[principal]
            if keys or size:
                self._view.put(QUOTA_TOTAL, QuotaTotalRow(principal, keys, size))
            elif self._view.get(QUOTA_TOTAL, key) is not None:
                self._view.delete(QUOTA_TOTAL, key)

    def given(self) -> dict[str, StorageLimits]:
        """What was given back, by principal."""
        names = {name for (name, _), number in self._given.items() if number}
        return {name.decode(): StorageLimits(self._given[name, False], self._given[name, True]) for name in names}


def _dropped(view: View) -> bool:
    """Delete some of what was counted; whether there may be more."""
    is_more = False
    for wanted in (_NOTES, _SHARES, _TOTALS):
        rows = view.range(wanted)
        is_more = is_more or len(rows) == wanted.limit
        for row in rows:
            view.delete(wanted.table, wanted.table.key_of(row))
    return is_more
