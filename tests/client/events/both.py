"""What the tests of the events client share: both clients, and the events that they read."""

from __future__ import annotations

from typing import Any

from tests.client.both import client_of

KINDS = ("async", "blocking")
opened = client_of


async def taken(follower: Any, count: int) -> list[Any]:
    """The next events of a follower."""
    return [await anext(follower) for _ in range(count)]


async def history(events: Any, room: str) -> list[Any]:
    """All events of a partition, page by page."""
    page = await events.read(room)
    found = list(page.events)
    while page.has_more:
        page = await events.read(room, since=page.cursor, to=page.sync_to)
        found += page.events
    return found
