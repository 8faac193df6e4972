"""A client of a simulated run that follows by WebSocket as the guide says, with one cursor, and often breaks off."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from tests.events.model.lines import Line, LineLostError, dial
from tests.events.model.model import Message
from tests.events.model.peers import RETRY_SECONDS, World
from tests.events.naive import NaiveFollower
from tests.events.shapes import Dialect


class NaiveTail:
    """A client that only follows, in the seed dialect."""

    def __init__(self, world: World, name: str, chance: random.Random, names: Sequence[str], cuts: float) -> None:
        self.name = name
        self.names = frozenset(names)
        self._world = world
        self._chance = chance
        self._cuts = cuts
        self._follower = NaiveFollower()
        self._has_more = True

    @property
    def seen(self) -> Sequence[int]:
        """The events that it has got."""
        return self._follower.seen

    async def live(self) -> None:
        """Follow for ever, connection after connection."""
        while True:
            with contextlib.suppress(LineLostError):
                await self._one_connection()
            await asyncio.sleep(RETRY_SECONDS)

    async def _one_connection(self) -> None:
        port = self._chance.choice(self._world.ports)
        line = await dial(port, Dialect.SEED, self._world.model, self.name, self._push)
        listening = asyncio.create_task(line.listen(self._chance, lambda: False))
        try:
            await line.answer(
                await line.ask("connect", {"token": "any", "client_id": self.name}, "connected", lambda payload: None)
            )
            self._follower.connected()
            self._has_more = True
            while self._has_more:
                await self._page(line)
                self._may_break()
            while not line.is_lost:
                await asyncio.sleep(RETRY_SECONDS)
                self._may_break()
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            await line.close()

    async def _page(self, line: Line) -> None:
        names = sorted(self.names)
        place: Message = {"since_committed_id": self._follower.cursor, "limit": self._chance.choice((1, 3, 20))}
        asked = {"partitions": names, "subscription_partitions": names} | place
        await line.answer(await line.ask("sync", asked, "sync_response", self._take))

    def _take(self, payload: Message) -> None:
        self._has_more = payload["has_more"]
        ids = [event["committed_id"] for event in payload["events"]]
        self._follower.page(ids, payload["next_since_committed_id"], has_more=self._has_more)

    def _push(self, event: Message) -> None:
        self._world.model.shows(event, self.name)
        self._follower.live(event["committed_id"])

    def _may_break(self) -> None:
        if not self._world.is_calm.is_set() and self._chance.random() < self._cuts:
            raise LineLostError
