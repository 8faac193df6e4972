"""The calls of consumer groups and snapshots: every call without a wire.

Each change is one command through the engine. A fetch that finds nothing waits for a commit: of an event, or of an ack
that lets a partition go on. The waiting fetches of one group on this node stand in line, and only the first reads the
log, so that a commit does not wake every member. A wait ends with the caller, its credential or the server.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from semel.engine.back_pressure import QueueShare
from semel.engine.caller import WaitingCaller
from semel.engine.contract import Write
from semel.engine.follow import FollowedPage, FollowEnd, LogFollower
from semel.kernel.errors import Refused
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.surfaces.events.group_contract import MISSING, EventConsumers
from semel.surfaces.events.group_reading import (
    GroupPage,
    ParkedPage,
    PlannedFetch,
    event_texts,
    group_state,
    list_groups,
    list_parked,
    plan_fetch,
)
from semel.surfaces.events.limits import LEASES_KEPT, MAX_GROUP_PARKED
from semel.surfaces.events.rules.delivery import topic_of
from semel.surfaces.events.rules.event_log import TOPIC
from semel.surfaces.events.rules.group_commands import (
    GroupBusy,
    GroupCommand,
    GroupDelete,
    GroupFetch,
    GroupFetched,
    GroupReach,
    GroupRefused,
    GroupSettle,
    GroupSettled,
    ParkedMove,
)
from semel.surfaces.events.rules.group_state import GroupState
from semel.surfaces.events.rules.groups import denied_partition
from semel.surfaces.events.rules.snapshots import SnapshotCommand
from semel.surfaces.events.wire.group_messages import FetchRequest, group_members, refused
from semel.surfaces.events.wire.snake_case import event_payload

SURFACE = "events"
MAX_WAITING = 1_000
"""Fetches that wait on one node; a further one is answered at once."""
MAX_WAITING_EACH = 500
"""Those of one principal."""
LOOK_SECONDS = 1.0
"""The longest time between two reads of the log: a signal between nodes may be lost."""
REST_SECONDS = 0.02
"""The shortest time between two reads of a fetch that waits, while other partitions are busy."""
MAX_TRIES = 8
"""Plans of one fetch in a row that other fetches may spoil."""

Fetched = tuple[GroupFetched, dict[int, bytes]]


class GroupCalls:
    """The calls of consumer groups on one node."""

    def __init__(self, context: Context, contract: EventConsumers, page_bytes: int, counts: Counter[str]) -> None:
        self._context = context
        self._contract = contract
        self._page_bytes = page_bytes
        self._counts = counts
        self._lines: dict[bytes, tuple[asyncio.Lock, list[int]]] = {}
        self._woken: set[asyncio.Event] = set()
        self._shares = QueueShare(MAX_WAITING_EACH, 0)
        self.waiting = 0

    def stop(self) -> None:
        """The server is stopping: end the fetches that wait."""
        for woken in self._woken:
            woken.set()

    def reach(self, principal: Principal, *roles: Role) -> GroupReach:
        """The partitions that a caller may use, if it has all of these roles."""
        for role in roles:
            if not principal.has(role):
                raise Refused("forbidden", f"This call needs the role {role.value}.", {"role": role.value})
        return None if principal.scopes is None else tuple(principal.reach(SURFACE))

    async def execute(self, command: GroupCommand | SnapshotCommand, size: int, caller: WaitingCaller) -> Any:
        """Execute a command; a refusal is raised."""
        answer = await self._context.engine.submit(Write(self._contract, command, size, _cost(command)), caller)
        if isinstance(answer, GroupRefused):
            if answer.code == "lease_ended":
                self._counts["group_fenced"] += 1
            raise refused(answer)
        if isinstance(command, GroupSettle) and isinstance(answer, GroupSettled):
            self._counts["group_acked" if command.is_ack else "group_returned"] += answer.settled - answer.parked
            self._counts["group_parked"] += answer.parked
        return answer

    async def state(self, name: bytes, reach: GroupReach) -> GroupState:
        """The state of a group that the caller may use."""
        state = await self._context.engine.read(lambda reading: group_state(reading, name))
        return _usable(state, reach)

    async def groups(self, after: bytes, limit: int, reach: GroupReach) -> GroupPage:
        """A page of the groups that the caller may use."""
        return await self._context.engine.read(lambda reading: list_groups(reading, after, limit, reach, group_members))

    async def parked(self, name: bytes, after: int, limit: int, reach: GroupReach) -> ParkedPage:
        """A page of parked events."""
        await self.state(name, reach)
        return await self._context.engine.read(
            lambda reading: list_parked(reading, name, after, limit, self._page_bytes, event_payload)
        )

    async def fetch(
        self, name: bytes, asked: FetchRequest, reach: GroupReach, caller: WaitingCaller, end: FollowEnd
    ) -> Fetched:
        """Deliver events, at once or as soon as there are any."""
        look = _Fetching(self, name, asked, reach, caller)
        page = await look.once()
        has_room = self.waiting < MAX_WAITING and self._shares.has_room(caller.principal, 0)
        if page.is_ready or not asked.wait_ms or not has_room:
            return page.page
        seat = self._context.live_reader(caller.principal)
        self.waiting += 1
        self._shares.add(caller.principal, 0)
        try:
            return await self._wait(name, look, page, asked.wait_ms / 1_000, end)
        finally:
            seat.close()
            self.waiting -= 1
            self._shares.remove(caller.principal, 0)

    async def _wait(
        self, name: bytes, look: _Fetching, page: FollowedPage[Fetched], seconds: float, end: FollowEnd
    ) -> Fetched:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self._line(name) as line:
            acquired = asyncio.ensure_future(line.acquire())
            woken = asyncio.Event()
            self._woken.add(woken)
            end.watch(woken.set)
            try:
                await _first_of(acquired, woken, seconds)
                if not acquired.done() or end.cause is not None:
                    return page.page
                left = deadline - loop.time()
                with LogFollower(self._context.engine.signals, TOPIC, end) as log:
                    own = self._context.engine.signals.watch(topic_of(name))
                    own.take = partial(_relay, log)
                    try:
                        return await log.follow(look.rested, max(0.0, left))
                    finally:
                        own.close()
            finally:
                end.unwatch(woken.set)
                self._woken.discard(woken)
                _give_up(acquired, line)

    @contextmanager
    def _line(self, name: bytes) -> Iterator[asyncio.Lock]:
        """The line of the waiting fetches of a group."""
        line, members = self._lines.setdefault(name, (asyncio.Lock(), [0]))
        members[0] += 1
        try:
            yield line
        finally:
            members[0] -= 1
            if not members[0]:
                del self._lines[name]

    async def look(
        self, name: bytes, asked: FetchRequest, reach: GroupReach, caller: WaitingCaller
    ) -> FollowedPage[Fetched]:
        """Plan and execute a fetch; it is ready if it has events, or repeats an earlier fetch."""
        state: GroupState | None = None
        for _ in range(MAX_TRIES):
            planned = await self._context.engine.read(
                lambda reading: plan_fetch(reading, name, asked.fetch_key, asked.batch, self._page_bytes, event_payload)
            )
            state = _usable(None if planned is None else planned.state, reach)
            assert planned is not None
            if not planned.is_useful:
                return FollowedPage((_nothing(state), {}), False, _rest_seconds(planned))
            command = GroupFetch(
                name, asked.member, asked.fetch_key, asked.batch or state.definition.batch, planned.plan, reach
            )
            answer = await self.execute(command, 0, caller)
            if not isinstance(answer, GroupBusy):
                return await self._fetched(answer, planned)
        assert state is not None
        return FollowedPage((_nothing(state), {}), False, REST_SECONDS)

    async def _fetched(self, answer: GroupFetched, planned: PlannedFetch) -> FollowedPage[Fetched]:
        if not answer.is_replay:
            self._counts["group_delivered"] += sum(count == 1 for _, count in answer.events)
            self._counts["group_redelivered"] += sum(count > 1 for _, count in answer.events)
            self._counts["group_parked"] += answer.parked
        texts = planned.texts
        ids = [committed_id for committed_id, _ in answer.events]
        if answer.is_replay and ids:
            texts = await self._context.engine.read(
                lambda reading: event_texts(reading, ids, self._page_bytes, event_payload)
            )
        is_ready = bool(answer.events) or answer.is_replay
        return FollowedPage((answer, texts), is_ready, _rest_seconds(planned))


class _Fetching:
    """One fetch, which may be tried several times."""

    def __init__(
        self, calls: GroupCalls, name: bytes, asked: FetchRequest, reach: GroupReach, caller: WaitingCaller
    ) -> None:
        self._arguments = (name, asked, reach, caller)
        self._calls = calls
        self._has_looked = False

    async def once(self) -> FollowedPage[Fetched]:
        """Try."""
        return await self._calls.look(*self._arguments)

    async def rested(self) -> FollowedPage[Fetched]:
        """Try, with a rest after the try before: a busy log must not be read for each of its commits."""
        if self._has_looked:
            await asyncio.sleep(REST_SECONDS)
        self._has_looked = True
        return await self.once()


def _relay(log: LogFollower) -> bool:
    """Wake the follower of the log when the group itself changes; the watch of the group goes on."""
    log.wake()
    return True


async def _first_of(acquired: asyncio.Future[Any], woken: asyncio.Event, seconds: float) -> None:
    waiter = asyncio.ensure_future(woken.wait())
    try:
        await asyncio.wait((acquired, waiter), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


def _give_up(acquired: asyncio.Future[Any], line: asyncio.Lock) -> None:
    """Leave the line, or let the next one go to its front."""
    if acquired.done() and not acquired.cancelled():
        line.release()
    else:
        acquired.cancel()


def _rest_seconds(planned: PlannedFetch) -> float:
    return max(0.001, min(LOOK_SECONDS, planned.rest_ms / 1_000))


def _usable(state: GroupState | None, reach: GroupReach) -> GroupState:
    if state is None:
        raise refused(MISSING)
    denied = denied_partition(state.definition.partitions, reach)
    if denied is not None:
        raise Refused("forbidden", f"This credential may not use {denied}.", {"partition": denied})
    return state


def _nothing(state: GroupState) -> GroupFetched:
    return GroupFetched(b"", (), 0, 0, state.floor, state.row.epoch)


def _cost(command: GroupCommand | SnapshotCommand) -> int:
    """The approximate number of rows that a command changes or reads."""
    if isinstance(command, GroupDelete):
        return LEASES_KEPT + MAX_GROUP_PARKED
    if isinstance(command, ParkedMove):
        return 4 + (len(command.ids) or command.limit)
    return 8
