"""The events of a consumer group for one member, one after another.

An event is acknowledged when the next one is asked for. A crash before that leaves it with its lease; when the lease
has ended, the event is handed over again, with `deliveries` raised. If the lease ends during the handling of an event,
that event and the rest of its batch are dropped here, and are handed over again to any member.

A server may answer a fetch before its time, for example because too many wait. So fetches without events are at least a
second apart.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from semel.client.errors import ConflictError, NoAnswerError, NotFoundError
from semel.client.events.errors import EventsPrunedError
from semel.client.events.group_values import EventLease, GroupEvent
from semel.client.events.submission import new_event_id
from semel.client.events.values import START, Cursor

if TYPE_CHECKING:
    from semel.client.events.groups import AsyncEventGroups

LEASE_ENDED = "lease_ended"
LEAST_SECONDS = 1.0
"""Seconds from one fetch without events to the next."""
ROUNDED_SECONDS = 0.001
"""The server counts in milliseconds."""


class AsyncGroupConsumer:
    """Iterator over the events of a group: `async for one in client.events.groups.consume("billing", "worker-1")`."""

    def __init__(
        self, groups: AsyncEventGroups, name: str, member: str, batch: int | None, wait: float, ends: bool
    ) -> None:
        self._groups = groups
        self._name, self._member = name, member
        self._batch, self._wait, self._ends = batch, wait, ends
        self._fetch_id = self._lease_id = new_event_id()
        """The ids of the next fetch and of the one that has the lease: equal if that one is to be repeated."""
        self._lease: EventLease | None = None
        self._left: deque[GroupEvent] = deque()
        self._current: GroupEvent | None = None
        self._position: Cursor = START
        self._idle_since: float | None = None
        """When the first of the fetches without events began."""
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupEvent:
        """The next event; the one before is acknowledged.

        Raises `EventsPrunedError` where retention has deleted events of the group; iterate again to go on.
        """
        await self._settle_current()
        while not self._left:
            if self._is_closed or not await self._fetch():
                raise StopAsyncIteration
        self._current = self._left.popleft()
        self._position = self._current.event.cursor
        return self._current

    async def nack(self, *, delay: float = 0.0, reason: str | None = None) -> None:
        """Give the last event back: it is handed over again, after `delay` seconds. In strict order the events behind
        it in its partitions go back too."""
        event, lease = self._current, self._lease
        if event is None or lease is None:
            return
        self._current = None
        # The same fetch again tells which events of the lease are still held.
        self._left.clear()
        self._fetch_id = self._lease_id
        try:
            await self._groups.nack(lease, [event], delay=delay, reason=reason)
        except ConflictError as error:
            if error.code != LEASE_ENDED:
                raise

    async def extend(self) -> None:
        """Begin the time of the lease anew, for an event whose handling takes long."""
        if self._lease is not None:
            await self._groups.extend(self._lease)

    async def aclose(self) -> None:
        """End it; events of the batch that were not handed over are given back. The last event is not acknowledged:
        ask for the next one first, or give it back."""
        self._is_closed = True
        left, self._left = list(self._left), deque()
        if left and self._lease is not None:
            try:
                await self._groups.nack(self._lease, left)
            except (ConflictError, NoAnswerError, NotFoundError):
                return  # they come again when the lease has ended, unless the group was deleted

    async def _settle_current(self) -> None:
        if self._current is None or self._lease is None:
            return
        try:
            await self._groups.ack(self._lease, [self._current])
        except ConflictError as error:
            if error.code != LEASE_ENDED:
                raise
            self._left.clear()
        self._current = None

    async def _fetch(self) -> bool:
        """Lease events; False if the iterator ends. A fetch without an answer is repeated with the same id."""
        fetch_id, began = self._fetch_id, self._groups.network.now()
        is_again = fetch_id == self._lease_id and self._lease is not None
        wait = 0.0 if is_again else self._wait
        lease = await self._groups.fetch(self._name, self._member, batch=self._batch, wait=wait, fetch_id=fetch_id)
        self._fetch_id = new_event_id()
        if is_again and not lease.events:
            return True
        self._lease, self._lease_id = lease, fetch_id
        self._left.extend(lease.events)
        if lease.events:
            self._idle_since = None
        if lease.pruned_to is not None and not is_again:
            raise EventsPrunedError(self._position, self._position.epoch, lease.pruned_to, has_snapshot=False)
        return bool(lease.events) or await self._rested(began)

    async def _rested(self, began: float) -> bool:
        """Wait for the time of the next fetch after one without events; False if the iterator ends."""
        network = self._groups.network
        self._idle_since = began if self._idle_since is None else self._idle_since
        left = self._idle_since + self._wait - network.now()
        if self._ends and left <= ROUNDED_SECONDS:
            self._idle_since = None
            return False
        rest = began + LEAST_SECONDS - network.now()
        if rest > 0:
            await network.sleep(min(rest, left) if self._ends else rest)
        return True
