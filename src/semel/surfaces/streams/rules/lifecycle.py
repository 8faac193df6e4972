"""PUT, DELETE and expiry: create a stream or confirm an equal one, delete it, and free the rows of deleted streams."""

from __future__ import annotations

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.surfaces.epoch import epoch_of
from semel.surfaces.streams.commands import Content, Create, Created, Delete, Deleted, Expire, Purge, Release, Retention
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS, first_deadline, leave_tombstone, living, missing, use
from semel.surfaces.streams.rules.forks import add_fork, end_stream, fork_difference, keep_for_forks, source_of
from semel.surfaces.streams.rules.media_type import same_media_type
from semel.surfaces.streams.rules.offsets import entered, epoch_at
from semel.surfaces.streams.rules.retention import first_look
from semel.surfaces.streams.subscriptions.rules.links import link_new_stream, note_end
from semel.surfaces.streams.tables import (
    CHUNK,
    FORK,
    PRODUCER,
    RETENTION,
    STREAM,
    TOMBSTONE,
    RetentionRow,
    StreamRow,
    new_chunk,
)

DELETED, EXPIRED = 1, 2
"""Why a stream that is kept for its forks is gone (`StreamRow.gone`)."""

_HELD = Refusal("STREAM_EXISTS", "A deleted stream of this name is kept for its forks; use another name.")


def create(view: View, command: Create, now: Now, default: Retention | None) -> DecisionResult:
    """Create a stream with the body as its first content, or compare an existing stream by its configuration only.

    `default` is the retention of a stream whose request names none.
    """
    known = view.get(STREAM, (command.scope,))
    existing = living(known, now)
    if existing is not None:
        return _confirm(view, existing, command, now)
    if known is not None and known.gone == DELETED:
        return DecisionResult(_HELD)
    source: StreamRow | None = None
    if command.fork is not None:
        found = source_of(view, command, command.fork, now)
        if isinstance(found, Refusal):
            return DecisionResult(found)
        source = found
    if command.content.flaw is not None:
        return DecisionResult(command.content.flaw)
    if known is not None:
        leave_tombstone(view, known, now)
    stream, signals = _add(view, command, source, now, default)
    tail_epoch = epoch_at(stream, stream.tail)
    return DecisionResult(Created(True, stream.content_type, stream.tail, command.closed, tail_epoch), signals)


def _add(
    view: View, command: Create, source: StreamRow | None, now: Now, default: Retention | None
) -> tuple[StreamRow, tuple[bytes, ...]]:
    """Store a new stream: its row, its retention, its first content, and its links; returns its signals, too."""
    retention = command.retention or default
    if source is not None and source.floor is not None and command.retention is None:
        kept = view.get(RETENTION, (source.scope,))
        retention = None if kept is None else Retention(kept.max_age_ms, kept.max_bytes)
    stream = _new_row(command, source, now, epoch_of(view), has_retention=retention is not None)
    if source is not None and command.fork is not None:
        inherits = command.ttl_seconds is None and command.expires_at is None
        stream = add_fork(view, stream, source, command.fork, inherits_expiry=inherits)
        stream = _added(view, stream, command.fork.prefix, now)
    stream, signals = link_new_stream(view, _added(view, stream, command.content, now))
    view.put(STREAM, stream)
    if retention is not None:
        due = first_look(retention, now)
        view.put(RETENTION, RetentionRow(stream.scope, stream.id, retention.max_age_ms, retention.max_bytes, 0, due))
    elif view.get(RETENTION, (stream.scope,)) is not None:
        view.delete(RETENTION, (stream.scope,))
    return stream, signals


def _added(view: View, stream: StreamRow, content: Content, now: Now) -> StreamRow:
    """The stream with content at its end."""
    if not content.data:
        return stream
    chunk = new_chunk(stream, content.data, content.messages, now.ms)
    view.insert(CHUNK, chunk)
    return entered(stream, epoch_of(view))._replace(tail=chunk.end_at)


def _confirm(view: View, existing: StreamRow, command: Create, now: Now) -> DecisionResult:
    difference = _difference(view, existing, command)
    if difference is not None:
        return DecisionResult(Refusal("STREAM_EXISTS", f"The stream exists with another {difference}."))
    tail_epoch = epoch_at(existing, existing.tail)
    answer = Created(False, existing.content_type, existing.tail, bool(existing.closed), tail_epoch)
    return DecisionResult(answer, touches=use(existing, now))


def _difference(view: View, existing: StreamRow, command: Create) -> str | None:
    fork, names_expiry = command.fork, command.ttl_seconds is not None or command.expires_at is not None
    known = view.get(FORK, (existing.id,)) if existing.inherited >= 0 else None
    is_inherited = known is not None and fork is not None and not names_expiry
    kept = view.get(RETENTION, (command.scope,)) if existing.floor is not None else None
    retention = None if kept is None else Retention(kept.max_age_ms, kept.max_bytes)
    inherits_type = fork is not None and fork.inherits_type
    checks = (
        ("content type", inherits_type or same_media_type(existing.content_type, command.content_type)),
        ("time to live", is_inherited or existing.ttl_seconds == command.ttl_seconds),
        ("end of life", is_inherited or existing.expires_at == command.expires_at),
        ("state: one is open and the other closed", bool(existing.closed) == command.closed),
        ("retention", command.retention is None or command.retention == retention),
    )
    differs = next((name for name, equal in checks if not equal), None)
    return differs or fork_difference(known, fork, names_expiry=names_expiry)


def _new_row(command: Create, source: StreamRow | None, now: Now, epoch: int, *, has_retention: bool) -> StreamRow:
    content_type, expiry = command.content_type, (command.ttl_seconds, command.expires_at, command.expires_text)
    if source is not None and expiry == (None, None, None):
        expiry = (source.ttl_seconds, source.expires_at, source.expires_text)
    if source is not None and command.fork is not None and command.fork.inherits_type:
        content_type = source.content_type
    ttl_seconds, expires_at, expires_text = expiry
    return StreamRow(
        scope=command.scope,
        path=command.path,
        id=command.id,
        content_type=content_type,
        ttl_seconds=ttl_seconds,
        expires_at=expires_at,
        expires_text=expires_text,
        deadline=first_deadline(ttl_seconds, expires_at, now),
        created_at=now.ms,
        updated_at=now.ms,
        tail=0,
        closed=int(command.closed),
        last_seq=None,
        closer_id=None,
        closer_epoch=None,
        closer_seq=None,
        epoch=epoch,
        floor=0 if has_retention else None,
    )


def delete(view: View, command: Delete, now: Now) -> tuple[DecisionResult, Release | None]:
    """Delete a stream; its name is free at once, unless it has forks."""
    known = view.get(STREAM, (command.scope,))
    stream = living(known, now)
    if stream is None:
        return DecisionResult(missing(known)), None
    return DecisionResult(Deleted(), signals=(stream.id, *note_end(view, stream))), _end(view, stream, DELETED, now)


def expire(view: View, command: Expire, now: Now) -> tuple[DecisionResult, Release | None]:
    """Delete an expired stream, so long after its expiry that no lost soft change could have extended it."""
    stream = view.get(STREAM, (command.scope,))
    if stream is None or stream.gone or now.expiry_ms < stream.deadline + SWEEP_GRACE_MS:
        return DecisionResult(None), None
    return DecisionResult(None, signals=(stream.id, *note_end(view, stream))), _end(view, stream, EXPIRED, now)


def _end(view: View, stream: StreamRow, gone: int, now: Now) -> Release | None:
    if not stream.forks:
        return end_stream(view, stream, now)
    keep_for_forks(view, stream, gone)
    return None


def purge(view: View, command: Purge) -> DecisionResult:
    """Free rows of an ended stream. The row of a producer that belongs to a newer stream by now is kept."""
    for key in command.chunks:
        view.forget(CHUNK, key)
    for key in command.producers:
        row = view.get(PRODUCER, key)
        if row is not None and row.id == command.id:
            view.delete(PRODUCER, key)
    is_released = view.get(FORK, (command.id,)) is None
    if command.is_last and is_released and view.get(TOMBSTONE, (command.id,)) is not None:
        view.delete(TOMBSTONE, (command.id,))
    return DecisionResult(None)
