"""Forks: the decision to create one, and the release of its source.

A fork has the content of its source up to the fork point and its own content after it, in one space of offsets. It has
no producers, sequences or idempotency keys of its source. Its content is not copied, except the part of one append that
a sub-offset cuts out.

| event | source | fork |
|---|---|---|
| fork | `forks` is one more, in the commit that creates the fork | new |
| delete or expiry of the source with forks | `gone` is set: it answers 410, its content stays | reads on |
| delete or expiry of the fork | unchanged | a tombstone; its FORK row says that the source is not released |
| release | `forks` is one less; if none is left and it is gone, it ends too | its FORK row is deleted |

A release is one small write, and the end of a source that is a fork itself leads to the next one. A crash between two
of them loses nothing: the sweeper finds tombstones with a FORK row.
"""

from __future__ import annotations

from semel.engine.contract import View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER
from semel.surfaces.epoch import dump_pairs, load_pairs
from semel.surfaces.streams.commands import Create, Fork, Release
from semel.surfaces.streams.rules.expiry import leave_tombstone, living, missing
from semel.surfaces.streams.rules.fork_chain import MAX_SEGMENTS, chain_of, cut_chain, dump_chain
from semel.surfaces.streams.rules.media_type import same_media_type
from semel.surfaces.streams.rules.offsets import behind_floor, epoch_at
from semel.surfaces.streams.tables import FORK, RETENTION, STREAM, TOMBSTONE, ForkRow, StreamRow

SOURCE_NOT_FOUND = Refusal("FORK_SOURCE_NOT_FOUND", "There is no stream at Stream-Forked-From; create it first.")
SOURCE_GONE = Refusal(
    "FORK_SOURCE_GONE", "The stream at Stream-Forked-From was deleted or has expired; fork one of its forks instead."
)
SOURCE_CHANGED = Refusal("OVERLOADED", "The source was deleted and created again meanwhile; send the request again.")
"""The plan of the fork is of another stream than the present one: it is made again. Compared by identity."""
TOO_DEEP = Refusal(
    "INVALID_FORK", f"The source is a fork of a fork, {MAX_SEGMENTS} deep; copy its content into a new stream instead."
)


def source_of(view: View, command: Create, fork: Fork, now: Now) -> StreamRow | Refusal:
    """The source, if it can be forked as planned; checked in the order of the reference."""
    known = view.get(STREAM, (fork.source_scope,))
    source = living(known, now)
    if source is None:
        return SOURCE_NOT_FOUND if missing(known).code == "STREAM_NOT_FOUND" else SOURCE_GONE
    if source.id != fork.source_id:
        return SOURCE_CHANGED
    if not fork.inherits_type and not same_media_type(command.content_type, source.content_type):
        kind = source.content_type.decode("latin-1")
        return Refusal("CONTENT_TYPE_MISMATCH", f"The source holds {kind}; send that content type or none.")
    if fork.flaw is not None:
        return fork.flaw
    if fork.position is not None and fork.position < (source.floor or 0):
        return behind_floor(source)
    chain = cut_chain(chain_of(source, view.get(FORK, (source.id,))), fork_point(source, fork))
    return TOO_DEEP if len(chain) > MAX_SEGMENTS else source


def fork_point(source: StreamRow, fork: Fork) -> int:
    """The position up to which the fork shares the content of its source."""
    return source.tail if fork.position is None else fork.position


def add_fork(view: View, stream: StreamRow, source: StreamRow, fork: Fork, *, inherits_expiry: bool) -> StreamRow:
    """Store the fork, and count it at its source; returns the row of the fork with what it inherits.

    Its offsets are those of the source up to the fork point, so it begins with the epochs of the source.
    """
    position = fork_point(source, fork)
    past = tuple(pair for pair in load_pairs(source.past_epochs) if pair.second < position)
    chain = cut_chain(chain_of(source, view.get(FORK, (source.id,))), position)
    asked = position if fork.asked is None else fork.asked
    row = ForkRow(
        stream.id,
        source.scope,
        source.id,
        fork.source_path,
        asked,
        fork.sub_offset,
        int(inherits_expiry),
        dump_chain(chain),
    )
    view.insert(FORK, row)
    view.put(STREAM, source._replace(forks=source.forks + 1))
    return stream._replace(
        inherited=position,
        tail=position,
        epoch=epoch_at(source, position),
        past_epochs=dump_pairs(past),
        floor=source.floor if stream.floor is None else max(stream.floor, source.floor or 0),
    )


def fork_difference(known: ForkRow | None, fork: Fork | None, *, names_expiry: bool) -> str | None:
    """In what the fork of an existing stream differs from a request; None if in nothing."""
    if known is None or fork is None:
        return None if known is None and fork is None else "source: only one of them is a fork"
    if known.source_scope != fork.source_scope:
        return "source"
    if fork.asked is not None and fork.asked != known.position:
        return "fork offset"
    if fork.sub_offset != known.sub_offset:
        return "sub-offset"
    return None if names_expiry or known.inherits_expiry else "end of life"


def end_stream(view: View, stream: StreamRow, now: Now) -> Release | None:
    """Delete a stream that has no forks, and leave a tombstone; returns the release of its source, if it is a fork."""
    leave_tombstone(view, stream, now)
    view.delete(STREAM, (stream.scope,))
    forget_retention(view, stream)
    fork = view.get(FORK, (stream.id,)) if stream.inherited >= 0 else None
    return None if fork is None else Release(fork.id, fork.source_scope, fork.source_id)


def keep_for_forks(view: View, stream: StreamRow, gone: int) -> None:
    """Soft delete: the stream is gone for its clients, and its content stays until its last fork is released."""
    forget_retention(view, stream)
    view.put(STREAM, stream._replace(gone=gone, deadline=NEVER))


def forget_retention(view: View, stream: StreamRow) -> None:
    """A stream that has ended is trimmed no more."""
    kept = view.get(RETENTION, (stream.scope,))
    if kept is not None and kept.id == stream.id:
        view.delete(RETENTION, (stream.scope,))


def release(view: View, command: Release, now: Now) -> Release | None:
    """Count a fork that has ended no more at its source; returns the next release, if that was the end of the source.

    The source is its row, or its tombstone if its name has been given to a new stream.
    """
    if view.get(FORK, (command.id,)) is None:
        return None
    view.delete(FORK, (command.id,))
    source = view.get(STREAM, (command.source_scope,))
    if source is not None and source.id == command.source_id:
        freed = source._replace(forks=source.forks - 1)
        if freed.gone and not freed.forks:
            return end_stream(view, freed, now)
        view.put(STREAM, freed)
        return None
    grave = view.get(TOMBSTONE, (command.source_id,))
    if grave is not None:
        view.put(TOMBSTONE, grave._replace(forks=grave.forks - 1))
    return None
