"""What a changed row adds for the quotas, by surface: charges of new rows, and releases of whole containers only."""

from __future__ import annotations

import pytest

from semel.engine.storage_meter import StorageCharge, StorageRelease
from semel.surfaces.deltas.rules import storage as deltas
from semel.surfaces.deltas.tables import DeltaLogRow
from semel.surfaces.events.rules import storage as events
from semel.surfaces.events.tables import EventHeadRow, EventRow
from semel.surfaces.jobs.rules import storage as jobs
from semel.surfaces.jobs.tables import JobRecordRow
from semel.surfaces.registry import SURFACES
from semel.surfaces.streams.rules import storage as streams
from semel.surfaces.streams.tables import ChunkRow, ReceiptRow, RetentionRow, TombstoneRow

PART = 65_536
ID = b"stream-1"


def retained(freed: int) -> RetentionRow:
    return RetentionRow(b"scope", ID, None, 1, freed, 0)


def chunk_container(end_at: int) -> bytes:
    (charge,) = streams.chunk_items(None, ChunkRow(ID, end_at, b"x", 1, 0), 0)
    return charge.container


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [(0, 1, 0), (0, PART - 1, 0), (0, PART, 1), (0, PART + 1, 1), (PART - 1, PART, 1), (PART, 3 * PART, 2), (5, 5, 0)],
)
def test_retention_releases_the_parts_whose_content_is_freed_and_no_other(before: int, after: int, gone: int) -> None:
    released = list(streams.retention_items(retained(before), retained(after), 0))
    assert len(released) == bool(gone)
    for low, high in released:
        inside = [end for end in range(1, 4 * PART + 1, 1_024) if low <= chunk_container(end) <= high]
        assert max(inside) <= after
        assert low <= chunk_container(after) <= high or after % PART


def test_the_last_byte_of_a_part_is_in_it_and_the_next_is_not() -> None:
    assert chunk_container(1) == chunk_container(PART)
    assert chunk_container(PART) < chunk_container(PART + 1)


def test_the_end_of_a_stream_releases_all_its_parts_and_those_of_no_other() -> None:
    (released,) = streams.tombstone_items(TombstoneRow(ID, 0), None, 0)
    assert released.low <= chunk_container(1) <= chunk_container(2**60) <= released.high
    (other,) = streams.chunk_items(None, ChunkRow(b"stream-2", 1, b"x", 1, 0), 0)
    assert not released.low <= other.container <= released.high
    assert list(streams.tombstone_items(None, TombstoneRow(ID, 0), 0)) == []


@pytest.mark.parametrize(("life", "most"), [(1_000, 1_000), (600_000, 60_000), (86_400_000, 600_000)])
def test_a_key_of_a_stream_is_counted_until_it_expires_and_not_much_longer(life: int, most: int) -> None:
    row = ReceiptRow(b"s", b"k", ID, b"", 1_234_567 + life, 204, 0, 0, None, None)
    (charge,) = streams.receipt_items(None, row, 1_234_567)
    assert (charge.keys, charge.size) == (1, 0)
    assert row.expires_at <= charge.until < row.expires_at + most
    assert list(streams.receipt_items(row, row, 0)) == []


@pytest.mark.parametrize(("before", "after", "gone"), [(0, 255, 0), (0, 256, 256), (256, 511, 0), (100, 600, 512)])
def test_pruning_releases_whole_steps_of_the_log(before: int, after: int, gone: int) -> None:
    first, last = (EventHeadRow(b"", 9_999, 0, pruned) for pruned in (before, after))
    released: list[StorageRelease] = list(events.head_items(first, last, 0))
    assert len(released) == bool(gone)
    for low, high in released:
        rows = [EventRow(number, b"", b"", b"", 0, b"", b"e") for number in range(1, 1_025)]
        inside = [row.committed_id for row in rows if low <= next(events.event_items(None, row, 0)).container <= high]
        assert max(inside) == gone


def test_a_key_of_a_job_that_is_only_seen_again_adds_nothing() -> None:
    row = JobRecordRow(b"shop", b"k", b"", b"job", 7, 7)
    changed: list[StorageCharge] = list(jobs.record_items(row, row._replace(seen_at=9), 0))
    assert sum(one.keys for one in changed) == 0
    (added,) = jobs.record_items(None, row, 0)
    assert (added.owner, added.keys) == ("client:shop", 1)
    (user,) = jobs.record_items(row._replace(principal=b"user:ann"), None, 0)
    assert (user.owner, user.keys) == ("user:ann", -1)


def test_deltas_of_two_gateways_have_no_container_in_common() -> None:
    row = DeltaLogRow(b"g", 5, 5, b"", b"t", b"r", b"c", 1, b"body", 1, None, None, b"")
    (one,), (other,) = (deltas.log_items(None, row._replace(gateway=name), 0) for name in (b"g", b"h"))
    assert one.container != other.container
    assert (one.keys, one.size) == (1, 6)
    assert list(deltas.log_items(None, row._replace(pushed=0), 0)) == []


@pytest.mark.parametrize("surface", [row.name for row in SURFACES])
def test_every_surface_says_what_it_stores(surface: str) -> None:
    (row,) = [one for one in SURFACES if one.name == surface]
    assert row.storage
    assert set(row.storage) <= set(row.tables)
