"""Frames and pages that bring an event twice: a known event is skipped, and another event in its place is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semel.client import Cursor, EventReplacedError, LogBehindError
from semel.client.events import follow
from tests.client.both import EACH_LOOP
from tests.client.events.both import opened, taken
from tests.client.raw_server import Behaviour, in_turn, raw_server, request_of

pytestmark = pytest.mark.usefixtures("_quick")

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nEvents-Log-Epoch: 0\r\nConnection: close\r\n"


def facts(place: int, event_id: str) -> dict[str, Any]:
    """An event as the server sends it; its payload is its place."""
    event = {"type": "n", "payload": place}
    more = {"client_id": "c", "partitions": ["p"], "status_updated_at": 0}
    return {"id": event_id, "committed_id": place, "event": event, **more}


def frame(place: int, event_id: str) -> bytes:
    """A frame of an event stream."""
    return b"id: %d\nevent: event\ndata:%s\n\n" % (place, json.dumps(facts(place, event_id)).encode())


def stream(*frames: bytes, since: int | None = None) -> Behaviour:
    """A stream of these frames, which then ends."""
    head = HEAD + (b"" if since is None else b"Events-Since: %d\r\n" % since)
    return lambda connection, _: (
        connection.sendall(head + b"\r\n" + b"".join(frames)) if request_of(connection) else None
    )


def page(*events: dict[str, Any]) -> Behaviour:
    """A page of these events, the last one."""
    last = events[-1]["committed_id"]
    told = {"next_since_committed_id": last, "sync_to_committed_id": last, "has_more": False, "log_epoch": 0}
    body = json.dumps({"partitions": ["p"], "events": events, **told}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return lambda connection, _: connection.sendall(head + body) if request_of(connection) else None


@EACH_LOOP
async def test_a_frame_that_comes_twice_is_skipped(kind: str) -> None:
    first = stream(frame(3, "a"), frame(3, "a"), frame(7, "b"), frame(3, "a"), frame(7, "b"))
    with raw_server(in_turn(first, stream(frame(7, "b"), frame(9, "c"), since=7))) as url:
        async with opened(kind, url) as client:
            follower = client.events.follow("p")
            assert [one.id for one in await taken(follower, 3)] == ["a", "b", "c"]
            assert follower.cursor == Cursor(0, 9)
            await follower.aclose()


@EACH_LOOP
async def test_a_frame_from_before_the_cursor_is_skipped(kind: str) -> None:
    with raw_server(stream(frame(5, "a"), frame(6, "b"), frame(7, "c"), since=6)) as url:
        async with opened(kind, url) as client:
            follower = client.events.follow("p", cursor=Cursor(0, 6))
            assert (await anext(follower)).id == "c"
            await follower.aclose()


@EACH_LOOP
async def test_a_page_that_has_an_event_twice_hands_it_over_once(kind: str) -> None:
    with raw_server(page(facts(3, "a"), facts(3, "a"), facts(7, "b"), facts(3, "a"))) as url:
        async with opened(kind, url) as client:
            found = [one.id async for one in client.events.follow("p", live=False)]
            assert found == ["a", "b"]


@EACH_LOOP
@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize(("place", "known"), [(3, "'a'"), (7, "'b'"), (5, "no event")])
async def test_another_event_in_a_known_place_is_an_error_that_names_both(
    kind: str, is_live: bool, place: int, known: str
) -> None:
    frames = stream(frame(3, "a"), frame(7, "b"), frame(place, "x"), frame(9, "y"))
    pages = page(facts(3, "a"), facts(7, "b"), facts(place, "x"), facts(9, "y"))
    with raw_server(frames if is_live else pages) as url:
        async with opened(kind, url) as client:
            follower = client.events.follow("p", live=is_live)
            assert [one.id for one in await taken(follower, 2)] == ["a", "b"]
            with pytest.raises(EventReplacedError) as told:
                await anext(follower)
            assert told.value.cursor == Cursor(0, 7) == follower.cursor
            assert (told.value.committed_id, told.value.event_id) == (place, "x")
            assert known in str(told.value)
            assert "'x'" in str(told.value)
            await follower.aclose()


@EACH_LOOP
async def test_what_is_older_than_the_memory_of_a_follower_is_skipped(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "KNOWN_EVENTS", 2)
    frames = [frame(place, f"e{place}") for place in (1, 2, 3, 4)]
    with raw_server(stream(*frames, *frames, frame(2, "x"), frame(5, "e5"), frame(4, "x"))) as url:
        async with opened(kind, url) as client:
            follower = client.events.follow("p")
            assert [one.id for one in await taken(follower, 5)] == ["e1", "e2", "e3", "e4", "e5"]
            with pytest.raises(EventReplacedError):
                await anext(follower)
            await follower.aclose()


@EACH_LOOP
async def test_a_log_that_ends_before_the_cursor_is_told_without_advice_that_repeats_effects(kind: str) -> None:
    with raw_server(stream(frame(4, "d"), since=3)) as url:
        async with opened(kind, url) as client:
            follower = client.events.follow("p", cursor=Cursor(0, 5))
            with pytest.raises(LogBehindError, match="Delete what this reader has made of events"):
                await anext(follower)
            await follower.aclose()
