"""The decision to trim, against rows that have changed since the chore read them."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest

from semel.engine.reading import Reading
from semel.engine.view import BatchView
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Range
from semel.surfaces.streams.commands import Retention, Trim
from semel.surfaces.streams.retention_cut import trim_of
from semel.surfaces.streams.rules.retention import MAX_INTERVAL_MS, MIN_INTERVAL_MS, interval_ms, trim
from semel.surfaces.streams.tables import CHUNK, RETENTION, STREAM, ChunkRow, RetentionRow, StreamRow

LIFE, OTHER = b"l" * 16, b"o" * 16


def stream(life: bytes = LIFE, *, tail: int = 100, forks: int = 0, floor: int = 10) -> StreamRow:
    row = StreamRow(b"s", b"s", life, b"text/plain", None, None, None, 0, 0, 0, tail, 0, None, None, None, None)
    return row._replace(forks=forks, floor=floor)


def view_of(row: StreamRow | None, kept: RetentionRow | None) -> BatchView:
    view = BatchView(lambda order: False, lambda table, row: row)
    view.add_row(STREAM, (b"s",), row)
    view.add_row(RETENTION, (b"s",), kept)
    view.add_row(CHUNK, (LIFE, 40), ChunkRow(LIFE, 40, b"x" * 30, 1, 0))
    return view


KEPT = RetentionRow(b"s", LIFE, None, 50, 10, 0)
COMMAND = Trim(b"s", LIFE, 40, 40, ((LIFE, 40),), 777)


def test_a_trim_raises_the_floor_frees_the_content_and_sets_the_next_look() -> None:
    view = view_of(stream(), KEPT)
    trim(view, COMMAND)
    changes = view.changes(())
    assert changes.deletes[CHUNK] == [(LIFE, 40)]
    assert view.get(STREAM, (b"s",)) == stream(floor=40)
    assert view.get(RETENTION, (b"s",)) == KEPT._replace(freed=40, due_at=777)


def test_a_stream_that_was_forked_meanwhile_keeps_its_content_behind_the_floor() -> None:
    view = view_of(stream(forks=1), KEPT)
    trim(view, COMMAND)
    assert CHUNK not in view.changes(()).deletes
    assert view.get(STREAM, (b"s",)) == stream(forks=1, floor=40)
    assert view.get(RETENTION, (b"s",)) == KEPT._replace(due_at=777)


@pytest.mark.parametrize(
    ("row", "kept"),
    [(None, None), (stream(OTHER), KEPT._replace(id=OTHER)), (stream(), None), (stream(OTHER), KEPT)],
)
def test_a_trim_of_a_stream_that_has_ended_meanwhile_changes_nothing(
    row: StreamRow | None, kept: RetentionRow | None
) -> None:
    view = view_of(row, kept)
    trim(view, COMMAND)
    assert view.changes(()).is_empty


def test_a_floor_never_falls() -> None:
    view = view_of(stream(floor=60), KEPT)
    trim(view, COMMAND)
    assert view.get(STREAM, (b"s",)) == stream(floor=60)


@pytest.mark.parametrize(
    ("age_ms", "wanted"),
    [(None, MAX_INTERVAL_MS), (1_000, MIN_INTERVAL_MS), (100_000, 10_000), (10**9, MAX_INTERVAL_MS)],
)
def test_a_stream_is_looked_at_every_tenth_of_its_age(age_ms: int | None, wanted: int) -> None:
    assert interval_ms(Retention(age_ms, None).max_age_ms) == wanted


class CountedReading:
    """The rows of one stream without forks; counts the appends that are read with their content."""

    def __init__(self, ends: list[int], old: int) -> None:
        starts = [0, *ends]
        self._chunks = [
            ChunkRow(LIFE, end, b"x" * (end - start), 1, 0 if end <= old else 5_000) for start, end in pairwise(starts)
        ]
        self._row = stream(tail=ends[-1], floor=0)
        self.now = Now(10_000, 10_000, 10_000, 10_000)
        self.reads = 0

    def get(self, table: AnyTable, key: object) -> StreamRow:
        return self._row

    def range(self, wanted: Range) -> list[ChunkRow]:
        self.reads += 1
        return [chunk for chunk in self._chunks if chunk.end_at >= wanted.start[0]][:1]

    def keys(self, wanted: Range) -> list[tuple[bytes, int]]:
        return [(LIFE, chunk.end_at) for chunk in self._chunks if wanted.start[0] <= chunk.end_at < wanted.stop[0]]


@pytest.mark.parametrize("ends", [[1_000_000], [1, 2, 1_000_000], [10, 500_000, 500_010, 1_000_000]])
def test_a_cut_by_age_is_the_end_of_the_last_old_append_and_reads_no_append_twice(ends: list[int]) -> None:
    for old in (0, *ends):
        reading = CountedReading(ends, old)
        kept = KEPT._replace(max_age_ms=6_000, max_bytes=None, freed=0)
        assert trim_of(cast(Reading, reading), kept, 500).floor == old
        assert reading.reads <= len(ends)
