"""Create (PUT): creates a stream, or confirms that an equal one exists."""

from __future__ import annotations

from semel.contracts.epoch import epoch_of
from semel.contracts.streams.commands import Create, Created
from semel.contracts.streams.media_type import same_media_type
from semel.contracts.streams.rules.epochs import epoch_at
from semel.contracts.streams.rules.life import bury, first_deadline, living, use
from semel.contracts.streams.tables import CHUNK, STREAM, ChunkRow, StreamRow
from semel.engine.contract import Outcome, View
from semel.kernel.clock import Now
from semel.kernel.errors import Problem


def create(view: View, command: Create, now: Now) -> Outcome:
    """An existing stream is judged by its configuration alone; a new one takes the body as its first content."""
    known = view.get(STREAM, (command.scope,))
    existing = living(known, now)
    if existing is not None:
        return _confirm(existing, command, now)
    if command.content.flaw is not None:
        return Outcome(command.content.flaw)
    if known is not None:
        bury(view, known, now)
    stream = _new_row(command, now, epoch_of(view))
    view.put(STREAM, stream)
    if command.content.data:
        content = command.content
        view.insert(CHUNK, ChunkRow(stream.id, stream.tail, content.data, content.messages, now.ms))
    return Outcome(Created(True, stream.content_type, stream.tail, command.closed, stream.epoch))


def _confirm(existing: StreamRow, command: Create, now: Now) -> Outcome:
    difference = _difference(existing, command)
    if difference is not None:
        return Outcome(Problem("STREAM_EXISTS", f"The stream exists with another {difference}."))
    tail_epoch = epoch_at(existing, existing.tail)
    answer = Created(False, existing.content_type, existing.tail, bool(existing.closed), tail_epoch)
    return Outcome(answer, touches=use(existing, now))


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
