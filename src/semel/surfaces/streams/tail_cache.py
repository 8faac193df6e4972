"""A cache of hot tails: the last appends of streams that are being read, so that live readers need no store read.

The engine announces every commit on the event loop, in order, before any caller is answered (`Engine.watch_commits`).
A tail is filled from these announcements only, so it never holds content that is not on disk. It begins with the first
commit after a reader has reached the end of the stream, and grows with each further one up to `TAIL_BYTES`; its oldest
appends are dropped first. A tail is dropped when its stream is deleted, created again, given an end of life or cut at
its front, and when the engine cannot say what a commit has changed. Tails that were not read for longest are dropped if
all of them exceed `CACHE_BYTES` or their number `MAX_TAILS`.

The cache is used only where this process makes every commit: see `Engine.sees_all_commits`. A crash loses it and
nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from itertools import chain

from semel.kernel.verdict import NEVER
from semel.store.protocol import Changes
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.reading import PAGE_APPENDS, StreamPage
from semel.surfaces.streams.tables import CHUNK, STREAM, StreamRow

TAIL_BYTES = 1024 * 1024
"""Limit on the content of one tail in memory."""
CACHE_BYTES = 32 * 1024 * 1024
"""Limit on the content of all tails in memory."""
MAX_TAILS = 4_096
"""Limit on the number of tails."""
APPEND_BYTES = 96
"""The approximate bytes of an append in memory besides its content; they count as content."""
KEPT_PIECES = 16_384
"""Limit on the appends of the pages of one tail that are kept for further readers."""
_MAX_PAGES = 64
_SPARE = 1_024
"""Dropped appends whose places in the lists are not freed yet."""

_Appends = list[tuple[int, bytes]]
"""The end of each append, and its content."""


class StreamTail:
    """The last appends of one stream, from the position `start` to its tail."""

    __slots__ = ("_data", "_ends", "_first", "_kept", "life", "pages", "row", "size", "start")

    def __init__(self, life: bytes) -> None:
        self.life = life
        self.row: StreamRow | None = None
        """The committed stream row; None until the first commit."""
        self.start = 0
        self.size = 0
        self.pages: dict[int, StreamPage] = {}
        """Pages by their start, for the readers at the same position; dropped at the next commit."""
        self._kept = 0
        """The number of appends in these pages."""
        self._ends: list[int] = []
        self._data: list[bytes] = []
        self._first = 0
        """The place of the first append in these lists."""

    def extend(self, row: StreamRow, appends: _Appends) -> bool:
        """Take over a commit; False if it does not continue the tail."""
        if self.row is None:
            self.start = row.tail - sum(len(data) for _, data in appends)
        end = self.start if self.row is None else self.row.tail
        for after, data in appends:
            end += len(data)
            if after != end:
                return False
            self._ends.append(after)
            self._data.append(data)
            self.size += len(data) + APPEND_BYTES
        self.row = row
        self._forget_pages()
        while self.size > TAIL_BYTES:
            self._drop_first()
        if self._first > _SPARE and self._first * 2 > len(self._ends):
            del self._ends[: self._first], self._data[: self._first]
            self._first = 0
        return end == row.tail

    def _drop_first(self) -> None:
        place = self._first
        self.start = self._ends[place]
        self.size -= len(self._data[place]) + APPEND_BYTES
        self._data[place] = b""
        self._first += 1

    def page(self, position: int, page_bytes: int) -> StreamPage | None:
        """The page that begins at a position; None if the tail does not have it."""
        row = self.row
        if row is None or not self.start <= position <= row.tail:
            return None
        page = self.pages.get(position)
        if page is None:
            page = self._page(row, position, page_bytes)
            if len(self.pages) >= _MAX_PAGES or self._kept + len(page.pieces) > KEPT_PIECES:
                self._forget_pages()
            self.pages[position] = page
            self._kept += len(page.pieces)
        return page

    def _forget_pages(self) -> None:
        self.pages.clear()
        self._kept = 0

    def _page(self, row: StreamRow, position: int, page_bytes: int) -> StreamPage:
        if position == row.tail:
            return StreamPage(row, position, position, ())
        first = bisect_right(self._ends, position, self._first)
        last = bisect_right(self._ends, position + page_bytes, first, min(len(self._ends), first + PAGE_APPENDS))
        last = max(last, first + 1)  # an append is never split
        return StreamPage(row, position, self._ends[last - 1], tuple(self._data[first:last]))


class TailCache:
    """The hot tails of this process. Used on the event loop only."""

    def __init__(self, page_bytes: int, metrics: StreamsMetrics) -> None:
        self._page_bytes = page_bytes
        self._metrics = metrics
        self._tails: OrderedDict[bytes, StreamTail] = OrderedDict()
        """By the scope of the stream; the tail that was read last is at the end."""

    @property
    def size(self) -> int:
        """Bytes of all tails."""
        return self._metrics.tail_bytes

    def __len__(self) -> int:
        return len(self._tails)

    def watch(self, stream: StreamRow) -> None:
        """A reader has reached the end of this stream: keep what is committed from now on."""
        if stream.deadline != NEVER:
            return  # expiry is a matter of the clock, which only a store read asks
        known = self._tails.get(stream.scope)
        if known is not None:
            if known.life == stream.id:
                self._tails.move_to_end(stream.scope)
                return
            self._drop(stream.scope)
        self._tails[stream.scope] = StreamTail(stream.id)
        if len(self._tails) > MAX_TAILS:
            self._drop(next(iter(self._tails)))

    def row(self, scope: bytes) -> StreamRow | None:
        """The committed row of a stream; None if it is not known."""
        tail = self._tails.get(scope)
        return None if tail is None else tail.row

    def page(self, scope: bytes, position: int) -> StreamPage | None:
        """The page that begins at a position; None if it must be read from the store."""
        tail = self._tails.get(scope)
        if tail is None:
            return None
        self._tails.move_to_end(scope)
        return tail.page(position, self._page_bytes)

    def committed(self, changes: Changes | None) -> None:
        """Take over a commit. None stands for a commit whose changes are not known."""
        if not self._tails:
            return
        if changes is None:
            self.clear()
            return
        for (scope,) in changes.deletes.get(STREAM, ()):
            self._drop(scope)
        if CHUNK in changes.deletes:
            self._drop_lives({key[0] for key in changes.deletes[CHUNK]})
        rows = chain.from_iterable(
            rows_of.get(STREAM, ()) for rows_of in (changes.steady, changes.updates, changes.inserts)
        )
        changed: dict[bytes, tuple[StreamRow, _Appends]] = {
            row.id: (row, []) for row in rows if row.scope in self._tails
        }
        if not changed:
            return
        for chunk in changes.inserts.get(CHUNK, ()):
            if chunk.id in changed:
                changed[chunk.id][1].append((chunk.end_at, chunk.data))
        for row, appends in changed.values():
            self._extend(row, appends)

    def _extend(self, row: StreamRow, appends: _Appends) -> None:
        tail = self._tails.get(row.scope)
        if tail is None:
            return  # dropped for another stream of this commit
        before = tail.size
        if tail.life != row.id or row.deadline != NEVER or row.gone or not tail.extend(row, appends):
            self._metrics.tail_bytes += tail.size - before
            self._drop(row.scope)
            return
        self._metrics.tail_bytes += tail.size - before
        while self.size > CACHE_BYTES:
            self._drop(next(iter(self._tails)))

    def _drop_lives(self, lives: set[bytes]) -> None:
        for scope in [scope for scope, tail in self._tails.items() if tail.life in lives]:
            self._drop(scope)

    def _drop(self, scope: bytes) -> None:
        tail = self._tails.pop(scope, None)
        if tail is not None:
            self._metrics.tail_bytes -= tail.size

    def clear(self) -> None:
        """Drop all tails."""
        self._tails.clear()
        self._metrics.tail_bytes = 0
