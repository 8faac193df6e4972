"""The live feed: one reader of the log for all live subscribers of this node.

It looks at the log when a commit is signalled, here or on another node, and hands every event, in the log's order, to
the live subscribers of its partitions. What it hands on was read from the store after its commit. A subscriber that
cannot take an event leaves the feed and reads the log itself. Without live subscribers nothing is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

import orjson

from semel.contracts.events.reading import Page, tail
from semel.contracts.events.rules.submit import TOPIC
from semel.contracts.events.tables import EventRow
from semel.engine.contract import UnavailableError
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.server.threads import apart, is_small

if TYPE_CHECKING:
    from semel.server.events.subscriber import Sink, Subscriber

LOOK_BYTES = 4 * 1024 * 1024
POLL_SECONDS = 30.0
REST_SECONDS = 0.5
AT_ONCE = 500
"""Limit of frames that are sent before other work has its turn."""

T = TypeVar("T")
Fault = Callable[[str], str]
"""Logs the current exception, and returns the message for the clients."""
Answered = Callable[[EventRow], "asyncio.Future[object] | None"]


class Feed:
    """The live feed; runs as one task on the event loop until it is cancelled."""

    def __init__(self, engine: Engine, answered: Answered, fault: Fault, counts: Counter[str]) -> None:
        self._engine = engine
        self._answered = answered
        self.fault = fault
        self._counts = counts
        self._members: dict[str, dict[Subscriber, None]] = {}
        self._live: set[Subscriber] = set()
        self._joined = asyncio.Event()
        self._watch = engine.signals.watch(TOPIC)
        self._life = 0
        """Rises when a feed without subscribers begins anew, perhaps further back: what was read before is void."""
        self.position = 0
        """Every event up to here has been handed to the live subscribers."""

    def __len__(self) -> int:
        return len(self._live)

    def admits(self, cursor: int) -> bool:
        """Whether a subscriber that has had everything up to here would miss nothing by joining."""
        return not self._live or cursor >= self.position

    def join(self, subscriber: Subscriber) -> None:
        """Subscribe: from now on hand it the events that it has not had."""
        if not self._live:
            self._life += 1
            self.position = subscriber.cursor
            self._joined.set()
            self._watch.wake()  # it may have slept through commits
        self._live.add(subscriber)
        for name in subscriber.names:
            self._members.setdefault(name, {})[subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        """Hand it nothing more."""
        self._live.discard(subscriber)
        for name in subscriber.names:
            members = self._members.get(name)
            if members is not None:
                members.pop(subscriber, None)
                if not members:
                    del self._members[name]
        if not self._live:
            self._watch.wake()

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
                self._watch.wake()
                self._joined.clear()
                await self._joined.wait()
            self._watch.arm()
            try:
                has_more = await self._look()
            except UnavailableError:
                await asyncio.sleep(REST_SECONDS)
                continue
            except Exception:  # noqa: BLE001 - whatever it is, no subscriber may go on believing that nothing happens
                self._fail_all(self.fault("fault in the feed of events"))
                await asyncio.sleep(REST_SECONDS)
                continue
            if not has_more:
                await self._watch.wait(POLL_SECONDS)

    def _fail_all(self, words: str) -> None:
        for subscriber in list(self._live):
            subscriber.sink.fail(words)
            subscriber.close()  # what comes behind a gap would hide it

    async def _look(self) -> bool:
        life, after = self._life, self.position
        page: Page = await self._engine.read(lambda reading: tail(reading, after, LOOK_BYTES))
        if page.pruned_to and life == self._life:
            for subscriber in list(self._live):
                subscriber.overtaken(page.pruned_to)
        sent = size = 0
        for row in page.events:
            await self.wait_for_answer(row)
            size += len(row.event)
            if sent >= AT_ONCE or not is_small(size):
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

    def _sinks_of(self, row: EventRow) -> list[Sink]:
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
