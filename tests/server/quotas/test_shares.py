"""Shares by container: notes are added up once, containers end as a whole, and limits are judged within a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from semel.engine import storage_meter
from semel.engine.storage_meter import (
    STORAGE_NOTE,
    StorageCharge,
    StorageLimits,
    StorageMeter,
    StorageNoteRow,
    StorageRelease,
    StorageTally,
)
from semel.kernel.verdict import NEVER
from semel.server.quotas import shares
from semel.server.quotas.shares import QUOTA_SHARE, QUOTA_TOTAL, TABLES, DropShares, KeepShares, QuotaShares, SharesKept
from semel.server.quotas.stored_usage import read_used
from semel.store.memory import MemoryStore
from semel.store.protocol import Changes, Range
from semel.store.table import Table
from tests.engine.rig import Desk
from tests.engine.toy import ToyWorld

SHOP = "client:shop"
Item = StorageCharge | StorageRelease


class Book:
    """A store of shares."""

    def __init__(self) -> None:
        world = ToyWorld()
        self.desk = Desk(MemoryStore(TABLES, world.wall_ms), world)
        self.batches = 0

    def note(self, principal: str, *items: Item) -> None:
        """What one batch has stored."""
        tally = StorageTally()
        tally.add(principal, items)
        self.batches += 1
        tx = self.desk.store.begin(())
        tx.flush(Changes({STORAGE_NOTE: tally.notes(self.batches, b"mark")}, {}, {}))
        tx.commit()
        tx.rollback()

    def keep(self, expired: int = 0) -> SharesKept:
        """Add up what is noted."""
        (kept,) = self.desk.answers(KeepShares(expired), contract=QuotaShares())
        assert isinstance(kept, SharesKept)
        return kept

    def totals(self) -> dict[str, tuple[int, int]]:
        """The totals, which have to be the sums of the shares."""
        sums: dict[str, tuple[int, int]] = {}
        for _, principal, keys, size, *_ in self.desk.scan(QUOTA_SHARE):
            known = sums.get(principal.decode(), (0, 0))
            sums[principal.decode()] = known[0] + keys, known[1] + size
        totals = {row[0].decode(): row[1:3] for row in self.desk.scan(QUOTA_TOTAL)}
        assert totals == sums
        return totals

    def used(self) -> dict[str, StorageLimits]:
        """What a server reads at its start."""
        with self.desk.store.read() as snapshot:
            reading: Any = snapshot
            return read_used(reading)


def test_notes_are_added_up_once_and_the_sums_read_at_a_start_do_not_change_by_it() -> None:
    book = Book()
    book.note(SHOP, StorageCharge(b"a", 1, 10), StorageCharge(b"b", 0, 5), StorageCharge(b"a", 1, 20))
    book.note("user:ann", StorageCharge(b"a", 2, 2))
    before = book.used()
    assert before == {SHOP: StorageLimits(2, 35), "user:ann": StorageLimits(2, 2)}
    assert book.keep() == SharesKept({}, False)
    assert (book.used(), book.desk.scan(STORAGE_NOTE)) == (before, [])
    assert book.keep() == SharesKept({}, False)
    assert book.totals() == {SHOP: (2, 35), "user:ann": (2, 2)}


def test_a_release_gives_back_the_shares_of_all_principals_in_its_range_and_no_others() -> None:
    book = Book()
    for container in (b"a1", b"a2", b"a3", b"b1"):
        book.note(SHOP, StorageCharge(container, 1, 10))
    book.note("user:ann", StorageCharge(b"a2", 0, 7))
    book.keep()
    book.note("", StorageRelease(b"a1", b"a2"))
    assert book.keep().given == {SHOP: StorageLimits(2, 20), "user:ann": StorageLimits(0, 7)}
    assert book.totals() == {SHOP: (2, 20)}


def test_a_release_that_is_added_up_with_its_charges_comes_after_them() -> None:
    book = Book()
    book.note(SHOP, StorageCharge(b"a", 1, 10))
    book.note("", StorageRelease(b"a", b"a"))
    assert book.keep().given == {SHOP: StorageLimits(1, 10)}
    assert book.totals() == {}


def test_a_share_never_falls_below_zero_and_a_share_that_is_not_there_gives_nothing_back() -> None:
    book = Book()
    book.note(SHOP, StorageCharge(b"a", 1, 10, SHOP))
    book.note(SHOP, StorageCharge(b"old", -3, -30, SHOP))
    book.note(SHOP, StorageCharge(b"a", -5, -4, SHOP))
    assert book.keep().given == {SHOP: StorageLimits(1, 4)}
    assert book.totals() == {SHOP: (0, 6)}


def test_containers_expire_at_their_time() -> None:
    book = Book()
    book.note(SHOP, StorageCharge(b"soon", 1, 0, until=5_000), StorageCharge(b"late", 1, 0, until=6_000))
    book.keep(4_999)
    assert book.totals() == {SHOP: (2, 0)}
    assert book.keep(5_000).given == {SHOP: StorageLimits(1, 0)}
    assert book.totals() == {SHOP: (1, 0)}


def test_more_than_one_write_can_hold_is_given_back_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "SHARES_AT_ONCE", 2)
    book = Book()
    for number in range(5):
        book.note(f"user:{number}", StorageCharge(b"a", 1, 0))
    book.keep()
    book.note("", StorageRelease(b"a", b"a"))
    assert [book.keep().is_more for _ in range(3)] == [True, True, False]
    assert (book.totals(), book.desk.scan(STORAGE_NOTE)) == ({}, [])


def test_dropped_shares_leave_no_row() -> None:
    book = Book()
    book.note(SHOP, StorageCharge(b"a", 1, 1))
    book.keep()
    book.note(SHOP, StorageCharge(b"b", 1, 1))
    (kept,) = book.desk.answers(DropShares(), contract=QuotaShares())
    assert not kept.is_more
    assert [book.desk.scan(table) for table in TABLES] == [[], [], []]


ROWS: Table[StorageNoteRow] = STORAGE_NOTE
"""Any table: the meter of the tests takes what a row adds from the row."""


class Scale:
    """A meter with limits, and the tally of one batch."""

    def __init__(self, **limits: int) -> None:
        self.meter = StorageMeter()
        self.meter.is_on = True
        self.meter.rows = {ROWS: lambda before, after, now_ms: after}
        self.meter.limits_of = lambda actor: StorageLimits(**limits) if actor == SHOP else StorageLimits()
        self.tally = StorageTally()

    def weigh(self, items: Sequence[Item], actor: str = SHOP) -> str:
        """The quota that refuses a write; empty if none does."""
        changes: Any = iter([(ROWS, None, tuple(items))])
        full = self.meter.weigh(self.tally, actor, changes, 0)
        return "" if full is None else full.quota

    def commit(self) -> None:
        """The batch is on disk."""
        self.meter.take(self.tally)
        self.tally = StorageTally()


def test_writes_of_one_batch_are_judged_after_one_another() -> None:
    scale = Scale(keys=2)
    one = [StorageCharge(b"a", 1, 5)]
    assert [scale.weigh(one) for _ in range(3)] == ["", "", "stored_keys"]
    assert [(row.keys, row.size) for row in scale.tally.notes(0, b"")] == [(2, 10)]
    scale.commit()
    assert scale.meter.used == {SHOP: StorageLimits(2, 10)}
    assert scale.weigh(one) == "stored_keys"
    scale.meter.give_back({SHOP: StorageLimits(1, 5)})
    assert scale.weigh(one) == ""


def test_a_write_that_adds_nothing_or_gives_back_is_never_refused() -> None:
    scale = Scale(keys=1, size=10)
    scale.meter.used[SHOP] = StorageLimits(5, 50)
    assert scale.weigh([]) == ""
    assert scale.weigh([StorageCharge(b"a", -1, 0, SHOP), StorageCharge(b"b", 1, 0, SHOP)]) == ""
    assert scale.weigh([StorageRelease(b"a", b"a")]) == ""
    assert scale.weigh([StorageCharge(b"a", 0, 1)]) == "stored_bytes"


def test_only_principals_with_a_limit_are_counted_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = Scale(keys=10)
    assert scale.weigh([StorageCharge(b"a", 1, 1)], "client:other") == ""
    assert scale.weigh([StorageCharge(b"a", 1, 1)], "") == ""
    assert scale.tally.notes(0, b"") == []
    monkeypatch.setattr(storage_meter, "MAX_PRINCIPALS", 1)
    scale.meter.used["user:ann"] = StorageLimits(1, 1)
    assert scale.weigh([StorageCharge(b"a", 1, 1)]) == ""
    assert scale.tally.notes(0, b"") == []


def test_a_row_that_names_its_principal_is_counted_for_it_whoever_writes() -> None:
    scale = Scale(keys=1)
    assert scale.weigh([StorageCharge(b"a", 1, 0, SHOP)], "") == ""
    scale.commit()
    assert scale.meter.used == {SHOP: StorageLimits(1, 0)}
    assert scale.weigh([StorageCharge(b"a", 1, 0, SHOP)], "client:worker") == ""


def test_sums_that_were_read_keep_what_was_stored_meanwhile() -> None:
    scale = Scale(keys=9)
    scale.meter.begin_read()
    scale.weigh([StorageCharge(b"a", 1, 3)])
    scale.commit()
    scale.meter.end_read({SHOP: StorageLimits(4, 4), "user:ann": StorageLimits(1, 0)})
    assert scale.meter.used == {SHOP: StorageLimits(5, 7), "user:ann": StorageLimits(1, 0)}


def test_notes_have_no_end_unless_they_are_releases() -> None:
    tally = StorageTally()
    tally.add(SHOP, [StorageRelease(b"a", b"b"), StorageCharge(b"c", 1, 1), StorageCharge(b"d", 1, 0, until=9)])
    rows = tally.notes(7, b"m")
    assert [(row.at, row.container, row.high, row.until) for row in rows] == [
        (7, b"c", b"", NEVER),
        (7, b"d", b"", 9),
        (7, b"a", b"b", NEVER),
    ]
    assert len({row.id for row in rows}) == 3


def test_ranges_of_notes_are_read_in_the_order_in_which_batches_were_decided() -> None:
    book = Book()
    for number in range(3):
        book.note(SHOP, StorageCharge(b"%d" % number, 1, 1))
    with book.desk.store.read() as snapshot:
        rows = snapshot.range(Range(STORAGE_NOTE, "", (), 10))
    assert [row[2] for row in rows] == [b"0", b"1", b"2"]
