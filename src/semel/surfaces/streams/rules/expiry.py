"""When a stream expires, and how use extends its time to live.

A stream with a time to live expires when it has not been used for that time; a stream with a fixed end expires at that
time. The expiry is stored and compared with the time of the decision, so it does not depend on the sweeper. Use extends
the time to live by a soft change, of which a crash can lose the last second; the sweeper waits longer than that.
"""

from __future__ import annotations

from semel.engine.contract import View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER
from semel.store.protocol import Touch
from semel.surfaces.streams.tables import STREAM, TOMBSTONE, StreamRow, TombstoneRow

SWEEP_GRACE_MS = 10_000


NOT_FOUND = Refusal("STREAM_NOT_FOUND", "There is no stream of this name; create it with PUT first.")
GONE = Refusal("STREAM_GONE", "This stream was deleted or has expired; only its forks can be read.")


def is_alive(stream: StreamRow, now: Now) -> bool:
    """Whether the stream was not deleted and has not expired."""
    return now.expiry_ms < stream.deadline and not stream.gone


def living(stream: StreamRow | None, now: Now) -> StreamRow | None:
    """The stream, if there is one and it has not expired."""
    return stream if stream is not None and is_alive(stream, now) else None


def missing(stream: StreamRow | None) -> Refusal:
    """The refusal of a request for a stream that is not living: gone while it has forks, otherwise not found."""
    return GONE if stream is not None and stream.forks else NOT_FOUND


def first_deadline(ttl_seconds: int | None, expires_at: int | None, now: Now) -> int:
    """The expiry of a stream that is created now."""
    if ttl_seconds is not None:
        return min(now.ms + ttl_seconds * 1_000, NEVER - 1)
    return NEVER if expires_at is None else expires_at


def use(stream: StreamRow, now: Now) -> tuple[Touch, ...]:
    """The soft change that a use of the stream makes."""
    if stream.ttl_seconds is None:
        return ()
    deadline = first_deadline(stream.ttl_seconds, None, now)
    return (Touch(STREAM, (stream.scope,), "deadline", deadline, "id", stream.id),)


def leave_tombstone(view: View, stream: StreamRow, now: Now) -> None:
    """Leave a tombstone of a stream that ends; its other rows are freed later, when it has no forks."""
    view.insert(TOMBSTONE, TombstoneRow(stream.id, now.ms, stream.forks))
