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
from semel.surfaces.events.reading import head_of
from semel.surfaces.events.tables import EVENT, EVENT_PARTITION, EventRow

SURFACE = "events"
PRUNED_HINT = "The event of this id was pruned, and its partitions are not known any more: leave out `in`."
POSITION_HINT = "Events at this position were pruned: give the id of the event, without `in`."


def find(reading: Reading, query: WriteQuery, budget: ProbeBudget) -> Iterator[FoundWrite]:
    """The event of this id; then the event at this position. Of a pruned event the partitions are not known any more,
    so that only a caller that may read all of them is told of it.
    """
    if len(query.id) <= MAX_ID_BYTES:
        named = event_by_id(reading, query.id)
        if isinstance(named, PrunedEvent) and _reads_all(query):
            if query.place is None:
                yield _found("event_id", named, None, _pruned(named))
            elif _has_partition(reading, query):
                budget.end(PRUNED_HINT)
        elif isinstance(named, EventRow) and _is_visible(query, named):
            yield _of_row("event_id", named)
    row = None if query.number is None else reading.get(EVENT, (query.number,))
    if row is not None and _is_visible(query, row):
        yield _of_row("committed_id", row)
    elif row is None and _may_be_pruned(reading, query):
        budget.end(POSITION_HINT)


def _may_be_pruned(reading: Reading, query: WriteQuery) -> bool:
    """Whether an event that the caller may read may have been at the position, and was pruned."""
    is_below = query.number is not None and 0 < query.number <= head_of(reading).pruned_to
    return is_below and _reads_all(query) and _has_partition(reading, query)


def _has_partition(reading: Reading, query: WriteQuery) -> bool:
    """Whether the query names a partition that there is or was, or none."""
    return query.place is None or reading.get(EVENT_PARTITION, (query.place,)) is not None


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
