"""The live feed: one reader of the log for all live subscribers of this node.

It follows the log (`engine/follow.py`), reads it when a commit is signalled, here or on another node, and hands every
event, in the log's order, to the live subscribers of its partitions. What it hands on was read from the store after its
commit. A subscriber that cannot take an event leaves the feed and reads the log itself. Without live subscribers
nothing is read.
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
from semel.surfaces.events.tables import EventRow

if TYPE_CHECKING:
    from semel.surfaces.events.subscriber import EventSink, EventSubscriber

READ_BYTES = 4 * 1024 * 1024
POLL_SECONDS = 30.0
REST_SECONDS = 0.5
FRAMES_PER_TURN = 500
"""Limit of frames that are sent before other work has its turn."""

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
        self._joined = asyncio.Event()
        self._follower = LogFollower(engine.signals, TOPIC)
        self._life = 0
        """Rises when a feed without subscribers begins anew, perhaps further back: what was read before is void."""
        self.position = 0
        """Every event up to here has been handed to the live subscribers."""

    def __len__(self) -> int:
        return len(self._live)

    def admits(self, cursor: int) -> bool:
        """Whether a subscriber that has had everything up to here would miss nothing by joining."""
        return not self._live or cursor >= self.position

    def join(self, subscriber: EventSubscriber) -> None:
        """Subscribe: from now on hand it the events that it has not had."""
        if not self._live:
            self._life += 1
            self.position = subscriber.cursor
            self._joined.set()
            self._follower.wake()  # it may have slept through commits
        self._live.add(subscriber)
        for name in subscriber.names:
            self._members.setdefault(name, {})[subscriber] = None

    def leave(self, subscriber: EventSubscriber) -> None:
        """Hand it nothing more."""
        self._live.discard(subscriber)
        for name in subscriber.names:
            members = self._members.get(name)
            if members is not None:
                members.pop(subscriber, None)
                if not members:
                    del self._members[name]
        if not self._live:
            self._follower.wake()

    async def read(self, look: Callable[[Reading], T]) -> T:
        """Look at the log on behalf of a subscriber."""
        return await self._engine.read(look)

    def count(self, sent: int) -> None:
        """Events were sent."""
        self._counts["broadcasts"] += sent

    async def run(self) -> None:
        """Read the log, hand on, wait for the next signal; wait for the first subscriber while there is none."""
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
                except Exception:  # noqa: BLE001 - whatever it is, no subscriber may go on believing that all is well
                    self._fail_all(self.fault("fault in the feed of events"))
            await asyncio.sleep(REST_SECONDS)

    async def _look_while_live(self) -> FollowedPage[None]:
        """Hand on what there is; ready, which ends the follower, when no subscriber is left."""
        while self._live and await self._look():
            pass  # there is more to read
        return FollowedPage(None, not self._live, POLL_SECONDS)

    def _fail_all(self, words: str) -> None:
        for subscriber in list(self._live):
            subscriber.sink.fail(words)
            subscriber.close()  # what comes behind a gap would hide it

    async def _look(self) -> bool:
        """Hand on one page; whether to look again at once."""
        life, after = self._life, self.position
        page: EventPage = await self._engine.read(lambda reading: tail(reading, after, READ_BYTES))
        if page.pruned_to and life == self._life:
            for subscriber in list(self._live):
                subscriber.overtaken(page.pruned_to)
        sent = size = 0
        for row in page.events:
            await self.wait_for_answer(row)
            size += len(row.event)
            if sent >= FRAMES_PER_TURN or not is_small(size):
                await asyncio.sleep(0)  # others have a turn
                sent = size = 0
            frames = {} if is_small(len(row.event)) else await self._large_frames(row)
            if life != self._life or not self._live:
                return True
            sent += self._hand_on(row, frames)
        if life != self._life:
            return True
        self.position = max(self.position, page.next_since)
        return page.has_more

    async def wait_for_answer(self, row: EventRow) -> None:
        """The answer to a submitter is sent before its event reaches others; it is on its way by now."""
        waiting = self._answered(row)
        if waiting is not None:
            await asyncio.wait((waiting,), timeout=1.0)
            await asyncio.sleep(0)

    async def _large_frames(self, row: EventRow) -> dict[Hashable, bytes]:
        """A large event as each audience that is there is sent it, printed in a thread."""
        frames: dict[Hashable, bytes] = {}
        while missing := [sink for sink in self._sinks_of(row) if sink.audience not in frames]:
            sink = missing[0]
            frames[sink.audience] = await apart(len(row.event), sink.frame, row)
        return frames

    def _sinks_of(self, row: EventRow) -> list[EventSink]:
        return [member.sink for name in orjson.loads(row.partitions) for member in self._members.get(name, ())]

    def _hand_on(self, row: EventRow, frames: dict[Hashable, bytes]) -> int:
        before, self.position = self.position, row.committed_id
        sent = 0
        for name in orjson.loads(row.partitions):
            for member in list(self._members.get(name, ())):
                audience = member.sink.audience
                frame = frames.get(audience)
                if frame is None:
                    frame = frames[audience] = member.sink.frame(row)
                sent += member.take(row, frame, before)
        self.count(sent)
        return sent
