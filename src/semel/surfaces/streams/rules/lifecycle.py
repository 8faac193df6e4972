"""PUT, DELETE and expiry: create a stream or confirm an equal one, delete it, and free the rows of deleted streams."""

from __future__ import annotations

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.surfaces.epoch import epoch_of
from semel.surfaces.streams.commands import Create, Created, Delete, Deleted, Expire, Purge
from semel.surfaces.streams.rules.append import NOT_FOUND
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS, first_deadline, leave_tombstone, living, use
from semel.surfaces.streams.rules.media_type import same_media_type
from semel.surfaces.streams.rules.offsets import epoch_at
from semel.surfaces.streams.tables import CHUNK, PRODUCER, STREAM, TOMBSTONE, ChunkRow, StreamRow


def create(view: View, command: Create, now: Now) -> DecisionResult:
    """Create a stream with the body as its first content, or compare an existing stream by its configuration only."""
    known = view.get(STREAM, (command.scope,))
    existing = living(known, now)
    if existing is not None:
        return _confirm(existing, command, now)
    if command.content.flaw is not None:
        return DecisionResult(command.content.flaw)
    if known is not None:
        leave_tombstone(view, known, now)
    stream = _new_row(command, now, epoch_of(view))
    view.put(STREAM, stream)
    if command.content.data:
        content = command.content
        view.insert(CHUNK, ChunkRow(stream.id, stream.tail, content.data, content.messages, now.ms))
    return DecisionResult(Created(True, stream.content_type, stream.tail, command.closed, stream.epoch))


def _confirm(existing: StreamRow, command: Create, now: Now) -> DecisionResult:
    difference = _difference(existing, command)
    if difference is not None:
        return DecisionResult(Refusal("STREAM_EXISTS", f"The stream exists with another {difference}."))
    tail_epoch = epoch_at(existing, existing.tail)
    answer = Created(False, existing.content_type, existing.tail, bool(existing.closed), tail_epoch)
    return DecisionResult(answer, touches=use(existing, now))


def _difference(existing: StreamRow, command: Create) -> str | None:
    checks = (
        ("content type", same_media_type(existing.content_type, command.content_type)),
        ("time to live", existing.ttl_seconds == command.ttl_seconds),
        ("end of life", existing.expires_at == command.expires_at),
        ("state: one is open and the other closed", bool(existing.closed) == command.closed),
    )
    return next((name for name, equal in checks if not equal), None)


def _new_row(command: Create, now: Now, epoch: int) -> StreamRow:
    return StreamRow(
        scope=command.scope,
        path=command.path,
        id=command.id,
        content_type=command.content_type,
        ttl_seconds=command.ttl_seconds,
        expires_at=command.expires_at,
        expires_text=command.expires_text,
        deadline=first_deadline(command.ttl_seconds, command.expires_at, now),
        created_at=now.ms,
        updated_at=now.ms,
        tail=len(command.content.data),
        closed=int(command.closed),
        last_seq=None,
        closer_id=None,
        closer_epoch=None,
        closer_seq=None,
        epoch=epoch,
    )


def delete(view: View, command: Delete, now: Now) -> DecisionResult:
    """Delete a stream; its name is free at once."""
    stream = living(view.get(STREAM, (command.scope,)), now)
    if stream is None:
        return DecisionResult(NOT_FOUND)
    leave_tombstone(view, stream, now)
    view.delete(STREAM, (command.scope,))
    return DecisionResult(Deleted(), signals=(stream.id,))


def expire(view: View, command: Expire, now: Now) -> DecisionResult:
    """Delete an expired stream, so long after its expiry that no lost soft change could have extended it."""
    stream = view.get(STREAM, (command.scope,))
    if stream is None or now.expiry_ms < stream.deadline + SWEEP_GRACE_MS:
        return DecisionResult(None)
    leave_tombstone(view, stream, now)
    view.delete(STREAM, (command.scope,))
    return DecisionResult(None, signals=(stream.id,))


def purge(view: View, command: Purge) -> DecisionResult:
    """Free rows of an ended stream. The row of a producer that belongs to a newer stream by now is kept."""
    for key in command.chunks:
        view.forget(CHUNK, key)
    for key in command.producers:
        row = view.get(PRODUCER, key)
        if row is not None and row.id == command.id:
            view.delete(PRODUCER, key)
    if command.is_last and view.get(TOMBSTONE, (command.id,)) is not None:
        view.delete(TOMBSTONE, (command.id,))
    return DecisionResult(None)
