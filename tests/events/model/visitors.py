"""Plain HTTP clients of a simulated run: one that posts, one that tails, and one that reads everything again and again.

The one that posts breaks requests off and repeats them. The tail reconnects with `Last-Event-ID` and needs no dedupe at
all: what it was sent, over all its connections, is the log. The auditor reads all partitions from 0 at random moments;
each of its pages must still be true at the end, which is what "nothing appears late" means.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Sequence

import httpx

from tests.events.model.drafts import seed_item
from tests.events.model.lines import ANSWER_SECONDS, PATH
from tests.events.model.model import Draft, Feed, Log, Message, Model
from tests.events.model.peers import PACE_SECONDS, RETRY_SECONDS, Manner, World, Writer
from tests.events.model.replica import Replica, seed_answer
from tests.events.shapes import SEED, Dialect, is_shaped
from tests.harness.server import HOST

AUDIT_SECONDS = (0.2, 0.8)
AWAY = (503,)
"""What a server that stops answers; the request is repeated."""

_is_page = is_shaped({name: SEED["sync_response"][name] for name in SEED["sync_response"] if "effective" not in name})
_is_result = is_shaped(SEED["submit_events_result"])
_is_event = is_shaped(SEED["event_broadcast"])


def address(port: int) -> str:
    """The events of one node."""
    return f"http://{HOST}:{port}{PATH}"


class Poster(Writer):
    """Submits by POST."""

    def __init__(self, world: World, name: str, chance: random.Random, manner: Manner) -> None:
        super().__init__(world, name, chance)
        self._manner = manner
        self._posts = 0

    async def live(self) -> None:
        """Post until the run is over and nothing waits."""
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS) as http:
            while not (self.world.is_over.is_set() and not self.outbox.waiting):
                await asyncio.sleep(self.chance.uniform(*PACE_SECONDS))
                if not self.outbox.waiting:
                    self.think(self._manner.batch)
                self._posts -= 1  # each request is a connection of its own to the model, which numbers others from 1
                batch = self.outbox.batch(0, self.chance.randrange(1, self._manner.batch + 1), self._posts)
                if batch:
                    await self._post(http, batch)

    async def _post(self, http: httpx.AsyncClient, batch: Sequence[Draft]) -> None:
        body = {"client_id": self.name, "events": [seed_item(draft, self.chance) for draft in batch]}
        hasty = self.chance.random() < self._manner.cuts
        try:
            async with asyncio.timeout(self.chance.uniform(0, 0.01) if hasty else ANSWER_SECONDS):
                answer = await http.post(address(self.chance.choice(self.world.ports)), json=body)
        except (httpx.TransportError, TimeoutError):
            await asyncio.sleep(RETRY_SECONDS)
            return
        payload = answer.json() if answer.status_code == httpx.codes.OK else {}
        if _is_result(payload):
            self.outbox.settle(batch, payload["results"], Dialect.SEED)
            self.remember(batch)
        else:
            expected = answer.status_code in AWAY
            self.world.model.require(expected, self.name, f"{answer.status_code} {answer.text} for {body}")
            await asyncio.sleep(RETRY_SECONDS)


class Tail:
    """Follows some partitions by server-sent events."""

    def __init__(self, world: World, name: str, chance: random.Random, names: Sequence[str], cuts: float) -> None:
        self.name = name
        self.names = frozenset(names)
        self.seen: list[int] = []
        self._world = world
        self._chance = chance
        self._cuts = cuts

    async def live(self) -> None:
        """Follow for ever, connection after connection."""
        async with httpx.AsyncClient(timeout=httpx.Timeout(ANSWER_SECONDS, read=None)) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await self._one_connection(http)
                await asyncio.sleep(RETRY_SECONDS)

    async def _one_connection(self, http: httpx.AsyncClient) -> None:
        last = self.seen[-1] if self.seen else 0
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(last)} if last else {})
        url = address(self._chance.choice(self._world.ports))
        query = {"partition": sorted(self.names), "since": "0"}
        async with http.stream("GET", url, params=query, headers=headers) as answer:
            if answer.status_code != httpx.codes.OK:
                expected = answer.status_code in AWAY
                self._world.model.require(expected, self.name, f"{answer.status_code} for a tail after {last}")
                return
            feed = Feed(f"{self.name} after {last}", 0, [(last, self.names)])
            self._world.model.feeds.append(feed)
            async for frame in self._frames(answer):
                self._take(frame, feed)
                if not self._world.is_calm.is_set() and self._chance.random() < self._cuts / 10:
                    return

    async def _frames(self, answer: httpx.Response) -> AsyncIterator[dict[str, str]]:
        frame: dict[str, str] = {}
        rest = b""
        async for chunk in answer.aiter_raw():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line == b"" and frame:
                    yield frame
                    frame = {}
                elif line and not line.startswith(b":"):
                    name, _, value = line.decode().partition(":")
                    self._world.model.require(name not in frame, self.name, f"two lines {name} in one frame")
                    frame[name] = value.removeprefix(" ")

    def _take(self, frame: dict[str, str], feed: Feed) -> None:
        event = json.loads(frame.get("data", "null"))
        if set(frame) != {"id", "event", "data"} or frame["event"] != "event" or not _is_event(event):
            return self._world.model.blame(self.name, f"no frame of an event: {frame}")
        number = event["committed_id"]
        self._world.model.require(frame["id"] == str(number), self.name, f"the id of a frame: {frame}")
        self._world.model.require(number > (self.seen or [0])[-1], self.name, f"{number} after {self.seen[-1:]}")
        self._world.model.shows(event, self.name)
        feed.ids.append(number)
        return self.seen.append(number)


class Auditor:
    """Reads all partitions from 0, page by page."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance

    async def live(self) -> None:
        """Look again and again."""
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS) as http:
            while True:
                await asyncio.sleep(self._chance.uniform(*AUDIT_SECONDS))
                port = self._chance.choice(self._world.ports)
                limit = self._chance.choice((10, 100, 1_000))
                with contextlib.suppress(httpx.TransportError, _ServerAwayError):
                    await read_log(http, port, self._world.model, self._world.names, limit)


class Crowd:
    """Asks for the longest pages there are, several at a time, and looks at none: the server's readers are busy."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._count = count

    async def live(self) -> None:
        """Ask until the run is over."""
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS) as http:
            await asyncio.gather(*(self._one(http) for _ in range(self._count)))

    async def _one(self, http: httpx.AsyncClient) -> None:
        query = {"partition": list(self._world.names), "limit": "1000"}
        while not self._world.is_over.is_set():
            with contextlib.suppress(httpx.TransportError):
                await http.get(address(self._world.ports[0]), params=query)


class _ServerAwayError(Exception):
    """The server is stopping."""


async def read_log(
    http: httpx.AsyncClient, port: int, model: Model, names: Sequence[str], limit: int = 1_000
) -> list[Message]:
    """The whole log by GET, each page held against the rules."""
    replica = Replica(model, f"GET on port {port}", names, moves_on_broadcast=False)
    cycle = replica.open(names, limit, model.high)
    events: list[Message] = []
    while replica.cycle is cycle:
        query = {"partition": sorted(names), "since": str(cycle.since), "limit": str(limit)}
        answer = await http.get(address(port), params=query | ({} if cycle.to is None else {"to": str(cycle.to)}))
        if answer.status_code in AWAY:
            raise _ServerAwayError
        payload = answer.json()
        if answer.status_code != httpx.codes.OK or not _is_page(payload):
            model.blame(f"GET on port {port}", f"no page: {answer.status_code} {answer.text[:500]}")
            raise _ServerAwayError
        for event in payload["events"]:
            model.shows(event, f"GET on port {port}")
        events += payload["events"]
        replica.page(seed_answer(payload))
    return events


async def final_log(ports: Sequence[int], model: Model, names: Sequence[str]) -> Log:
    """The log when nothing changes any more, the same on every node."""
    async with httpx.AsyncClient(timeout=ANSWER_SECONDS) as http:
        logs = [await read_log(http, port, model, names) for port in ports]
    for log in logs[1:]:
        model.require(log == logs[0], "log", "two nodes have two logs")
    return Log(logs[0])
