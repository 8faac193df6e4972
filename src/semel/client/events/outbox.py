"""A durable outbox of events: an event is written down before it is sent, and sent until the server has answered.

It is an `Outbox` of `semel.once` whose messages are events. They are in a SQLite file, or in a table of the
application's PostgreSQL; with `using=` an event is written in the application's own transaction, so it is sent if and
only if that commits. Events are sent one at a time, in the order in which they were written down. The table is not that
of other messages: another outbox would send an event without the credential, and take its rejection for delivered.

| a crash | then |
|---|---|
| before `submit` returns, or before the transaction commits | there is no event |
| after it | the next process that flushes or runs the outbox sends it, with the same id: it is committed once |
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from semel.client.client import Client
from semel.client.errors import BadAnswerError, NoAnswerError, RefusedError
from semel.client.events.errors import EventRejectedError
from semel.client.events.follow import EVENTS_PATH
from semel.client.events.submission import EventItemText, item_of, verdicts_of
from semel.client.events.values import EventDraft, Names
from semel.client.retry import json_request
from semel.client.transport.network import finished
from semel.once.dispatcher import Flushed
from semel.once.message_table import ddl
from semel.once.messages import Delivery, MessageStatus, OutboxMessage
from semel.once.outbox import Outbox
from semel.once.units import Duration

TABLE = "semel_event_outbox"
EVENTS_URL = f"http://semel{EVENTS_PATH}"
"""A part of what makes two events the same, and no address: the server may have another one when they are sent."""
ENDLESS: Duration = "36500d"
"""An event is sent again without an end: a server remembers its id forever, so a retry has no second effect."""
LEAST_SECONDS = 0.1
ABOUT_THE_EVENT = frozenset({400, 413, 422})
"""Refusals of a request that depend only on its event."""
FORBIDDEN = "forbidden"


class EventOutbox:
    """Events to submit, in a file or in a table of a PostgreSQL, which `ddl` creates.

    `client` is the server that they are for; by default the one that the environment names. `order_by` names the order
    that all events of this outbox share; None sends them at once, in any order. A rejected event is set aside as
    `poison`, and holds back the events after it until it is dropped or retried. Any other failure is retried without an
    end: a proxy's answer and the refusal of a credential say nothing about an event. `status` tells the last one.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        client: Client | None = None,
        *,
        table: str = TABLE,
        order_by: str | None = "events",
        timeout: Duration = "30s",
        lease: Duration = "60s",
        longest_wait: Duration = "30s",
    ) -> None:
        self._client = Client() if client is None else client
        self._is_own_client = client is None
        self._order_by = order_by
        self._box = Outbox(
            place,
            table=table,
            timeout=timeout,
            lease=lease,
            longest_wait=longest_wait,
            give_up_after=ENDLESS,
            keys_kept=ENDLESS,
            transport=self._delivered,
        )

    @staticmethod
    def ddl(dialect: str = "postgresql", table: str = TABLE) -> str:
        """SQL that creates the table, for your own migrations; `dialect` is `postgresql` or `sqlite`."""
        return ddl(dialect, table)

    def submit(
        self,
        event_type: str,
        data: Any = None,
        *,
        partitions: Names,
        id: str | None = None,  # noqa: A002 - the name that the protocol has
        members: Mapping[str, Any] | None = None,
        using: Any = None,
    ) -> str:
        """Write an event down and return its id. It is on disk then, or commits with the transaction of `using`.

        The same id with the same content is the same event; other content raises `KeyMismatch`.
        """
        item = item_of(EventDraft(event_type, data, partitions, id, None, members))
        return self._box.post(EVENTS_URL, using=using, **self._message(item)).key

    async def submit_async(
        self,
        event_type: str,
        data: Any = None,
        *,
        partitions: Names,
        id: str | None = None,  # noqa: A002 - the name that the protocol has
        members: Mapping[str, Any] | None = None,
        using: Any = None,
    ) -> str:
        """`submit` for an asynchronous connection or session. Without one, a thread writes to the file."""
        item = item_of(EventDraft(event_type, data, partitions, id, None, members))
        return (await self._box.post_async(EVENTS_URL, using=using, **self._message(item))).key

    def flush(self, timeout: Duration = "10s") -> Flushed:
        """Send until no event can be sent, or until the timeout."""
        return self._box.flush_sync(timeout)

    async def flush_async(self, timeout: Duration = "10s") -> Flushed:  # noqa: ASYNC109 - attempts continue after it
        """`flush` in a thread."""
        return await self._box.flush(timeout)

    def run(self) -> Flushed:
        """Send events until `stop` is called from another thread."""
        return self._box.run()

    def stop(self) -> None:
        """End every `run` and `flush` after the attempts that are under way."""
        self._box.stop()

    def status(self, event_id: str) -> MessageStatus | None:
        """The state of an event; None if there is none, it was dropped, or committed more than 7 days ago."""
        return self._box.status(event_id)

    def events(self) -> Iterator[MessageStatus]:
        """The state of all events that are kept, in the order in which they were written down."""
        return self._box.messages()

    def retry(self, event_id: str) -> bool:
        """Send a rejected event again. Returns False if it is committed, being sent or not there."""
        return self._box.retry(event_id)

    def drop(self, event_id: str) -> bool:
        """Delete an event that is not committed. Returns False if it is committed, being sent or not there."""
        return self._box.drop(event_id)

    def close(self) -> None:
        """Wait for attempts that are under way, and close the file."""
        self._box.close()
        if self._is_own_client:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _message(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"json": {"events": [item]}, "key": item["id"], "order_by": self._order_by}

    def _delivered(self, message: OutboxMessage, deadline: float) -> Delivery:
        """Make one attempt, with the credential of the client. A crash here sends the event again, with the same id."""
        transport = self._client.caller.transport
        seconds = max(LEAST_SECONDS, deadline - time.monotonic())
        try:
            answer = finished(transport.request(json_request("POST", EVENTS_PATH, message.body), seconds))
            if answer.status != 200:
                return _refused(self._client.caller.refused(answer))
            [verdict] = verdicts_of([EventItemText(message.key, message.body)], answer)
        except NoAnswerError as error:
            return Delivery(error=str(error), is_seen=error.is_unsettled)
        except BadAnswerError as error:
            return Delivery(error=str(error))
        if isinstance(verdict, EventRejectedError):
            return _refused(verdict)
        return Delivery(answer.status)


def _refused(refusal: RefusedError) -> Delivery:
    """Final is only Semel's own refusal of the event itself."""
    is_final = refusal.status in ABOUT_THE_EVENT and refusal.code not in ("", FORBIDDEN) and not refusal.may_pass
    # The outbox takes other statuses from 300 to 499 for final, so a passing refusal is told by its sentence alone.
    return Delivery(refusal.status if is_final else None, refusal.retry_after, str(refusal), is_final=is_final)
