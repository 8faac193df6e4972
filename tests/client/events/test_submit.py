"""Submitting events: what is committed, replayed, rejected, split and refused."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from semel.client import (
    CommittedEvent,
    EventConflictError,
    EventDraft,
    EventRejectedError,
    OutcomeUnknown,
    Patience,
    WatermarkMismatchError,
)
from semel.client.errors import (
    AccessError,
    BusyError,
    GoneError,
    InvalidArgumentError,
    NoAnswerError,
    NotFoundError,
    TooLargeError,
)
from semel.client.identity import EventSubmission
from tests.client.events.both import history, opened
from tests.client.forging_proxy import ForgingProxy
from tests.client.names import TOKEN, fresh
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("_quick")


async def test_an_event_is_committed_replayed_and_found(server: RunningServer, kind: str) -> None:
    room, other = fresh("room"), fresh("room")
    async with opened(kind, server.url) as client:
        events = client.events
        first = await events.submit("order.placed", {"qty": 2}, partitions=[room, other], id=f"{room}-1")
        assert (first.id, first.replayed) == (f"{room}-1", False)
        again = await events.submit("order.placed", {"qty": 2.0}, partitions=[other, room], id=f"{room}-1")
        assert again.replayed
        assert (again.committed_id, again.status_updated_at) == (first.committed_id, first.status_updated_at)
        found = await events.get(f"{room}-1")
        assert (found.type, found.data, set(found.partitions)) == ("order.placed", {"qty": 2}, {room, other})
        assert (found.committed_id, found.committed_at) == (first.committed_id, first.status_updated_at)
        assert found.cursor.committed_id == first.committed_id
        told = await client.resolve(EventSubmission(f"{room}-1"))
        assert told.is_committed
        assert told.facts["committed_id"] == first.committed_id
        assert not (await client.resolve(EventSubmission("never sent"))).is_committed
        with pytest.raises(NotFoundError):
            await events.get("never sent")


async def test_members_beside_the_payload_and_none_of_it(server: RunningServer, kind: str) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        await client.events.submit("bare", partitions=room)
        await client.events.submit("more", [1], partitions=room, members={"note": "x"})
        bare, more = await history(client.events, room)
        assert (bare.data, dict(bare.event)) == (None, {"type": "bare"})
        assert dict(more.event) == {"note": "x", "type": "more", "payload": [1]}
        assert bare.id < more.id  # ids of their own are time-ordered


async def test_other_content_and_other_watermarks_are_typed_errors(server: RunningServer, kind: str) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        events = client.events
        first = await events.submit("t", 1, partitions=room, id=f"{room}-1", if_watermark=0)
        with pytest.raises(EventConflictError) as conflict:
            await events.submit("t", 2, partitions=room, id=f"{room}-1")
        assert (conflict.value.event_id, conflict.value.code) == (f"{room}-1", "validation_failed")
        with pytest.raises(WatermarkMismatchError) as mismatch:
            await events.submit("t", 2, partitions=room, id=f"{room}-2", if_watermark=0)
        assert mismatch.value.watermark == first.committed_id
        second = await events.submit("t", 2, partitions=room, id=f"{room}-2", if_watermark=mismatch.value.watermark)
        assert (await events.submit("t", 1, partitions=room, id=f"{room}-1", if_watermark=0)).replayed
        assert [one.committed_id for one in await history(events, room)] == [
            first.committed_id,
            second.committed_id,
        ]


async def test_a_rejected_event_raises_alone_and_is_a_verdict_among_others(server: RunningServer, kind: str) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        with pytest.raises(EventRejectedError) as one:
            await client.events.submit("t", 2**53 + 1, partitions=room)
        assert one.value.faults
        with pytest.raises(EventRejectedError):
            await client.events.submit("init", partitions=room)
        drafts = [EventDraft("t", n, room) for n in range(3)]
        drafts[1] = EventDraft("init", None, room, f"{room}-bad")
        first, bad, last = await client.events.submit_many(drafts)
        assert isinstance(bad, EventRejectedError)
        assert bad.event_id == f"{room}-bad"
        assert isinstance(first, CommittedEvent)
        assert first.committed_id < last.committed_id
        assert len(await history(client.events, room)) == 2


async def test_many_events_are_split_by_the_limits_of_the_server(server: RunningServer, kind: str) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        drafts = [EventDraft("t", "x" * 1_500, room, f"{room}-{n:04}") for n in range(250)]
        drafts[7] = EventDraft("t", "x" * 70_000, room, f"{room}-large")  # more than a request may have
        verdicts = await client.events.submit_many(drafts)
        large = verdicts.pop(7)
        assert isinstance(large, TooLargeError | EventRejectedError)
        del drafts[7]
        assert [one.id for one in verdicts] == [one.id for one in drafts]
        assert [one.id for one in await history(client.events, room)] == [one.id for one in drafts]
        assert await client.events.submit_many([]) == []


@pytest.mark.parametrize(
    "call",
    [
        {"event_type": ""},
        {"event_type": 5},
        {"id": ""},
        {"id": 7},
        {"partitions": []},
        {"partitions": [""]},
        {"partitions": [5]},
        {"data": math.nan},
        {"data": {1, 2}},
    ],
)
async def test_arguments_that_cannot_be_sent_are_refused_in_one_sentence(
    server: RunningServer, kind: str, call: dict[str, Any]
) -> None:
    async with opened(kind, "http://127.0.0.1:1") as client:  # nothing is sent
        arguments = {"event_type": "t", "data": 1, "partitions": "p"} | call
        with pytest.raises(InvalidArgumentError) as refused:
            await client.events.submit(arguments.pop("event_type"), arguments.pop("data"), **arguments)
        assert str(refused.value).endswith(".")


async def test_one_id_twice_in_one_call_sends_nothing(server: RunningServer, kind: str) -> None:
    async with opened(kind, server.url) as client:
        with pytest.raises(InvalidArgumentError):
            await client.events.submit_many([EventDraft("t", 1, "p", "same"), EventDraft("t", 1, "p", "same")])
        with pytest.raises(NotFoundError):
            await client.events.get("same")


@pytest.mark.parametrize(
    ("answer", "found", "is_unsettled"),
    [
        ((503, b'{"code":"rate_limited","detail":"Too many.","retry":"later"}'), BusyError, False),
        ((503, b'{"code":"not_durable","detail":"Full.","retry":"same_key"}'), OutcomeUnknown, True),
        ((302, b""), OutcomeUnknown, True),
        ((200, b"<html>"), OutcomeUnknown, True),
        ((200, b'{"results":[]}'), OutcomeUnknown, True),
    ],
)
async def test_events_after_a_request_without_a_definite_answer_are_not_sent(
    server: RunningServer, kind: str, answer: tuple[int, bytes], found: type[Exception], is_unsettled: bool
) -> None:
    room = fresh("room")
    with ForgingProxy(server.url) as proxy:
        async with opened(kind, proxy.url, patience=Patience(tries=2)) as client:
            proxy.instead.extend([None, answer, answer, None])
            verdicts = await client.events.submit_many([EventDraft("n", n, room) for n in range(250)])
            assert [type(one) for one in verdicts] == [CommittedEvent] * 100 + [found] * 100 + [NoAnswerError] * 50
            assert {one.is_unsettled for one in verdicts[100:200]} == {is_unsettled}
            if is_unsettled:
                assert len({one.identity for one in verdicts[100:200]}) == 100
            proxy.instead.clear()
            assert [one.data for one in await history(client.events, room)] == list(range(100))


async def test_a_credential_is_needed_and_is_not_shown(strict: RunningServer, kind: str) -> None:
    async with opened(kind, strict.url, token="a-wrong-token") as client:
        with pytest.raises(AccessError) as refused:
            await client.events.submit("t", partitions="p")
        assert "a-wrong-token" not in str(refused.value)
        with pytest.raises(AccessError):
            await client.events.submit_many([EventDraft("t", n, "p") for n in range(150)])
        with pytest.raises(AccessError):
            await anext(client.events.follow("p"))
    async with opened(kind, strict.url, token=TOKEN) as client:
        assert not (await client.events.submit("t", partitions="p")).replayed


async def test_pages_lists_and_the_end_of_partitions(server: RunningServer, kind: str) -> None:
    room, other = fresh("room"), fresh("room")
    async with opened(kind, server.url) as client:
        events = client.events
        drafts = [EventDraft("even" if n % 2 == 0 else "odd", n, room if n < 8 else other) for n in range(10)]
        verdicts = await events.submit_many(drafts)
        ids = [one.committed_id for one in verdicts]
        page = await events.read([room, other], limit=4)
        assert ([one.data for one in page.events], page.has_more) == ([0, 1, 2, 3], True)
        page = await events.read([room, other], since=page.cursor, to=page.sync_to, limit=100)
        assert ([one.data for one in page.events], page.has_more) == ([4, 5, 6, 7, 8, 9], False)
        assert [one.data for one in (await events.read(room, types="odd")).events] == [1, 3, 5, 7]
        last = await events.last(room, 3)
        assert [one.data for one in last.events] == [5, 6, 7]
        before = await events.last(room, 3, before=last.next_before, types=["even", "odd"])
        assert [one.data for one in before.events] == [2, 3, 4]
        assert (await events.end(room)).committed_id == ids[-1]
        listed = await events.partitions(room)
        assert [(one.name, one.watermark, one.first_committed_id, one.events) for one in listed.partitions] == [
            (room, ids[7], ids[0], 8)
        ]
        assert listed.next_after is None
        assert [one async for one in events.walk_partitions(room)] == listed.partitions
        assert (await events.partitions(limit=1)).next_after is not None
        with pytest.raises(InvalidArgumentError):
            await events.read([])
        with pytest.raises(InvalidArgumentError):
            await events.read("\ud800")
        with pytest.raises(InvalidArgumentError):
            await events.read(room, since=-1)


def test_a_deleted_event_is_still_known_by_its_id(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    env = {"SEMEL_EVENTS_RETENTION_MS": "50", "SEMEL_SWEEP_INTERVAL_MS": "50"}

    async def main(url: str) -> None:
        async with opened(kind, url) as client:
            done = await client.events.submit("t", 1, partitions="p", id="gone")
            for _ in range(600):
                try:
                    await client.events.get("gone")
                except GoneError:
                    break
                await asyncio.sleep(0.05)
            told = await client.resolve(EventSubmission("gone"))
            assert told.is_committed
            assert told.facts["committed_id"] == done.committed_id

    with RunningServer(tmp_path_factory.mktemp("pruned") / "data", env=env) as server:
        asyncio.run(main(server.url))
