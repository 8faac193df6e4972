"""Reads of events over HTTP that end: pages in both directions, one event by its id, and the list of partitions."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import orjson

from semel.kernel.errors import Refused
from semel.server.auth.principals import Principal, Role
from semel.server.http.answer import JSON, NO_STORE, Answer
from semel.surfaces.epoch import epoch_of
from semel.surfaces.events.http_refusals import EPOCH_HEADER
from semel.surfaces.events.limits import MAX_COMMITTED_ID, MAX_ID_BYTES
from semel.surfaces.events.lookups import PartitionQuery, PrunedEvent, event_by_id, listed_partitions
from semel.surfaces.events.reading import (
    BackwardQuery,
    EventPage,
    HistoryQuery,
    checked_backward,
    checked_history,
)
from semel.surfaces.events.rules.epochs import CursorStatus
from semel.surfaces.events.service import EventService
from semel.surfaces.events.wire.dialect import WIDEST_PAGE
from semel.surfaces.events.wire.http_messages import EventQueryString, EventReadRequest, ReadOrder, partitions_payload
from semel.surfaces.events.wire.message_size import page_budget
from semel.surfaces.events.wire.messages import EventIdentity, bad_request, reset_error
from semel.surfaces.events.wire.snake_case import event_payload, page_payload

_WIDEST_BACKWARDS = WIDEST_PAGE._replace(next_before=MAX_COMMITTED_ID)
_NOT_FOUND = "There is no event with this id that this credential may read."


class EventReads:
    """Answers the reads of one node."""

    def __init__(self, service: EventService) -> None:
        self._service = service
        self._engine = service.context.engine

    async def page(self, asked: EventReadRequest) -> Answer:
        """One page of partitions that the caller may read."""
        policy = self._service.policy
        if asked.order is ReadOrder.FORWARDS:
            status, page = await self._forwards(asked)
        else:
            status, page = await self._backwards(asked)
        cursor = asked.since if asked.before is None else asked.before
        self._service.cursors.note(status, cursor)
        if status.reset is not None:
            raise reset_error(status.reset)
        return _json(page_payload(asked.names, page, policy))

    async def _forwards(self, asked: EventReadRequest) -> tuple[CursorStatus, EventPage]:
        wanted = HistoryQuery(asked.names, asked.since, asked.log_epoch, asked.to, asked.limit, asked.types)
        budget = self._budget(asked, WIDEST_PAGE)
        return await self._engine.read(lambda reading: checked_history(reading, wanted, budget, event_payload))

    async def _backwards(self, asked: EventReadRequest) -> tuple[CursorStatus, EventPage]:
        wanted = BackwardQuery(asked.names, asked.since, asked.before, asked.log_epoch, asked.limit, asked.types)
        budget = self._budget(asked, _WIDEST_BACKWARDS)
        status, page = await self._engine.read(lambda reading: checked_backward(reading, wanted, budget, event_payload))
        if asked.order is ReadOrder.LAST:
            page = page._replace(events=page.events[::-1], texts=page.texts[::-1])
        return status, page

    def _budget(self, asked: EventReadRequest, widest: EventPage) -> int:
        """The bytes of the events of a page."""
        policy = self._service.policy
        return page_budget(len(page_payload(asked.names, widest, policy)), policy.limits)

    async def event(self, principal: Principal, who: EventIdentity, raw_id: bytes) -> Answer:
        """The event of an id, if the caller may read one of its partitions.

        Of a pruned event the partitions are not known any more, so only a caller that may read all is told of it.
        """
        name = unquote_to_bytes(raw_id)
        _refuse_id(name)
        found, epoch = await self._engine.read(lambda reading: (event_by_id(reading, name), epoch_of(reading)))
        if isinstance(found, PrunedEvent) and (b"", True) in self._service.reach(principal):
            facts = {"committed_id": found.committed_id, "status_updated_at": found.committed_at}
            raise Refused("pruned", "This event was committed, and its content was removed by retention.", facts)
        if found is None or isinstance(found, PrunedEvent):
            raise Refused("not_found", _NOT_FOUND)
        if not any(map(who.may_read, orjson.loads(found.partitions))):
            raise Refused("not_found", _NOT_FOUND)
        return Answer(200, [JSON, NO_STORE, (EPOCH_HEADER, b"%d" % epoch)], event_payload(found))

    async def partitions(self, principal: Principal, query: EventQueryString) -> Answer:
        """One page of the partitions that the caller may read."""
        if not principal.has(Role.READ):
            raise Refused("forbidden", "This credential may not read events.")
        reach = self._service.reach(principal)
        wanted = PartitionQuery(reach, query.name("prefix"), query.name("after"), query.page_size())
        page = await self._engine.read(lambda reading: listed_partitions(reading, wanted))
        return _json(partitions_payload(page, self._service.policy.limits))


def _refuse_id(name: bytes) -> None:
    try:
        name.decode()
    except UnicodeDecodeError:
        raise bad_request("the id must be percent-encoded UTF-8") from None
    if not 0 < len(name) <= MAX_ID_BYTES:
        raise bad_request(f"the id has {len(name)} bytes, and 1 to {MAX_ID_BYTES} are allowed")


def _json(body: bytes) -> Answer:
    return Answer(200, [JSON, NO_STORE], body)
