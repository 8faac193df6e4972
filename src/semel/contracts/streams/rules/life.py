"""Lifetime of a stream: fixed and sliding expiry.

A stream with a time to live ends when it was not used for that long; one with a fixed end ends then. The end is a
stored time that is compared with the decision's: whether the sweeper has come by makes no difference. Use moves the
window softly, so a crash may take back the last second of it; the sweeper waits longer than that.
"""

from __future__ import annotations

from semel.contracts.streams.tables import GRAVE, STREAM, GraveRow, StreamRow
from semel.engine.contract import View
from semel.kernel.clock import Now
from semel.kernel.retention import NEVER
from semel.store.protocol import Touch

SWEEP_GRACE_MS = 10_000


def is_alive(stream: StreamRow, now: Now) -> bool:
    """Whether the stream has not ended."""
    return now.expiry_ms < stream.deadline


def living(stream: StreamRow | None, now: Now) -> StreamRow | None:
    """The stream, if there is one and it has not ended."""
    return stream if stream is not None and is_alive(stream, now) else None


def first_deadline(ttl_seconds: int | None, expires_at: int | None, now: Now) -> int:
    """The end of a stream made now."""
    if ttl_seconds is not None:
        return min(now.ms + ttl_seconds * 1_000, NEVER - 1)
    return NEVER if expires_at is None else expires_at


def use(stream: StreamRow, now: Now) -> tuple[Touch, ...]:
    """The soft change that a use of the stream brings about."""
    if stream.ttl_seconds is None:
        return ()
    deadline = first_deadline(stream.ttl_seconds, None, now)
    return (Touch(STREAM, (stream.scope,), "deadline", deadline, "id", stream.id),)


def bury(view: View, stream: StreamRow, now: Now) -> None:
    """End this life and leave a tombstone; its rows are freed later."""
    view.insert(GRAVE, GraveRow(stream.id, now.ms))
