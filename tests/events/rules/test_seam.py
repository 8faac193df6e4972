"""The seam between history and live: what is committed while a page is on its way belongs to exactly one of them.

A real engine, feed and subscriber. The test holds the look of a `sync` back between its snapshot and its answer, lets
the feed hand on what was committed since, and only then lets the answer go: the subscription counts from the page's
watermark, wherever the feed stands by then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import orjson
import pytest

from semel.engine.reading import Reading
from semel.surfaces.events.limits import EventLimits
from semel.surfaces.events.requests import SyncHandler
from semel.surfaces.events.service import CursorMonitor, EventService
from semel.surfaces.events.subscriber import SubscriberMode
from semel.surfaces.events.wire.camel_case_versions import CamelCaseV2
from semel.surfaces.events.wire.dialect import EventDialect, EventPolicy
from semel.surfaces.events.wire.messages import EventIdentity, Sync
from semel.surfaces.events.wire.session import EventSession
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect
from tests.events.rules.test_feed import Node, Sink, run, until

T = TypeVar("T")
TERMS = EventPolicy(EventLimits())


class Gate:
    """An engine whose looks see the log at once and come back when the gate is open."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.waiting = 0

    async def read(self, look: Callable[[Reading], T]) -> T:
        found = await self._node.engine.read(look)
        self.waiting += 1
        await self.is_open.wait()
        self.waiting -= 1
        return found


class Client:
    """One connection of a node, and what it was told: pages, and events that were sent live."""

    def __init__(self, node: Node, dialect: EventDialect) -> None:
        self.node = node
        self.gate = Gate(node)
        self.sink = Sink(b"client")
        self.subscriber = node.subscriber(self.sink)
        self.pages: list[Any] = []
        session = EventSession(TERMS, b"client")
        session.dialect = dialect
        session.activate(EventIdentity("client", lambda name: True, lambda name: True))
        near, watch = SimpleNamespace(engine=self.gate), CursorMonitor(Counter(), lambda: 0)
        service = cast(EventService, SimpleNamespace(context=near, policy=TERMS, feed=node.feed, cursors=watch))
        self.looks = SyncHandler(
            service, "", session, self.subscriber, self._tell, lambda principal, instance: True, lambda: None
        )

    def _tell(self, kind: str, payload: bytes, reply_to: str | None) -> None:
        assert kind == "sync_response"
        self.pages.append(orjson.loads(payload))

    async def sync(self, names: Sequence[str], since: int, subscription: Sequence[str] | None, limit: int = 500) -> Any:
        """One page."""
        await self.looks.sync(
            Sync(tuple(names), since, limit, None if subscription is None else tuple(subscription)), None
        )
        return self.pages[-1]

    async def sync_while(self, commits: Callable[[], Any], *asked: Any) -> Any:
        """One page whose snapshot is older than what is committed, and handed on to others, before it is answered."""
        self.gate.is_open.clear()
        syncing = asyncio.create_task(self.sync(*asked))
        await until(lambda: self.gate.waiting == 1)
        await commits()
        self.gate.is_open.set()
        return await syncing


async def onlooker(node: Node) -> Sink:
    """Somebody else who is live, so that the feed moves."""
    sink = Sink(b"onlooker")
    other = node.subscriber(sink)
    other.subscribe(0, frozenset("pq"))
    other.release()
    await until(lambda: other.mode is SubscriberMode.LIVE)
    return sink


BEFORE: dict[str, list[tuple[Any, ...]]] = {
    "a first subscription": [],
    "a partition more": [(["q"], 0, ["q"])],
    "another partition": [(["q"], 0, ["q"])],
    "the same again": [(["p"], 0, ["p"])],
    "again after none": [(["p"], 0, ["p"]), (["p"], 0, [])],
}
WANTED = {"a partition more": ["p", "q"]}


@pytest.mark.parametrize("case", BEFORE)
def test_c3_what_is_committed_while_a_page_is_on_its_way_is_sent_live(case: str) -> None:
    wanted = WANTED.get(case, ["p"])

    async def scenario() -> None:
        node = Node()
        seen = await onlooker(node)
        client = Client(node, SnakeCaseDialect())
        await node.commit("e1")
        for asked in BEFORE[case]:
            await client.sync(*asked)

        async def commits() -> None:
            await node.commit("e2")
            await node.commit("e3", "e4", names=("p", "q"))
            await until(lambda: seen.sent == [1, 2, 3, 4])
            assert node.feed.position == 4, "the feed has passed what the page does not have"

        page = await client.sync_while(commits, ["p"], 0, wanted)
        assert [event["committed_id"] for event in page["events"]] == [1]
        assert page["sync_to_committed_id"] == 1
        await node.commit("e5")
        await until(lambda: client.sink.sent[-1:] == [5])
        assert client.sink.sent == [2, 3, 4, 5]
        await node.stop()

    run(scenario())


def test_c3_what_is_committed_while_a_2x_cycle_pages_is_sent_behind_its_last_page() -> None:
    async def scenario() -> None:
        node = Node()
        seen = await onlooker(node)
        client = Client(node, CamelCaseV2("p"))
        await node.commit("e1", "e2")

        async def first() -> None:
            await node.commit("e3")
            await until(lambda: seen.sent == [1, 2, 3])

        async def second() -> None:
            await node.commit("e4")
            await until(lambda: seen.sent == [1, 2, 3, 4])

        page = await client.sync_while(first, ["p"], 0, ["p"], 1)
        assert (page["syncToCommittedId"], page["hasMore"], client.sink.sent) == (2, True, [])
        page = await client.sync_while(second, ["p"], 1, ["p"], 1)
        assert [event["committedId"] for event in page["events"]] == [2]
        assert (page["syncToCommittedId"], page["hasMore"]) == (2, False)
        await until(lambda: client.sink.sent == [3, 4])
        await node.stop()

    run(scenario())
