"""Consumer groups and snapshots with the client."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from semel.client import EventDraft, EventsPrunedError
from semel.client.errors import ConflictError, GoneError, InvalidArgumentError, NotFoundError
from semel.client.events.groups import AsyncEventGroups
from tests.client.cutter import Cutter
from tests.client.events.both import opened, taken
from tests.client.names import fresh
from tests.client.wiretap import Wiretap
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("_quick")


async def submitted(client: Any, room: str, count: int) -> list[int]:
    """Commit events whose payload is their number."""
    verdicts = await client.events.submit_many([EventDraft("n", number, room) for number in range(count)])
    return [one.committed_id for one in verdicts]


def numbers(events: Any) -> list[Any]:
    """The payloads of leased events."""
    return [one.event.data for one in events]


def test_a_group_is_created_fetched_acknowledged_and_deleted(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        room, name = fresh("room"), fresh("group/with spaces")
        async with opened(kind, server.url) as client:
            groups = client.events.groups
            ids = await submitted(client, room, 5)
            made = await groups.create(name, room, lease=600, batch=3)
            assert (made.name, made.partitions, made.replayed) == (name, (room,), False)
            assert (await groups.create(name, room, lease=600, batch=3)).replayed
            with pytest.raises(ConflictError):
                await groups.create(name, room, lease=5)
            first = await groups.fetch(name, "a")
            assert (numbers(first.events), first.replayed) == ([0, 1, 2], False)
            assert await groups.ack(first, first.events[:2]) == 2
            await groups.extend(first)
            assert await groups.nack(first, first.events[2:], reason="later") == 1
            again = await groups.fetch(name, "b", batch=10)
            assert [(one.event.data, one.deliveries) for one in again.events] == [(2, 2), (3, 1), (4, 1)]
            assert await groups.ack(again) == 3
            assert await groups.ack(await groups.fetch(name, "b")) == 0
            shown = await groups.get(name)
            assert (shown.acked, shown.pending, shown.floor_committed_id) == (5, 0, ids[-1])
            with pytest.raises(ConflictError):
                await groups.ack(first, first.events[2:])
            assert name in [one.name for one in (await groups.list(limit=100)).groups]
            assert name in [one.name async for one in groups.walk()]
            await groups.reset(name, ids[2])
            assert numbers((await groups.fetch(name, "c")).events) == [3, 4]
            assert await groups.delete(name)
            assert not await groups.delete(name)
            with pytest.raises(NotFoundError):
                await groups.get(name)
            with pytest.raises(InvalidArgumentError):
                await groups.get("")

    asyncio.run(main())


def test_a_consumer_acknowledges_each_event_when_it_asks_for_the_next(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        room, name = fresh("room"), fresh("group")
        async with opened(kind, server.url) as client:
            groups = client.events.groups
            await submitted(client, room, 7)
            await groups.create(name, room, lease=600, batch=3)
            consumer = groups.consume(name, "a", wait=0, ends=True)
            assert numbers(await taken(consumer, 2)) == [0, 1]
            assert (await groups.get(name)).acked == 1
            await consumer.nack(reason="not now")
            found = [(one.event.data, one.deliveries) async for one in consumer]
            assert found == [(1, 2), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)]
            assert (await groups.get(name)).acked == 7
            await consumer.aclose()
            waiting = groups.consume(name, "a", wait=20)
            next_one = asyncio.ensure_future(anext(waiting))
            await submitted(client, room, 1)
            assert (await next_one).event.data == 0
            await waiting.extend()
            await waiting.aclose()

    asyncio.run(main())


def test_a_consumer_on_a_bad_line_gets_each_event_once(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        room, name = fresh("room"), fresh("group")
        async with Cutter(server.port) as cutter, opened(kind, cutter.url) as client:
            groups = client.events.groups
            await submitted(client, room, 6)
            for end in (f"/{name}", "/fetch", "/ack", "/nack"):
                cutter.cut_answer(end, times=2)
            assert (await groups.create(name, room, lease=600, batch=2)).replayed
            consumer = groups.consume(name, "a", wait=0, ends=True)
            assert (await anext(consumer)).event.data == 0
            await consumer.nack()
            found = [(one.event.data, one.deliveries) async for one in consumer]
            assert found == [(0, 2), *((number, 1) for number in range(1, 6))]
            assert len(cutter.cuts) == 8

    asyncio.run(main())


def test_a_consumer_without_events_does_not_ask_all_the_time(server: RunningServer) -> None:
    async def main() -> None:
        room, name = fresh("room"), fresh("group")
        async with Wiretap(server.port) as tap, opened("async", tap.url) as client:
            groups = client.events.groups
            await groups.create(name, room)
            consumer = groups.consume(name, "a", wait=0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 2.5)
            assert 2 <= tap.count("POST fetch") <= 4
            await submitted(client, room, 1)
            assert (await anext(consumer)).event.data == 0
            await consumer.aclose()

    asyncio.run(main())


def test_a_consumer_ends_after_its_time_although_the_server_answers_at_once(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = AsyncEventGroups.fetch

    async def hasty(groups: AsyncEventGroups, name: str, member: str, **options: Any) -> Any:
        """A server on which too many fetches wait."""
        return await fetch(groups, name, member, **options | {"wait": 0.0})

    async def main() -> None:
        room, name = fresh("room"), fresh("group")
        async with opened("async", server.url) as client:
            groups = client.events.groups
            await groups.create(name, room)
            monkeypatch.setattr(AsyncEventGroups, "fetch", hasty)
            consumer = groups.consume(name, "a", wait=2.5, ends=True)
            first = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0.3)
            await submitted(client, room, 1)
            assert (await first).event.data == 0
            began = time.monotonic()
            assert [one async for one in consumer] == []
            assert time.monotonic() - began >= 2.4

    asyncio.run(main())


def test_a_deleted_group_ends_its_consumers(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        room, name = fresh("room"), fresh("group")
        async with opened(kind, server.url) as client:
            groups = client.events.groups
            await submitted(client, room, 3)
            await groups.create(name, room, lease=600)
            consumer, other = (groups.consume(name, member, wait=20) for member in "ab")
            assert (await anext(consumer)).event.data == 0
            waiting = asyncio.ensure_future(anext(other))
            await asyncio.sleep(0.3)
            assert await groups.delete(name)
            with pytest.raises(NotFoundError):
                await waiting
            with pytest.raises(NotFoundError):
                await anext(consumer)
            await consumer.aclose()
            await other.aclose()

    asyncio.run(main())


def test_events_that_fail_too_often_are_parked(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        room, name = fresh("room"), fresh("group")
        async with opened(kind, server.url) as client:
            groups = client.events.groups
            await submitted(client, room, 2)
            await groups.create(name, room, lease=600, max_deliveries=2)
            consumer = groups.consume(name, "a", wait=0, ends=True)
            found = []
            async for one in consumer:
                found.append(one.event.data)
                if one.event.data == 0:
                    await consumer.nack(reason="no stock")
            assert found == [0, 0, 1]
            parked = await groups.parked(name)
            assert [(one.reason, one.deliveries, one.event.data) for one in parked.events] == [("no stock", 2, 0)]
            assert parked.next_after is None
            assert [one async for one in groups.walk_parked(name)] == parked.events
            assert await groups.replay(name, parked.events) == 1
            assert numbers((await groups.fetch(name, "a")).events) == [0]
            assert await groups.drop(name, parked.events) == 0
            assert (await groups.drop(name, []), await groups.replay(name, [])) == (0, 0)

    asyncio.run(main())


async def pruned(server: RunningServer, client: Any, event_id: str) -> None:
    """Let retention delete all events, of which this is the last."""
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start, {"SEMEL_EVENTS_RETENTION_MS": "1", "SEMEL_SWEEP_INTERVAL_MS": "20"})
    for _ in range(1_000):
        try:
            await client.events.get(event_id)
        except GoneError:
            break
        await asyncio.sleep(0.02)
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


def test_a_consumer_is_told_of_pruned_events_also_after_a_lost_answer(kind: str, tmp_path: Path) -> None:
    async def main(server: RunningServer) -> None:
        async with Cutter(server.port) as cutter, opened(kind, cutter.url) as client:
            groups = client.events.groups
            await groups.create("g", "p", lease=600)
            ids = await submitted(client, "p", 2)
            await pruned(server, client, (await client.events.last("p")).events[0].id)
            await submitted(client, "p", 3)
            cutter.cut_answer("/fetch")
            consumer = groups.consume("g", "a", wait=0, ends=True)
            with pytest.raises(EventsPrunedError) as gap:
                await anext(consumer)
            assert gap.value.next_cursor.committed_id == ids[-1]
            assert (await anext(consumer)).event.data == 0
            await consumer.nack()
            assert numbers([one async for one in consumer]) == [0, 1, 2], "it is told once"
            assert len(cutter.cuts) == 1

    with RunningServer(tmp_path / "data") as server:
        asyncio.run(main(server))


def test_snapshots_are_stored_once_and_join_a_pruned_log(kind: str, tmp_path: Path) -> None:
    async def main(server: RunningServer) -> None:
        async with opened(kind, server.url) as client:
            snapshots = client.events.snapshots
            ids = await submitted(client, "p", 3)
            with pytest.raises(NotFoundError):
                await snapshots.get("p")
            stored = await snapshots.put("p", ids[2], b'{"sum":3}', content_type="application/json")
            assert (stored.committed_id, stored.replayed, stored.superseded) == (ids[2], False, False)
            again = await snapshots.put("p", ids[2], b'{"sum":3}', content_type="application/json")
            assert again.replayed
            with pytest.raises(ConflictError):
                await snapshots.put("p", ids[2], b"{}", content_type="application/json")
            old = await client.events.get((await client.events.last("p")).events[0].id)
            await pruned(server, client, old.id)
            await submitted(client, "p", 1)
            follower = client.events.follow("p")
            with pytest.raises(EventsPrunedError) as gap:
                await anext(follower)
            assert gap.value.has_snapshot
            found = await snapshots.get("p")
            assert (found.value(), found.committed_id) == ({"sum": 3}, ids[2])
            await follower.accept(gap.value, at=found.committed_id)
            assert (await anext(follower)).data == 0
            await follower.aclose()
            assert [one.committed_id for one in await snapshots.list("p")] == [ids[2]]
            assert await snapshots.delete("p", ids[2])
            assert not await snapshots.delete("p", ids[2])

    with RunningServer(tmp_path / "data") as server:
        asyncio.run(main(server))
