"""WebSocket clients of a simulated run: they write, follow, lose their connections at random, and come back.

`SeedPeer` speaks the seed dialect: it may write, follow partitions with a cursor that broadcasts move, change them in
mid-session, or do all of it on one connection. `ProjectPeer` speaks 2.x: it syncs after `connected`, keeps one batch in
flight, and leaves its cursor where the last page put it. Both repeat every draft until it is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.events.model.drafts import Author, Outbox, project_item, seed_item
from tests.events.model.lines import Line, LineLostError, dial
from tests.events.model.model import Draft, Message, Model
from tests.events.model.replica import Cycle, Replica, project_answer, seed_answer
from tests.events.shapes import Dialect

RETRY_SECONDS = 0.03
PACE_SECONDS = (0.0, 0.05)


@dataclass
class World:
    """What all clients of a run share."""

    model: Model
    ports: list[int]
    names: Sequence[str]
    run: str
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """No new drafts: what is in the outboxes is sent until it is answered."""
    is_calm: asyncio.Event = field(default_factory=asyncio.Event)
    """Nobody breaks off or changes anything any more."""
    known: list[Draft] = field(default_factory=list)
    """Drafts that were acknowledged once, for others to repeat or to contradict."""


@dataclass(frozen=True)
class Manner:
    """How a client behaves."""

    writes: bool = True
    follows: bool = False
    cuts: float = 0.05
    """How likely a step breaks the connection off."""
    is_slow: bool = False
    restless: float = 1.0
    """How much more often than others it asks for pages and changes what it follows."""
    pace_seconds: tuple[float, float] = PACE_SECONDS
    """How long it waits between two steps."""
    batch: int = 5
    limits: tuple[int, ...] = (1, 7, 50, 200)


class Writer:
    """What every client that writes does, whatever it speaks."""

    def __init__(self, world: World, name: str, chance: random.Random, project: str = "") -> None:
        self.world = world
        self.name = name
        self.chance = chance
        self.project = project
        self.outbox = Outbox(world.model, name, name)
        self._author = Author(chance, world.names, world.run)

    def think(self, most: int) -> None:
        """Make up some drafts, now and then a repeated, a contradicting or a broken one."""
        if self.world.is_over.is_set():
            return
        for _ in range(self.chance.randrange(1, most + 1)):
            self.outbox.add(self._new())

    def remember(self, batch: Sequence[Draft]) -> None:
        """Let others repeat what was acknowledged."""
        for draft in batch:
            if draft.is_settled and draft.is_valid and draft.id in self.world.model.answers:
                self.world.known.append(draft)

    def _new(self) -> Draft:
        odds = self.chance.random()
        if odds < 0.06:
            return self._author.broken(self.name, self.project)
        if odds < 0.2 and self.world.known:
            known = self.chance.choice(self.world.known[-40:])
            if not self.project or (known.partitions == (self.project,) and "schemaVersion" in known.event):
                return self._again(known) if odds < 0.13 else self._author.conflicting(known)
        draft = self._author.draft(self.name, self.project)
        if self.chance.random() < 0.2:
            draft.if_watermark = max(map(self.world.model.floor, draft.partitions))
        return draft

    def _again(self, known: Draft) -> Draft:
        """A committed draft; whatever watermark it expects now, it gets its first answer."""
        expected = self.chance.choice((None, 0, self.world.model.high))
        return Draft(known.id, known.partitions, known.event, if_watermark=expected)


class Peer(Writer, ABC):
    """A client with a WebSocket, connection after connection."""

    dialect: Dialect

    def __init__(
        self, world: World, name: str, chance: random.Random, manner: Manner, follows: Sequence[str], project: str = ""
    ) -> None:
        super().__init__(world, name, chance, project)
        self.manner = manner
        self.replica: Replica | None = None
        if manner.follows:
            moves = self.dialect is Dialect.SEED
            self.replica = Replica(world.model, name, follows, moves_on_broadcast=moves)

    async def live(self) -> None:
        """Connect, work, lose the connection, begin again; until the outbox is empty, or, for a follower, for ever."""
        while not self._is_done():
            try:
                await self._one_connection()
            except LineLostError:
                await asyncio.sleep(RETRY_SECONDS)

    def _is_done(self) -> bool:
        return self.world.is_over.is_set() and not self.outbox.waiting and self.replica is None

    async def _one_connection(self) -> None:
        port = self.chance.choice(self.world.ports)
        line = await dial(port, self.dialect, self.world.model, self.name, self._push, is_slow=self.manner.is_slow)
        self._line = line
        if self.replica is not None:
            self.replica.begin(line.number)
        listening = asyncio.create_task(line.listen(self.chance, self._dawdles))
        try:
            await self._connect(line)
            if self.replica is not None:
                await self._catch_up(line, self.replica)
            await self._work(line)
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            await line.close()

    def _dawdles(self) -> bool:
        return self.manner.is_slow and not self.world.is_calm.is_set()

    async def _work(self, line: Line) -> None:
        while not self._is_done():
            if line.is_lost:
                raise LineLostError
            await asyncio.sleep(self.chance.uniform(*self.manner.pace_seconds))
            if self.manner.writes:
                await self._write(line)
            if self.replica is not None and not self.world.is_calm.is_set():
                await self._turn(line, self.replica)
            if not self.world.is_calm.is_set() and self.chance.random() < self.manner.cuts:
                raise LineLostError

    async def _write(self, line: Line) -> None:
        """Send what waits, perhaps several batches before the first answer, and perhaps break off with none."""
        if not self.outbox.waiting:
            self.think(self.manner.batch)
        asked = []
        start = 0
        for _ in range(self.chance.choice((1, 1, 3)) if self.dialect is Dialect.SEED else 1):
            batch = self.outbox.batch(start, self.chance.randrange(1, self.manner.batch + 1), line.number)
            if not batch:
                break
            start += len(batch)
            asked.append(await self._submit(line, batch))
        if asked and self.chance.random() < self.manner.cuts:
            await asyncio.sleep(self.chance.choice((0, 0, 0.001, 0.005)))
            raise LineLostError
        for question in asked:
            await line.answer(question)

    async def _submit(self, line: Line, batch: Sequence[Draft]) -> asyncio.Future[None]:
        def take(payload: Message) -> None:
            self.outbox.settle(batch, payload["results"], self.dialect)
            self.remember(batch)

        if self.replica is not None:
            self.replica.feed.submitted.update(draft.id for draft in batch)
        items = [self._item(draft) for draft in batch]
        return await line.ask("submit_events", {"events": items}, "submit_events_result", take)

    @abstractmethod
    def _item(self, draft: Draft) -> Message:
        """The draft in this dialect."""

    @abstractmethod
    async def _connect(self, line: Line) -> None:
        """Shake hands."""

    @abstractmethod
    async def _catch_up(self, line: Line, replica: Replica) -> None:
        """Read what was missed, and follow from there."""

    @abstractmethod
    async def _turn(self, line: Line, replica: Replica) -> None:
        """Now and then ask for pages again, or change what is followed."""

    @abstractmethod
    def _push(self, event: Message) -> None:
        """A broadcast has come."""


class SeedPeer(Peer):
    """A client of the seed dialect."""

    dialect = Dialect.SEED
    _wanted: frozenset[str] = frozenset()
    """What to follow again after a while of following nothing."""

    def _item(self, draft: Draft) -> Message:
        return seed_item(draft, self.chance)

    async def _connect(self, line: Line) -> None:
        floor = self.world.model.high

        def take(payload: Message) -> None:
            self.world.model.watermark(payload["server_last_committed_id"], floor, line.where)
            is_right = payload["client_id"] == self.name
            is_right &= payload["global_last_committed_id"] == payload["server_last_committed_id"]
            self.world.model.require(is_right, line.where, f"connected as {payload}")

        asked = {"token": "any", "client_id": self.name, "last_committed_id": 0}
        await line.answer(await line.ask("connect", asked, "connected", take))

    async def _catch_up(self, line: Line, replica: Replica) -> None:
        names = replica.names or self._wanted
        await self._cycle(line, replica, names, names)

    async def _turn(self, line: Line, replica: Replica) -> None:
        odds = self.chance.random() / self.manner.restless
        if odds < 0.04:
            await self._cycle(line, replica, replica.names, None)
        elif odds < 0.08:
            fresh = sorted(set(self.world.names) - replica.names)
            if fresh:
                name = self.chance.choice(fresh)
                await self._cycle(line, replica, frozenset({name}), replica.names | {name})
        elif odds < 0.11 and len(replica.names) > 1:
            kept = frozenset(self.chance.sample(sorted(replica.names), len(replica.names) - 1))
            await self._cycle(line, replica, kept, kept)
        elif odds < 0.13:
            self._wanted = replica.names
            await self._cycle(line, replica, replica.names, frozenset())  # nothing is pushed until it follows again
            await asyncio.sleep(self.chance.uniform(*self.manner.pace_seconds))
            await self._catch_up(line, replica)
        elif odds < 0.18:
            await self._burst(line, replica)
        elif odds < 0.2:
            await line.answer(await line.ask("heartbeat", {}, "heartbeat_ack", lambda payload: None))

    async def _cycle(self, line: Line, replica: Replica, names: frozenset[str], follow: frozenset[str] | None) -> None:
        """One catch-up; `follow` replaces the subscription with its first page, and may be said again with others."""
        limit = self.chance.choice(self.manner.limits)
        repeats = self.chance.random() < 0.3
        cycle = replica.open(names, limit, self.world.model.high)
        more = True
        while more:
            asked: Message = {"partitions": sorted(names), "since_committed_id": cycle.since, "limit": limit}
            if follow is not None:
                asked["subscription_partitions"] = sorted(follow)
                replica.feed.asked = follow
            wanted, follow = follow, follow if repeats else None

            def take(payload: Message, wanted: frozenset[str] | None = wanted) -> None:
                self._page(line, replica, payload, wanted)

            await line.answer(await line.ask("sync", asked, "sync_response", take))
            more = replica.cycle is cycle
            if more and self.chance.random() < self.manner.cuts and not self.world.is_calm.is_set():
                raise LineLostError

    async def _burst(self, line: Line, replica: Replica) -> None:
        """Several syncs before the first answer, each with a subscription of its own; then the one that counts."""
        names = replica.names
        for _ in range(self.chance.randrange(1, 4)):
            some = frozenset(self.chance.sample(sorted(self.world.names), 2))
            follow = self.chance.choice((names, names | some, None))
            cycle = Cycle(some, self.chance.randrange(self.world.model.high + 2), 50, self.world.model.high)
            asked: Message = {"partitions": sorted(some), "since_committed_id": cycle.since, "limit": cycle.limit}
            if follow is not None:
                asked["subscription_partitions"] = sorted(follow)
                replica.feed.asked = follow

            def take(payload: Message, cycle: Cycle = cycle, follow: frozenset[str] | None = follow) -> None:
                self._page(line, replica, payload, follow, cycle)

            await line.ask("sync", asked, "sync_response", take)
        await self._cycle(line, replica, names, names)

    def _page(
        self,
        line: Line,
        replica: Replica,
        payload: Message,
        wanted: frozenset[str] | None,
        aside: Cycle | None = None,
    ) -> None:
        cycle, model = aside or replica.cycle, self.world.model
        assert cycle is not None
        if wanted is not None:
            replica.subscribe(wanted, payload["sync_to_committed_id"])
        echoed = payload["partitions"] == sorted(cycle.names)
        echoed &= payload["effective_subscriptions"] == sorted(replica.names)
        model.require(echoed, line.where, f"asked for {cycle.names} and {replica.names}: {payload}")
        for event in payload["events"]:
            model.shows(event, line.where)
        if aside is None:
            replica.page(seed_answer(payload))
        else:
            replica.page_aside(aside, seed_answer(payload))

    def _push(self, event: Message) -> None:
        self.world.model.shows(event, self._line.where)
        if self.replica is None:
            self.world.model.blame(self._line.where, f"a broadcast without a subscription: {event}")
        else:
            self.replica.push(event["committed_id"])


class ProjectPeer(Peer):
    """A client of 2.x: one project."""

    dialect = Dialect.PROJECT

    def _item(self, draft: Draft) -> Message:
        return project_item(draft, self.name)

    async def _connect(self, line: Line) -> None:
        floor = self.world.model.floor(self.project)

        def take(payload: Message) -> None:
            self.world.model.watermark(payload["projectLastCommittedId"], floor, line.where)
            is_right = (payload["clientId"], payload["projectId"]) == (self.name, self.project)
            self.world.model.require(is_right, line.where, f"connected as {payload}")

        asked = {"token": "any", "clientId": self.name, "projectId": self.project}
        await line.answer(await line.ask("connect", asked, "connected", take))

    async def _catch_up(self, line: Line, replica: Replica) -> None:
        limit = self.chance.choice(self.manner.limits)
        cycle = replica.open({self.project}, limit, self.world.model.floor(self.project))
        replica.feed.asked = frozenset({self.project})
        while replica.cycle is cycle:
            asked: Message = {"projectId": self.project, "sinceCommittedId": cycle.since, "limit": limit}
            await line.answer(await line.ask("sync", asked, "sync_response", self._page))

    async def _turn(self, line: Line, replica: Replica) -> None:
        if self.chance.random() < 0.04 * self.manner.restless:
            await self._catch_up(line, replica)

    def _page(self, payload: Message) -> None:
        replica, where = self.replica, self._line.where
        assert replica is not None
        if not replica.feed.steps:
            replica.subscribe(frozenset({self.project}), payload["syncToCommittedId"])
        replica.feed.asked = None
        self.world.model.require(payload["projectId"] == self.project, where, f"a page of another project: {payload}")
        for event in payload["events"]:
            self.world.model.shows_view(event, self.project, where)
        replica.page(project_answer(payload))

    def _push(self, event: Message) -> None:
        model, where = self.world.model, self._line.where
        model.shows_view(event, self.project, where)
        if self.replica is None:
            return model.blame(where, f"a broadcast without a sync: {event}")
        is_held = self.replica.cycle is None or self.replica.cycle.to is None
        model.require(is_held, where, f"a broadcast before the last page of a cycle: {event}")
        return self.replica.push(event["committedId"])
