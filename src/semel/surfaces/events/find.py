"""Events by their identities: the id that the client gave, or the `committed_id`. Both count in the whole server."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from semel.engine.reading import Reading
from semel.kernel.verdict import Verdict
from semel.server.auth.principals import Role
from semel.server.writes.lookup import FoundWrite, ProbeBudget, WriteQuery, path_of
from semel.surfaces.events.limits import MAX_ID_BYTES
from semel.surfaces.events.lookups import PrunedEvent, event_by_id
from semel.surfaces.events.tables import EVENT, EventRow

SURFACE = "events"


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The event of this id; then the event at this position. Of a pruned event the partitions are not known any more,
    so that only a caller that may read all of them is told of it.
    """
    if len(query.id) <= MAX_ID_BYTES:
        named = event_by_id(reading, query.id)
        if isinstance(named, PrunedEvent) and query.place is None and _reads_all(query):
            yield _found("event_id", named, None, _pruned(named))
        elif isinstance(named, EventRow) and _is_visible(query, named):
            yield _of_row("event_id", named)
    row = None if query.number is None else reading.get(EVENT, (query.number,))
    if row is not None and _is_visible(query, row):
        yield _of_row("committed_id", row)


def _reads_all(query: WriteQuery) -> bool:
    return query.caller.has(Role.READ) and (b"", True) in query.caller.reach(SURFACE)


def _is_visible(query: WriteQuery, row: EventRow) -> bool:
    """Whether the caller may read one of the partitions, and the event is in the partition that the query names."""
    names = [name.encode() for name in orjson.loads(row.partitions)]
    may_read = any(query.caller.may(Role.READ, SURFACE, name) for name in names)
    return may_read and (query.place is None or query.place in names)


def _of_row(identity: str, row: EventRow) -> FoundWrite:
    effect = {"kind": "event", "path": path_of("/v1/events/id/", row.id), "committed_id": row.committed_id}
    effect |= {"id": row.id.decode(), "partitions": orjson.loads(row.partitions)}
    return _found(identity, row, row.client_id.decode(), effect)


def _pruned(event: PrunedEvent) -> dict[str, object]:
    return {"kind": "event", "path": None, "committed_id": event.committed_id, "pruned": True}


def _found(identity: str, event: EventRow | PrunedEvent, client: str | None, effect: dict[str, object]) -> FoundWrite:
    answer = {"verdict": Verdict.REPLAY.value, "status": 200, "committed_id": event.committed_id}
    key = event_retries(event.committed_id)
    return FoundWrite(SURFACE, identity, "", event.committed_at, client, effect, answer, None, key)


def event_retries(committed_id: int) -> bytes:
    """The key of the retries of an event."""
    return b"%d" % committed_id
