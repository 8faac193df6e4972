"""A line that is cut behind every byte of a request and of an answer: each event is committed and handed over once.

A run tries a seventh of the bytes, by the day.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from semel.client import EventDraft
from tests.client.both import EACH_LOOP, network_of
from tests.client.cut_network import CutNetwork
from tests.client.events.both import history, opened, taken
from tests.client.names import fresh
from tests.harness.server import RunningServer
from tests.harness.share import due

pytestmark = EACH_LOOP

COUNT = 2
SIDES = pytest.mark.parametrize("side", ["request", "answer"])
Call = Callable[[Any, str], Awaitable[Any]]


class Line:
    """A server behind a line that can be cut."""

    def __init__(self, server: RunningServer, kind: str, side: str) -> None:
        self._server = server
        self._kind = kind
        self._side = side

    async def places(self, call: Call) -> range:
        """The bytes behind which the line can be cut during a call."""
        network = CutNetwork(network_of(self._kind))
        async with opened(self._kind, self._server.url, network=network) as client:
            await call(client, "measured")
        return range(network.sent if self._side == "request" else network.received)

    async def cut(self, place: int, call: Call) -> Any:
        """The result of a call whose line is cut once, behind a byte."""
        network = CutNetwork(network_of(self._kind))
        setattr(network, f"{self._side}_left", place)
        async with opened(self._kind, self._server.url, network=network) as client:
            found = await call(client, str(place))
        assert network.cuts == 1, place
        return found


@SIDES
def test_a_submission_cut_behind_every_byte_is_one_event(server: RunningServer, kind: str, side: str) -> None:
    room = fresh("room")

    async def submit(client: Any, name: str) -> Any:
        return await client.events.submit("order.placed", {"qty": 2}, partitions=room, id=f"{room}-{name:>08}")

    async def main() -> None:
        line = Line(server, kind, side)
        places = due(await line.places(submit))
        answers = [await line.cut(place, submit) for place in places]
        async with opened(kind, server.url) as client:
            found = [one.id for one in await history(client.events, room)]
        assert len(found) == len(places) + 1 == len(set(found))
        # A request that did not arrive whole is not committed. One whose answer was cut is, and its retry is told so.
        assert [one.replayed for one in answers] == [side == "answer"] * len(places)

    asyncio.run(main())


@SIDES
def test_a_batch_cut_behind_every_byte_is_committed_once_and_in_order(
    server: RunningServer, kind: str, side: str
) -> None:
    room = fresh("room")

    async def submit(client: Any, name: str) -> Any:
        drafts = [EventDraft("n", n, room, f"{room}-{name:>08}-{n}") for n in range(COUNT)]
        return await client.events.submit_many(drafts)

    async def main() -> None:
        line = Line(server, kind, side)
        for place in due((await line.places(submit))[::5]):
            verdicts = await line.cut(place, submit)
            assert [one.replayed for one in verdicts] == [side == "answer"] * COUNT
            assert sorted(one.committed_id for one in verdicts) == [one.committed_id for one in verdicts]
        async with opened(kind, server.url) as client:
            found = [one.id for one in await history(client.events, room)]
            assert len(found) == len(set(found))

    asyncio.run(main())


@SIDES
def test_a_follower_cut_behind_every_byte_hands_each_event_over_once(
    server: RunningServer, kind: str, side: str
) -> None:
    room = fresh("room")

    async def follow(client: Any, name: str) -> list[str]:
        follower = client.events.follow(room)
        found = [one.id for one in await taken(follower, COUNT)]
        await follower.aclose()
        return found

    async def main() -> None:
        async with opened(kind, server.url) as client:
            drafts = [EventDraft("n", n, room, f"{room}-{n}") for n in range(COUNT)]
            expected = [one.id for one in await client.events.submit_many(drafts)]
        line = Line(server, kind, side)
        for place in due(await line.places(follow)):
            assert await line.cut(place, follow) == expected, place

    asyncio.run(main())
