"""What the store must hold of forks at any moment, and after everything was deleted: read from its tables.

Independent of the rules: it counts rows and compares them with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from semel.server.offline_store import snapshot_of
from semel.store.protocol import AnyTable, Snapshot
from semel.surfaces.streams.tables import CHUNK, FORK, RETENTION, STREAM, TOMBSTONE

_SEGMENT = Struct(">16sQ")
_PAGE = 1_000


class StreamsRows(NamedTuple):
    """All rows of streams and forks."""

    streams: list[Any]
    forks: list[Any]
    graves: list[Any]
    chunk_lives: Counter[bytes]
    retentions: list[Any]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not (self.streams or self.forks or self.graves or self.chunk_lives or self.retentions)


def rows_of(url: str) -> StreamsRows:
    """Read the rows in one snapshot, beside a running server."""
    with snapshot_of(url) as snapshot:
        lives = Counter(key[0] for key in _keys(snapshot, CHUNK))
        streams, forks, graves, retentions = (
            list(_rows(snapshot, table)) for table in (STREAM, FORK, TOMBSTONE, RETENTION)
        )
        return StreamsRows(streams, forks, graves, lives, retentions)


def faults_of(found: StreamsRows) -> list[str]:
    """What no crash may leave: orphans, wrong counts, and content that a fork needs and that is not there."""
    by_id = {row.id: row for row in found.streams}
    graves = {row.id: row for row in found.graves}
    children = Counter(row.source_id for row in found.forks)
    needed = {life for fork in found.forks for life, _ in _SEGMENT.iter_unpack(fork.chain)}
    faults = [
        f"{row.path!r} counts {row.forks} forks of {children[row.id]}"
        for row in found.streams
        if row.forks != children[row.id]
    ]
    faults += [
        f"a grave counts {row.forks} forks of {children[row.id]}"
        for row in found.graves
        if row.forks != children[row.id]
    ]
    faults += [
        f"a fork row of {fork.source_path!r} without a stream or a grave"
        for fork in found.forks
        if fork.id not in by_id and fork.id not in graves
    ]
    faults += [
        f"a fork of {fork.source_path!r} whose source is neither there nor kept"
        for fork in found.forks
        if fork.source_id not in by_id and fork.source_id not in graves
    ]
    faults += [
        f"{count} chunks of a life that is not there"
        for life, count in found.chunk_lives.items()
        if life not in by_id and life not in graves
    ]
    faults += [f"{row.path!r} is gone and has no forks" for row in found.streams if row.gone and not row.forks]
    faults += [
        "a fork needs the content of a life that is not kept"
        for life in needed
        if life not in by_id and life not in graves
    ]
    return faults


def _keys(snapshot: Snapshot, table: AnyTable) -> Iterator[tuple[Any, ...]]:
    behind = None
    while page := snapshot.page_keys(table, 0, behind, _PAGE):
        yield from page
        behind = page[-1]


def _rows(snapshot: Snapshot, table: AnyTable) -> Iterator[Any]:
    behind = None
    while page := snapshot.page(table, 0, behind, _PAGE, 1 << 24):
        yield from page
        behind = table.key_of(page[-1])
