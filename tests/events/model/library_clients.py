"""Clients of the library in a simulated run: writers on `AsyncClient` and `Client`, and a follower.

They repeat what has no answer by themselves. The follower is one feed over all its connections: what it was handed,
from its first event to its last, is the log.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from semel import AsyncClient, Client
from semel.client import CommittedEvent, Event, EventDraft, EventRejectedError
from semel.client.errors import CallError
from semel.client.retry import ENDLESS
from tests.events.model.drafts import Outbox
from tests.events.model.model import Draft, Feed, Message
from tests.events.model.peers import PACE_SECONDS, Manner, World, Writer
from tests.events.shapes import Dialect
from tests.harness.server import HOST

CLIENT_ID = "default"
"""Who a client without a credential is."""
Verdicts = Sequence[CommittedEvent | CallError]


class LibraryWriter(Writer):
    """Submits with `AsyncClient`."""

    def __init__(self, world: World, name: str, chance: random.Random, manner: Manner) -> None:
        super().__init__(world, name, chance)
        self.outbox = Outbox(world.model, CLIENT_ID, name)
        self._manner = manner
        self._url = f"http://{HOST}:{chance.choice(world.ports)}"
        self._calls = 0

    async def live(self) -> None:
        """Submit until the run is over and nothing waits."""
        async with AsyncClient(self._url, patience=ENDLESS) as client:
            while not (self.world.is_over.is_set() and not self.outbox.waiting):
                await asyncio.sleep(self.chance.uniform(*PACE_SECONDS))
                if not self.outbox.waiting:
                    self.think(self._manner.batch)
                self._calls -= 1
                batch = self.outbox.batch(0, self.chance.randrange(1, self._manner.batch + 1), self._calls)
                if batch:
                    results = _results(await self._submit(client, [_draft(one) for one in batch]))
                    self.outbox.settle(batch, results, Dialect.SEED)
                    self.remember(batch)

    async def _submit(self, client: AsyncClient, drafts: Sequence[EventDraft]) -> Verdicts:
        return await client.events.submit_many(drafts)

    def _new(self) -> Draft:
        """A draft that the library sends: it refuses most broken ones itself."""
        draft = super()._new()
        return draft if draft.is_valid else self._author.draft(self.name)


class ThreadedWriter(LibraryWriter):
    """Submits with the blocking `Client`, in a thread of its own."""

    async def live(self) -> None:
        """As any writer of the library."""
        with Client(self._url, patience=ENDLESS) as self._blocking, ThreadPoolExecutor(1) as self._thread:
            await super().live()

    async def _submit(self, client: AsyncClient, drafts: Sequence[EventDraft]) -> Verdicts:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._blocking.events.submit_many, drafts)


class LibraryTail:
    """Follows some partitions with `AsyncClient`."""

    def __init__(self, world: World, name: str, chance: random.Random, names: Sequence[str]) -> None:
        self.name = name
        self.names = frozenset(names)
        self.seen: list[int] = []
        self._world = world
        self._url = f"http://{HOST}:{chance.choice(world.ports)}"

    async def live(self) -> None:
        """Follow for ever."""
        feed = Feed(self.name, 0, [(0, self.names)])
        self._world.model.feeds.append(feed)
        async with AsyncClient(self._url) as client, client.events.follow(sorted(self.names)) as follower:
            async for event in follower:
                self._world.model.shows(_message(event), self.name)
                feed.ids.append(event.committed_id)
                self.seen.append(event.committed_id)


def _draft(draft: Draft) -> EventDraft:
    members = {name: value for name, value in draft.event.items() if name != "type"}
    return EventDraft(draft.event["type"], None, draft.partitions, draft.id, draft.if_watermark, members)


def _results(verdicts: Verdicts) -> list[Message]:
    return [_result(verdict) for verdict in verdicts]


def _result(verdict: CommittedEvent | CallError) -> Message:
    if isinstance(verdict, CommittedEvent):
        at = round(verdict.status_updated_at.timestamp() * 1_000)
        told = {"committed_id": verdict.committed_id, "status_updated_at": at}
        return {"id": verdict.id, "status": "committed"} | told
    assert isinstance(verdict, EventRejectedError), verdict
    return dict(verdict.facts)


def _message(event: Event) -> Message:
    return {
        "id": event.id,
        "client_id": event.client_id,
        "partitions": list(event.partitions),
        "committed_id": event.committed_id,
        "event": dict(event.event),
        "status_updated_at": round(event.committed_at.timestamp() * 1_000),
    }
