"""`client.events.groups`: consumer groups, whose cursor the server keeps. Members share the events of some partitions.

Promise: each event is handed over until a member has acknowledged it: at least once. A fetch whose answer was lost is
repeated with the same id and gets the same events. A member that dies loses its lease, and its events go to another.
After `max_deliveries` an event is parked, where an operator finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

from semel.client.errors import InvalidArgumentError
from semel.client.events.consumer import AsyncGroupConsumer
from semel.client.events.group_values import (
    EventLease,
    GroupEvent,
    GroupInfo,
    GroupList,
    ParkedEvent,
    ParkedList,
    group_of,
    lease_of,
    parked_of,
)
from semel.client.events.submission import names_of, new_event_id
from semel.client.events.values import Names
from semel.client.identity import NamedCall
from semel.client.json_answer import Facts, flag, read
from semel.client.list_walk import ListWalk
from semel.client.retry import ClientCaller, json_request
from semel.client.sync_calls import BlockingCalls, BlockingIterator, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientRequest
from semel.client.transport.network import Network
from semel.kernel.json.fragment import dump
from semel.kernel.json.members import is_utf8

T = TypeVar("T")
GROUPS_PATH = "/v1/events/groups"
MOST_ANSWER_BYTES = 1 << 30


def group_path(name: str) -> str:
    """The path of a group. Raises InvalidArgumentError for a name that has none."""
    if not name or not is_utf8(name):
        raise InvalidArgumentError("The name of a group must be valid Unicode, and not empty.")
    return f"{GROUPS_PATH}/{quote(name, safe='')}"


def milliseconds(seconds: float) -> int:
    """A duration as the server takes it."""
    return round(seconds * 1_000)


class AsyncEventGroups:
    """The consumer groups of one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    @property
    def network(self) -> Network:
        """The network of the calls."""
        return self._caller.transport.network

    async def create(
        self,
        name: str,
        partitions: Names,
        *,
        order: Literal["strict", "unordered"] = "strict",
        lease: float = 30.0,
        max_deliveries: int = 10,
        max_in_flight: int = 100,
        batch: int = 10,
        max_parked: int = 100,
        start: Literal["beginning", "now"] | int = "beginning",
    ) -> GroupInfo:
        """Create a group, or confirm that an equal one exists; another definition raises `ConflictError`.

        `strict` hands over the events of a partition one lease after another; `unordered` to all members at once.
        `lease` is in seconds. `max_deliveries` of 0 never parks an event.
        """
        body: dict[str, Any] = {"partitions": names_of(partitions), "order": order, "lease_ms": milliseconds(lease)}
        body |= {"max_deliveries": max_deliveries, "max_in_flight": max_in_flight, "batch": batch}
        body |= {"max_parked": max_parked, "start": start}
        return await self._send(group_of, "PUT", group_path(name), body)

    async def get(self, name: str) -> GroupInfo:
        """A group: its definition, its position and its counts."""
        return await self._caller.facts_as(group_of, ClientRequest("GET", group_path(name)))

    async def list(self, *, after: str = "", limit: int = 50) -> GroupList:
        """A page of the groups, in the order of their names."""
        facts = await self._caller.facts(
            ClientRequest("GET", f"{GROUPS_PATH}?{urlencode({'after': after, 'limit': limit})}")
        )
        return read(
            lambda: GroupList(
                [group_of(one) for one in facts["groups"]], facts["next_after"] if facts["has_more"] else None
            )
        )

    def walk(self) -> ListWalk[GroupInfo]:
        """All of `list`, page by page."""
        return ListWalk(lambda after: self.list(after=after), lambda page: page.groups, "")

    async def delete(self, name: str) -> bool:
        """Delete a group, its position and its parked events; the events stay. False if there was none."""
        return await self._send(lambda facts: flag(facts, "deleted"), "DELETE", group_path(name), None)

    async def reset(self, name: str, start: Literal["beginning", "now"] | int) -> GroupInfo:
        """Set the position of a group: every lease ends."""
        body = {"start": start, "reset_id": new_event_id()}
        return await self._send(group_of, "POST", f"{group_path(name)}/reset", body)

    async def fetch(
        self, name: str, member: str, *, batch: int | None = None, wait: float = 0.0, fetch_id: str | None = None
    ) -> EventLease:
        """Lease the next events for a member; waits up to `wait` seconds, at most 30, for the first one.

        Every attempt has the same `fetch_id`, a new one if None, and so gets the same events.
        """
        body: dict[str, Any] = {"member": member, "fetch_id": fetch_id or new_event_id(), "wait_ms": milliseconds(wait)}
        body |= {} if batch is None else {"batch": batch}
        return await self._send(lambda facts: lease_of(facts, name), "POST", f"{group_path(name)}/fetch", body, wait)

    async def ack(self, lease: EventLease, events: Iterable[GroupEvent] | None = None) -> int:
        """Acknowledge events of a lease, all of them by default; the number of those that were not before."""
        return await self._settle("ack", lease, events, {})

    async def nack(
        self,
        lease: EventLease,
        events: Iterable[GroupEvent] | None = None,
        *,
        delay: float = 0.0,
        reason: str | None = None,
    ) -> int:
        """Give events of a lease back, all of them by default: they are handed over again after `delay` seconds."""
        more = {"delay_ms": milliseconds(delay)} | ({} if reason is None else {"reason": reason})
        return await self._settle("nack", lease, events, more)

    async def _settle(
        self, call: str, lease: EventLease, events: Iterable[GroupEvent] | None, more: dict[str, Any]
    ) -> int:
        ids = [event.committed_id for event in (lease.events if events is None else events)]
        if not ids or lease.token is None:
            return 0
        body = {"lease": lease.token, "committed_ids": ids} | more
        member = "acked" if call == "ack" else "returned"
        return await self._send(lambda facts: int(facts[member]), "POST", f"{group_path(lease.group)}/{call}", body)

    async def extend(self, lease: EventLease) -> None:
        """Begin the time of a lease anew. Raises `ConflictError` if it has ended."""
        if lease.token is not None:
            path = f"{group_path(lease.group)}/extend"
            await self._send(lambda facts: int(facts["lease_ms"]), "POST", path, {"lease": lease.token})

    async def parked(self, name: str, *, after: int = 0, limit: int = 100) -> ParkedList:
        """A page of the events that were delivered too often."""
        path = f"{group_path(name)}/parked?{urlencode({'after': after, 'limit': limit})}"
        facts = await self._caller.facts(ClientRequest("GET", path, most_bytes=MOST_ANSWER_BYTES))
        return read(lambda: parked_of(facts))

    def walk_parked(self, name: str) -> ListWalk[ParkedEvent]:
        """All of `parked`, page by page."""
        return ListWalk(lambda after: self.parked(name, after=after), lambda page: page.events, 0)

    async def replay(self, name: str, events: Iterable[ParkedEvent | int]) -> int:
        """Hand parked events, or those with these `committed_id`, over again; the number of those that were parked."""
        return await self._move("replay", "replayed", name, events)

    async def drop(self, name: str, events: Iterable[ParkedEvent | int]) -> int:
        """Forget parked events, or those with these `committed_id`; the number of those that were parked."""
        return await self._move("drop", "dropped", name, events)

    async def _move(self, call: str, member: str, name: str, events: Iterable[ParkedEvent | int]) -> int:
        ids = [event if isinstance(event, int) else event.committed_id for event in events]
        if not ids:
            return 0
        path = f"{group_path(name)}/parked/{call}"
        return await self._send(lambda facts: int(facts[member]), "POST", path, {"committed_ids": ids})

    def consume(
        self, name: str, member: str, *, batch: int | None = None, wait: float = 20.0, ends: bool = False
    ) -> AsyncGroupConsumer:
        """The events of a group for one member: each is acknowledged when the next one is asked for.

        With `ends`, the iterator ends when there is no event for `wait` seconds.
        """
        return AsyncGroupConsumer(self, name, member, batch, wait, ends)

    async def _send(
        self, make: Callable[[Facts], T], method: str, path: str, body: dict[str, Any] | None, wait: float = 0.0
    ) -> T:
        text = b"" if body is None else dump(body)
        request = json_request(method, path, text, wait=wait, most_bytes=MOST_ANSWER_BYTES)
        return await self._caller.facts_as(make, request, NamedCall(method, path))


class GroupConsumer(BlockingIterator[GroupEvent]):
    """The events of a group for one member, from synchronous code."""

    def __init__(self, consumer: AsyncGroupConsumer) -> None:
        super().__init__(consumer)
        self._calls = BlockingCalls(consumer)

    def nack(self, *, delay: float = 0.0, reason: str | None = None) -> None:
        """Give the last event back: it is handed over again, after `delay` seconds."""
        _nack(self._calls, delay=delay, reason=reason)

    def extend(self) -> None:
        """Begin the time of the lease anew, for an event whose handling takes long."""
        _extend(self._calls)


_nack = blocking(AsyncGroupConsumer.nack)
_extend = blocking(AsyncGroupConsumer.extend)


class EventGroups(BlockingCalls[AsyncEventGroups]):
    """The consumer groups of one server, from synchronous code."""

    create = blocking(AsyncEventGroups.create)
    get = blocking(AsyncEventGroups.get)
    list = blocking(AsyncEventGroups.list)
    walk = blocking_iterator(AsyncEventGroups.walk)
    delete = blocking(AsyncEventGroups.delete)
    reset = blocking(AsyncEventGroups.reset)
    fetch = blocking(AsyncEventGroups.fetch)
    ack = blocking(AsyncEventGroups.ack)
    nack = blocking(AsyncEventGroups.nack)
    extend = blocking(AsyncEventGroups.extend)
    parked = blocking(AsyncEventGroups.parked)
    walk_parked = blocking_iterator(AsyncEventGroups.walk_parked)
    replay = blocking(AsyncEventGroups.replay)
    drop = blocking(AsyncEventGroups.drop)

    def consume(
        self, name: str, member: str, *, batch: int | None = None, wait: float = 20.0, ends: bool = False
    ) -> GroupConsumer:
        """The events of a group for one member: each is acknowledged when the next one is asked for.

        With `ends`, the iterator ends when there is no event for `wait` seconds.
        """
        return GroupConsumer(self._calls.consume(name, member, batch=batch, wait=wait, ends=ends))
