"""`client.events`: submit, read and follow events.

Promise: an event that was answered is committed once, however often it was retried: every attempt has the same id and
the same bytes. With the caller's own id it is one event even if this program crashes and submits it again. A follower
hands each event over once and in order; where its cursor is kept decides what a crash repeats (see `cursors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from semel.client.errors import (
    CallError,
    GoneError,
    InvalidArgumentError,
    NoAnswerError,
    NotFoundError,
    OutcomeUnknown,
    RefusedError,
    TooLargeError,
)
from semel.client.events.cursors import CursorStore, ValueCursor
from semel.client.events.errors import EventRejectedError
from semel.client.events.follow import (
    EPOCH_HEADER,
    EVENTS_PATH,
    MOST_PAGE_BYTES,
    AsyncEventFollower,
    EventFollower,
    read_page,
)
from semel.client.events.submission import (
    EventItemText,
    SubmissionLimits,
    body_of,
    first_batch,
    item_text,
    item_texts,
    learned_limits,
    names_of,
    smaller_limits,
    verdicts_of,
)
from semel.client.events.values import (
    START,
    CommittedEvent,
    Cursor,
    Event,
    EventDraft,
    EventsPage,
    Names,
    PartitionInfo,
    PartitionList,
    event_of,
    partitions_of,
)
from semel.client.identity import EventSubmission, Resolution
from semel.client.json_answer import facts_of, read
from semel.client.list_walk import ListWalk
from semel.client.retry import ENDLESS, ClientCaller, Patience, json_request
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientRequest
from semel.kernel.json.members import is_utf8

MOST_COMMITTED_ID = (1 << 53) - 1
PAGE_PARTITIONS = 1_000
UNSENT = "This event was not sent, because an earlier one has no answer: submit it again."


class AsyncEvents:
    """The events of one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller
        self._limits = SubmissionLimits()

    async def submit(
        self,
        event_type: str,
        data: Any = None,
        *,
        partitions: Names,
        id: str | None = None,  # noqa: A002 - the name that the protocol has
        if_watermark: int | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> CommittedEvent:
        """Commit an event once: `data` is its payload, as JSON. Without `id` it gets a new time-ordered UUID.

        Raises `EventRejectedError` if the server rejects it, `EventConflictError` if the id has other content, and
        `WatermarkMismatchError` if the last event of its partitions is not `if_watermark`.
        """
        item = item_text(EventDraft(event_type, data, partitions, id, if_watermark, members))
        [verdict] = await self._sent([item])
        if isinstance(verdict, EventRejectedError):
            raise verdict
        return verdict

    async def submit_many(self, drafts: Iterable[EventDraft]) -> list[CommittedEvent | CallError]:
        """Commit events in this order, each on its own. One verdict for each, in order.

        A rejected event is an `EventRejectedError` in the list; the others are not affected. If a request gets no
        definite answer before the retries end, its events are `OutcomeUnknown`, or `BusyError` if they were not
        committed, and those after them `NoAnswerError`: not sent. A refusal of the first request as a whole, for
        example for its credential, raises.
        """
        return await self.submit_items(item_texts(drafts))

    async def submit_items(
        self, items: Sequence[EventItemText], *, client_id: str | None = None
    ) -> list[CommittedEvent | CallError]:
        """`submit_many` for events in JSON, each with an id of its own: see `semel.client.events.item_texts`.

        `client_id` names their client, for a server without credentials.
        """
        left = items
        limits = self._limits
        verdicts: list[CommittedEvent | CallError] = []
        while left:
            batch = first_batch(left, limits)
            try:
                verdicts += await self._sent(batch, client_id)
            except RefusedError as error:
                smaller = smaller_limits(error, len(batch), limits)
                if smaller is not None:
                    self._limits, limits = learned_limits(error, self._limits), smaller
                    continue
                if not verdicts and not isinstance(error, TooLargeError):
                    raise
                verdicts += [error] * len(batch)
                if error.may_pass:
                    verdicts += _unsent(left[len(batch) :])
                    break
            except NoAnswerError as error:
                verdicts += _unanswered(error, batch) + _unsent(left[len(batch) :])
                break
            left, limits = left[len(batch) :], self._limits
        return verdicts

    async def _sent(
        self, items: Sequence[EventItemText], client_id: str | None = None
    ) -> list[CommittedEvent | EventRejectedError]:
        request = json_request("POST", EVENTS_PATH, body_of(items, client_id))
        identity = EventSubmission(items[0].id)
        return await self._caller.answer_as(lambda answer: verdicts_of(items, answer), request, identity)

    async def read(
        self,
        partitions: Names,
        *,
        since: Cursor | int = START,
        limit: int | None = None,
        to: int | None = None,
        types: Names = (),
    ) -> EventsPage:
        """A page of the events after a position, in order: up to `limit`, 500 by default, at most 1,000.

        `types` selects events by their type. While `has_more`, read again with `since=page.cursor` and
        `to=page.sync_to`. A cursor of a log that was restored from an older backup raises `EventsResetError`.
        """
        at = since if isinstance(since, Cursor) else Cursor(0, since)
        query = _query(partitions, types) + _given(limit=limit, to=to)
        return await read_page(self._caller, query, at, has_epoch=isinstance(since, Cursor))

    async def last(
        self, partitions: Names, count: int = 1, *, before: int | None = None, types: Names = ()
    ) -> EventsPage:
        """The last events of partitions, in order; with `before`, the last ones before that position."""
        query = _query(partitions, types) + _given(last=count, before=before)
        return await read_page(self._caller, query, START, has_epoch=False)

    async def get(self, event_id: str) -> Event:
        """The event of an id. Raises `NotFoundError`, or `GoneError` if retention has deleted its content."""
        path = f"{EVENTS_PATH}/id/{_quoted(event_id, 'The id of an event')}"
        answer = await self._caller.call(ClientRequest("GET", path, most_bytes=MOST_PAGE_BYTES))
        return read(lambda: event_of(facts_of(answer.body), int(answer.headers[EPOCH_HEADER])))

    async def partitions(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> PartitionList:
        """A page of the partitions whose names begin with `prefix`, in the order of their names."""
        query = _given(prefix=prefix or None, after=after or None, limit=limit)
        facts = await self._caller.facts(ClientRequest("GET", f"{EVENTS_PATH}/partitions?{urlencode(query)}"))
        return read(lambda: partitions_of(facts))

    def walk_partitions(self, prefix: str = "") -> ListWalk[PartitionInfo]:
        """All of `partitions`, page by page."""
        return ListWalk(
            lambda after: self.partitions(prefix, after=after, limit=PAGE_PARTITIONS), lambda page: page.partitions, ""
        )

    async def end(self, partitions: Names) -> Cursor:
        """The cursor behind the last event of now: follow from it to be handed only new events."""
        page = await self.read(partitions, since=MOST_COMMITTED_ID, limit=1)
        return Cursor(page.cursor.epoch, page.sync_to)

    def follow(
        self,
        partitions: Names,
        *,
        cursor: Cursor | CursorStore | int = START,
        types: Names = (),
        live: bool = True,
        patience: Patience = ENDLESS,
    ) -> AsyncEventFollower:
        """The events after a cursor, then new ones as they are committed; each once and in order.

        `cursor` is a value, a `FileCursor` or a `TransactionCursor`, or a `committed_id` of the log as it is now;
        `types` selects events by their type. It resumes after a lost connection, as long as `patience` allows; without
        `live` it ends at the end of the log. Events that the server has deleted or lost raise `HistoryGapError`.
        """
        has_epoch = not isinstance(cursor, int)
        at = Cursor(0, cursor) if isinstance(cursor, int) else cursor
        store = ValueCursor(at) if isinstance(at, Cursor) else at
        query = _query(partitions, types)
        return AsyncEventFollower(self._caller, query, store, patience, live=live, has_epoch=has_epoch)

    async def resolve(self, identity: EventSubmission) -> Resolution:
        """Whether an event is committed, without sending it again. It needs the right to read the event's partitions:
        without it, and once retention has deleted the event for a caller that may not read all, the answer is no.
        """
        try:
            found = await self.get(identity.event_id)
        except NotFoundError:
            return Resolution(identity, False, {})
        except GoneError as error:
            return Resolution(identity, True, dict(error.facts.get("details", {})))
        at = round(found.committed_at.timestamp() * 1_000)
        return Resolution(identity, True, {"committed_id": found.committed_id, "status_updated_at": at})


def _query(partitions: Names, types: Names) -> list[tuple[str, str]]:
    query = [("partition", name) for name in names_of(partitions)]
    query += [("type", name) for name in (names_of(types, "a type") if types else ())]
    if any(not is_utf8(name) for _, name in query):
        raise InvalidArgumentError("Names of partitions and types must be valid Unicode.")
    return query


def _given(**values: str | int | None) -> list[tuple[str, str]]:
    """The arguments that were given."""
    return [(name, str(value)) for name, value in values.items() if value is not None]


def _quoted(name: str, what: str) -> str:
    if not name or not is_utf8(name):
        raise InvalidArgumentError(f"{what} must be valid Unicode, and not empty.")
    return quote(name, safe="")


def _unanswered(error: NoAnswerError, batch: Sequence[EventItemText]) -> list[CallError]:
    """The verdicts on a request without a usable answer."""
    verdicts: list[CallError] = []
    for item in batch:
        if not error.is_unsettled:
            verdicts.append(error)
            continue
        one = OutcomeUnknown(str(error), EventSubmission(item.id))
        one.__cause__ = error
        verdicts.append(one)
    return verdicts


def _unsent(items: Sequence[EventItemText]) -> list[CallError]:
    """The verdicts on events after a request without a definite answer."""
    return [NoAnswerError(UNSENT, is_unsettled=False) for _ in items]


class BlockingEvents(BlockingCalls[AsyncEvents]):
    """The events of one server, from synchronous code."""

    def __init__(self, calls: AsyncEvents) -> None:
        super().__init__(calls)

    submit = blocking(AsyncEvents.submit)
    submit_many = blocking(AsyncEvents.submit_many)
    submit_items = blocking(AsyncEvents.submit_items)
    read = blocking(AsyncEvents.read)
    last = blocking(AsyncEvents.last)
    get = blocking(AsyncEvents.get)
    partitions = blocking(AsyncEvents.partitions)
    walk_partitions = blocking_iterator(AsyncEvents.walk_partitions)
    end = blocking(AsyncEvents.end)
    resolve = blocking(AsyncEvents.resolve)

    def follow(
        self,
        partitions: Names,
        *,
        cursor: Cursor | CursorStore | int = START,
        types: Names = (),
        live: bool = True,
        patience: Patience = ENDLESS,
    ) -> EventFollower:
        """The events after a cursor, then new ones as they are committed; each once and in order.

        `cursor` is a value, a `FileCursor` or a `TransactionCursor`, or a `committed_id` of the log as it is now;
        `types` selects events by their type. It resumes after a lost connection, as long as `patience` allows; without
        `live` it ends at the end of the log. Events that the server has deleted or lost raise `HistoryGapError`.
        """
        if isinstance(cursor, CursorStore) and cursor.is_async:
            raise InvalidArgumentError("The connection of this cursor is asynchronous: follow with AsyncClient.")
        return EventFollower(self._calls.follow(partitions, cursor=cursor, types=types, live=live, patience=patience))
