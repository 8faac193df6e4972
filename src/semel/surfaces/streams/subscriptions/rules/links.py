"""Links between subscriptions and streams: where a cursor stands, whether there is work, and the links of new streams.

A stream leaves marks from the moment its row says `subscribed`. A stream that is created is linked in the commit that
creates it, before its first content counts. The creation holds the lock of globs shared, and every change of patterns
and explicit streams holds it exclusively, so no stream is created unseen.
"""

from __future__ import annotations

from semel.engine.contract import View, demand
from semel.store.protocol import AnyTable, Lock, Range
from semel.store.table import Key
from semel.surfaces.streams.rules.offsets import format_offset, offset_at
from semel.surfaces.streams.subscriptions.rules.globs import matches
from semel.surfaces.streams.subscriptions.tables import (
    END,
    EXPLICIT,
    GLOB,
    GLOB_KIND,
    LINK,
    MOVED,
    READY,
    TOPIC,
    GlobRow,
    LinkRow,
    MovedRow,
)
from semel.surfaces.streams.tables import StreamRow

GLOBS_SHARED = Lock(b"globs", shared=True)
GLOBS = Lock(b"globs")
MAX_GLOBS = 100_000
"""More than the greatest number of subscriptions."""


def beginning(stream: StreamRow) -> int:
    """The position from which a stream's own content counts: that of a fork begins after what it has inherited."""
    return max(0, stream.inherited)


def position(link: LinkRow, stream: StreamRow) -> int:
    """The position up to which a stream is acknowledged; content that a restore has taken does not count."""
    return min(link.acked, stream.tail) if link.stream_id == stream.id else beginning(stream)


def has_work(link: LinkRow, stream: StreamRow | None) -> bool:
    """Whether there is content after the cursor."""
    return stream is not None and stream.tail > position(link, stream)


def acked_offset(link: LinkRow, stream: StreamRow | None) -> bytes:
    """The cursor as an offset; the beginning if the stream does not exist."""
    return format_offset(0) if stream is None else offset_at(stream, position(link, stream))


def new_link(life: bytes, name: bytes, stream: StreamRow, kind: int, acked: int, state: int) -> LinkRow:
    """A link to an existing stream."""
    return LinkRow(
        life=life,
        scope=stream.scope,
        name=name,
        path=stream.path,
        kind=kind,
        is_glob_only=int(kind == GLOB_KIND),
        stream_id=stream.id,
        acked=acked,
        quiet=1,
        wake=0,
        snapshot=0,
        state=state,
    )


def with_kind(link: LinkRow, kind: int) -> LinkRow:
    """The link with other bits of its kind."""
    return link._replace(kind=kind, is_glob_only=int(not kind & EXPLICIT))


def glob_ranges(path: bytes) -> list[Range]:
    """The patterns that a name may match: those with its first segment, and those that begin with a wildcard."""
    return [Range(GLOB, "", (first,), MAX_GLOBS) for first in {path.partition(b"/")[0]: None, b"": None}]


def linked_range(scope: bytes) -> Range:
    """One link of a stream."""
    return Range(LINK, "scope", (scope,), 1)


def matching_globs(view: View, path: bytes) -> list[GlobRow]:
    """The patterns that a name matches."""
    rows: list[GlobRow] = [row for wanted in glob_ranges(path) for row in view.range(wanted)]
    return [row for row in rows if matches(row.pattern, path)]


def link_keys(view: View, scope: bytes, path: bytes) -> list[tuple[AnyTable, Key]]:
    """The rows that `link_new_stream` needs besides its ranges; none if no subscription is interested."""
    globs = matching_globs(view, path)
    if not globs and not view.range(linked_range(scope)):
        return []
    return [(MOVED, (scope,)), *((LINK, (row.life, scope)) for row in globs)]


def link_new_stream(view: View, stream: StreamRow) -> tuple[StreamRow, tuple[bytes, ...]]:
    """Link a stream that is being created; returns its row, and the signals of the commit.

    A link that exists already is not changed here: other writes change it under the lock of its subscription.
    """
    globs = matching_globs(view, stream.path)
    if not globs and not view.range(linked_range(stream.scope)):
        return stream, ()
    start = beginning(stream)
    demand(view, [(LINK, (row.life, stream.scope)) for row in globs])
    for row in globs:
        if view.get(LINK, (row.life, stream.scope)) is None:
            view.insert(LINK, new_link(row.life, row.name, stream, GLOB_KIND, start, READY))
    return stream._replace(subscribed=1), note_move(view, stream, stream.tail) if stream.tail > start else ()


def note_move(view: View, stream: StreamRow, tail: int) -> tuple[bytes, ...]:
    """Put the mark of a stream that has subscribers, in the commit that moves it; returns the signals."""
    view.put(MOVED, MovedRow(stream.scope, stream.id, tail))
    return (TOPIC,)


def note_end(view: View, stream: StreamRow) -> tuple[bytes, ...]:
    """Put the mark of a stream that is deleted or expires, so that its links are freed; returns the signals.

    It differs from every mark of an append: one that is being carried now must not settle it.
    """
    return note_move(view, stream, END) if stream.subscribed else ()
