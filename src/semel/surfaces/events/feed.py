"""The live feed: one reader of the log for all live subscribers of this node.

The feed follows the log (`engine/follow.py`): it reads the log when this or another node signals a commit, and hands
every event, in log order, to the live subscribers of its partitions. Events are read from the store after their
commit, so a crash never takes back an event that was sent. A subscriber that cannot take an event leaves the feed and
reads the log itself. Without live subscribers the feed reads nothing. An event with many subscribers is handed to them
in turns, so that the event loop is not held; subscribers may leave and join between two turns of one event.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

import orjson

from semel.engine.contract import UnavailableError
from semel.engine.engine import Engine
from semel.engine.follow import FollowedPage, LogFollower
from semel.engine.reading import Reading
from semel.server.thread_pool import apart, is_small
from semel.surfaces.events.reading import EventPage, tail
from semel.surfaces.events.rules.event_log import TOPIC
from semel.surfaces.events.rules.event_types import type_of
from semel.surfaces.events.tables import EventRow

if TYPE_CHECKING:
    from semel.surfaces.events.subscriber import EventSink, EventSubscriber

READ_BYTES = 4 * 1024 * 1024
POLL_SECONDS = 30.0
REST_SECONDS = 0.5
FRAMES_PER_TURN = 500
"""Limit of frames that are sent before the feed yields to other tasks."""

T = TypeVar("T")
Fault = Callable[[str], str]
"""Logs the current exception, and returns the message for the clients."""
Answered = Callable[[EventRow], "asyncio.Future[object] | None"]


class EventFeed:
    """The live feed; runs as one task on the event loop until it is cancelled."""

    def __init__(self, engine: Engine, answered: Answered, fault: Fault, counts: Counter[str]) -> None:
        self._engine = engine
        self._answered = answered
        self.fault = fault
        self._counts = counts
        self._members: dict[str, dict[EventSubscriber, None]] = {}
        self._live: set[EventSubscriber] = set()
        self._choosy: set[EventSubscriber] = set()
        """The live subscribers that want some types of events only."""
        self._joined = asyncio.Event()
        self._follower = LogFollower(engine.signals, TOPIC)
        self._life = 0
        """Incremented when an idle feed restarts, perhaps at an earlier position: earlier pages are discarded."""
        self.position = 0
        """Every event up to this position has been handed to the live subscribers."""
        self._reached = 0
        """The position of the event that is being handed out: it may be past those that a joining subscriber missed."""
        self._sent = 0
        """Frames that were sent since the feed last yielded to other tasks."""

    def __len__(self) -> int:
        return len(self._live)

    def admits(self, cursor: int) -> bool:
        """Whether a subscriber that has every event up to `cursor` can join without missing an event."""
        return not self._live or cursor >= max(self.position, self._reached)

    def join(self, subscriber: EventSubscriber) -> None:
        """Hand the subscriber all events after its cursor from now on."""
        if not self._live:
            self._life += 1
            self.position = self._reached = subscriber.cursor
            self._joined.set()
            self._follower.wake()  # commits may have happened while no subscriber was live
        self._live.add(subscriber)
        if subscriber.types is not None:
            self._choosy.add(subscriber)
        for name in subscriber.names:
            self._members.setdefault(name, {})[subscriber] = None

    def leave(self, subscriber: EventSubscriber) -> None:
        """Hand the subscriber no more events."""
        self._live.discard(subscriber)
        self._choosy.discard(subscriber)
        for name in subscriber.names:
            members = self._members.get(name)
            if members is not None:
                members.pop(subscriber, None)
                if not members:
                    del self._members[name]
        if not self._live:
            self._follower.wake()

    async def read(self, look: Callable[[Reading], T]) -> T:
        """Read the log for a subscriber."""
        return await self._engine.read(look)

    def count(self, sent: int) -> None:
        """Count events that were sent."""
        self._counts["broadcasts"] += sent

    async def run(self) -> None:
        """Read the log, hand out events and wait for the next signal; without subscribers, wait for the first."""
        while True:
            if not self._live:
                self._joined.clear()
                await self._joined.wait()
            with self._follower as follower:
                try:
                    await follower.follow(self._look_while_live)
                    continue
                except UnavailableError:
                    pass
                except Exception:  # noqa: BLE001 - after any fault, every subscriber must be closed
                    self._fail_all(self.fault("fault in the feed of events"))
            await asyncio.sleep(REST_SECONDS)

    async def _look_while_live(self) -> FollowedPage[None]:
        """Hand out all new events. The page is ready, which ends the follower, when no subscriber is left."""
        while self._live and await self._look():
            pass  # there is more to read
        return FollowedPage(None, not self._live, POLL_SECONDS)

    def _fail_all(self, words: str) -> None:
        for subscriber in list(self._live):
            subscriber.sink.fail(words)
            subscriber.close()  # events after a gap would hide the gap

    async def _look(self) -> bool:
        """Hand out one page of the log. Returns whether to read again at once."""
        life, after = self._life, self.position
        page: EventPage = await self._engine.read(lambda reading: tail(reading, after, READ_BYTES))
        if page.pruned_to and life == self._life:
            await self._tell_pruned(page.pruned_to, life)
        size = 0
        for row in page.events:
            await self.wait_for_answer(row)
            size += len(row.event)
            if not is_small(size):
                await self._yield()
                size = 0
            kind = await apart(len(row.event), type_of, row.event) if self._choosy else ""
            frames = {} if is_small(len(row.event)) else await self._large_frames(row, kind)
            if not (self._is_living(life) and await self._hand_on(row, frames, kind)):
                return True
        if life != self._life:
            return True
        self.position = max(self.position, page.next_since)
        return page.has_more

    def _is_living(self, life: int) -> bool:
        """Whether a page that was read in this life of the feed may be handed out."""
        return life == self._life and bool(self._live)

    async def _yield(self) -> None:
        """Let other tasks run, among them those that were sent a frame."""
        self._sent = 0
        await asyncio.sleep(0)

    async def _tell_pruned(self, pruned_to: int, life: int) -> None:
        """Tell the subscribers whose unsent events were pruned."""
        behind = [subscriber for subscriber in self._live if subscriber.cursor < pruned_to]
        for subscriber in behind:
            if subscriber in self._live:
                subscriber.overtaken(pruned_to)
                self._sent += 1
            if self._sent >= FRAMES_PER_TURN:
                await self._yield()
                if life != self._life:
                    return

    async def wait_for_answer(self, row: EventRow) -> None:
        """Wait, for at most 1 second, until the answer to the event's submitter is sent."""
        waiting = self._answered(row)
        if waiting is not None:
            await asyncio.wait((waiting,), timeout=1.0)
            await asyncio.sleep(0)

    async def _large_frames(self, row: EventRow, kind: str) -> dict[Hashable, bytes]:
        """The frames of a large event, one for each audience, serialized in a thread."""
        frames: dict[Hashable, bytes] = {}
        while missing := [sink for sink in self._sinks_of(row, kind) if sink.audience not in frames]:
            sink = missing[0]
            frames[sink.audience] = await apart(len(row.event), sink.frame, row)
        return frames

    def _sinks_of(self, row: EventRow, kind: str) -> list[EventSink]:
        return [
            member.sink
            for name in orjson.loads(row.partitions)
            for member in self._members.get(name, ())
            if member.types is None or (kind or type_of(row.event)) in member.types
        ]

    async def _hand_on(self, row: EventRow, frames: dict[Hashable, bytes], kind: str) -> bool:
        """Hand one event to its subscribers, in turns; false if the feed was restarted or left by all meanwhile."""
        before, life, self._reached = self.position, self._life, row.committed_id
        for name in orjson.loads(row.partitions):
            # One who joins between two turns has this event already: `admits` asks for it.
            for member in list(self._members.get(name, ())):
                if member.types is not None and (kind or type_of(row.event)) not in member.types:
                    continue  # its position is that of the feed
                frame = frames.get(member.audience)
                if frame is None:
                    frame = frames[member.audience] = member.sink.frame(row)
                if member.take(row, frame, before):
                    self._sent += 1
                    self.count(1)
                if self._sent >= FRAMES_PER_TURN:
                    await self._yield()
                    if not self._is_living(life):
                        return False
        # Not before: one who leaves in between goes on after `position`, and would miss what was not handed to it.
        self.position = row.committed_id
        return True
