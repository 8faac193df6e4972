"""Retention: the front of a stream is dropped by age, by size, or by either; off by default.

The floor of a stream is the first position that is retained. It only rises, always to the end of an append. A read
below the floor is refused with the offset of the floor. Retention is a chore, so content may stay readable for up to
`MAX_INTERVAL_MS` longer than asked, and never shorter: at least `max_bytes` bytes, and all content younger than
`max_age_ms`, can be read.

A fork keeps what it inherited: the content below the floor of a stream that has forks is refused to its own readers,
and freed when it has no forks any more. A fork begins with the floor of its source and with the retention of its
source, unless its request names another.
"""

from __future__ import annotations

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.surfaces.streams.commands import Retention, Trim
from semel.surfaces.streams.tables import CHUNK, RETENTION, STREAM, RetentionRow

MIN_INTERVAL_MS = 1_000
MAX_INTERVAL_MS = 60_000
"""The time between two looks at a stream: a tenth of the age, and within these limits."""


def interval_ms(max_age_ms: int | None) -> int:
    """The time until a stream is looked at again."""
    if max_age_ms is None:
        return MAX_INTERVAL_MS
    return min(max(max_age_ms // 10, MIN_INTERVAL_MS), MAX_INTERVAL_MS)


def first_look(retention: Retention, now: Now) -> int:
    """When a new stream is looked at for the first time."""
    return now.expiry_ms + interval_ms(retention.max_age_ms)


def next_look(retention: RetentionRow, now: Now, *, is_busy: bool) -> int:
    """When a stream is looked at again: soon, if it had something to drop."""
    return now.expiry_ms + (MIN_INTERVAL_MS if is_busy else interval_ms(retention.max_age_ms))


def trim(view: View, command: Trim) -> DecisionResult:
    """Raise the floor, and free content below it unless forks need it. A crash leaves all of it or nothing of it."""
    stream, kept = view.get(STREAM, (command.scope,)), view.get(RETENTION, (command.scope,))
    if stream is None or kept is None or stream.id != command.id or kept.id != command.id:
        return DecisionResult(None)
    floor = max(stream.floor or 0, min(command.floor, stream.tail))
    if floor != stream.floor:
        view.put(STREAM, stream._replace(floor=floor))
    freed = kept.freed
    if not stream.forks and command.freed <= floor:
        freed = max(freed, command.freed)
        for key in command.chunks:
            view.forget(CHUNK, key)
    view.put(RETENTION, kept._replace(freed=freed, due_at=command.due_at))
    return DecisionResult(None)
