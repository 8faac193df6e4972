"""Filters by type: of pages in both directions, of event streams, and of subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from semel.surfaces.events.reading import SCANNED_EVENTS
from tests.events.promises.test_http import Tail, refused
from tests.events.wire import PATH, Events, Message, Peer, fresh, item, serving

KINDS = ("a", "b", "c\u00e9", 'd"\\')


def typed(room: str, kind: str, **more: Any) -> Message:
    """An item of this type; the type is not the first member if there are others."""
    return item([room], more | {"type": kind})


def filled(peer: Peer, room: str, count: int) -> list[tuple[int, str]]:
    """The ids and types of so many events, the types by turns."""
    kinds = [KINDS[number % len(KINDS)] for number in range(count)]
    drafts = [typed(room, kind, **({"x": {"type": "a"}} if place % 3 else {})) for place, kind in enumerate(kinds)]
    return list(zip(peer.commit(*drafts), kinds, strict=True))


def page(events: Events, room: str, types: tuple[str, ...], **query: int | str) -> Message:
    """One page of GET."""
    params: list[tuple[str, str | int | float | bool | None]] = [
        ("partition", room),
        *(("type", kind) for kind in types),
        *query.items(),
    ]
    answer = events.http.get(PATH, params=httpx.QueryParams(params))
    assert answer.status_code == 200, answer.text
    found: Message = answer.json()
    return found


def ids_of(found: Message) -> list[int]:
    return [event["committed_id"] for event in found["events"]]


@pytest.mark.parametrize("types", [("a",), ("b", 'd"\\'), ("c\u00e9", "never"), ("never",)], ids=ascii)
def test_a_page_has_only_events_of_these_types(events: Events, types: tuple[str, ...]) -> None:
    peer, room = events.peer(), fresh("room")
    made = filled(peer, room, 12)
    wanted = [number for number, kind in made if kind in types]
    found = page(events, room, types)
    assert (ids_of(found), found["has_more"]) == (wanted, False)
    assert found["next_since_committed_id"] == made[-1][0], "the cursor is behind the events that were passed over"
    assert ids_of(page(events, room, types, order="desc")) == wanted[::-1]
    assert ids_of(page(events, room, types, last=2)) == wanted[-2:]
    synced = peer.ask("sync", {"partitions": [room], "since_committed_id": 0, "types": list(types)})["payload"]
    assert (ids_of(synced), synced["next_since_committed_id"]) == (wanted, made[-1][0])


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_of_some_types_go_on_where_the_last_one_ended(events: Events, limit: int) -> None:
    peer, room = events.peer(), fresh("room")
    made = filled(peer, room, 14)
    wanted = [number for number, kind in made if kind in ("a", "b")]
    found = page(events, room, ("a", "b"), limit=limit)
    walked, to = ids_of(found), found["sync_to_committed_id"]
    peer.commit(typed(room, "a"))
    while found["has_more"]:
        assert len(found["events"]) <= limit
        found = page(events, room, ("a", "b"), limit=limit, since=found["next_since_committed_id"], to=to)
        walked += ids_of(found)
    assert walked == wanted
    found = page(events, room, ("a", "b"), limit=limit, order="desc", before=to + 1)
    walked = ids_of(found)
    while found["has_more"]:
        found = page(events, room, ("a", "b"), limit=limit, order="desc", before=found["next_before_committed_id"])
        walked += ids_of(found)
    assert walked == wanted[::-1]


def test_a_cycle_of_some_types_keeps_its_watermark_and_other_types_begin_another(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    made = filled(peer, room, 8)
    asked = {"partitions": [room], "since_committed_id": 0, "limit": 1, "types": ["a"]}
    first = peer.ask("sync", asked)["payload"]
    assert first["has_more"]
    peer.commit(typed(room, "a"))
    asked["since_committed_id"] = first["next_since_committed_id"]
    second = peer.ask("sync", asked)["payload"]
    assert second["sync_to_committed_id"] == first["sync_to_committed_id"]
    asked |= {"since_committed_id": second["next_since_committed_id"], "types": ["b"]}
    assert peer.ask("sync", asked)["payload"]["sync_to_committed_id"] > made[-1][0]


def test_a_page_looks_at_a_bounded_number_of_events_and_may_be_empty_with_more_behind_it(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    numbers: list[int] = []
    while len(numbers) <= SCANNED_EVENTS:
        numbers += peer.commit(*(typed(room, "a") for _ in range(100)))
    last = peer.commit(typed(room, "rare"))
    first = page(events, room, ("rare",))
    assert (first["events"], first["has_more"]) == ([], True)
    assert first["next_since_committed_id"] == numbers[SCANNED_EVENTS - 1]
    second = page(events, room, ("rare",), since=first["next_since_committed_id"])
    assert (ids_of(second), second["has_more"]) == (last, False)
    with streaming(events, room, "rare", since=0) as tail:
        assert tail.next()["committed_id"] == last[0]


def test_a_page_looks_at_a_bounded_number_of_bytes(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    numbers = [peer.commit(typed(room, "large", text="x" * 400_000))[0] for _ in range(4)]
    last = peer.commit(typed(room, "rare"))
    walked, since = [], 0
    for _ in range(len(numbers) + 1):
        found = page(events, room, ("rare",), since=since)
        walked.append(ids_of(found))
        assert found["next_since_committed_id"] > since
        since = found["next_since_committed_id"]
        if not found["has_more"]:
            break
    assert (walked[0], walked[-1]) == ([], last)


@contextmanager
def streaming(events: Events, room: str, *types: str, **query: int) -> Iterator[Tail]:
    params: list[tuple[str, str | int | float | bool | None]] = [
        ("partition", room),
        *(("type", kind) for kind in types),
        *query.items(),
    ]
    headers = {"Accept": "text/event-stream"}
    with events.http.stream("GET", PATH, params=httpx.QueryParams(params), headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield Tail(response)


def test_an_event_stream_has_only_events_of_these_types_in_history_and_live(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    made = filled(peer, room, 8)
    with streaming(events, room, "a", 'd"\\') as tail:
        received = [event["committed_id"] for event in tail.take(4)]
        made += filled(peer, room, 8)
        received += [event["committed_id"] for event in tail.take(4)]
    assert received == [number for number, kind in made if kind in ("a", 'd"\\')]


def subscribe(peer: Peer, since: int, rooms: list[str], *types: str, **more: Any) -> Message:
    asked: Message = {"partitions": rooms, "since_committed_id": since, "subscription_partitions": rooms} | more
    if types:
        asked["subscription_types"] = list(types)
    answer = peer.ask("sync", asked)
    assert answer["type"] == "sync_response", answer
    payload: Message = answer["payload"]
    return payload


def test_a_subscription_has_only_events_of_these_types(events: Events) -> None:
    writer, reader, plain, room = events.peer(), events.peer(), events.peer(), fresh("room")
    made = filled(writer, room, 5)
    found = subscribe(reader, 0, [room], "b")
    assert ids_of(found) == [number for number, _ in made], "the page has its own filter"
    subscribe(plain, 0, [room])
    live = filled(writer, room, 9)
    wanted = [number for number, kind in live if kind == "b"]
    assert [event["committed_id"] for event in reader.broadcasts(len(wanted))] == wanted
    assert [event["committed_id"] for event in plain.broadcasts(9)] == [number for number, _ in live]
    reader.heartbeat()
    assert reader.pushed == []


def test_a_sync_without_a_subscription_keeps_the_types_and_a_new_one_replaces_them(events: Events) -> None:
    writer, reader, room = events.peer(), events.peer(), fresh("room")
    subscribe(reader, 0, [room], "b")
    reader.sync([room])
    made = filled(writer, room, 4)
    assert [event["committed_id"] for event in reader.broadcasts(1)] == [made[1][0]]
    subscribe(reader, made[-1][0], [room])
    made = filled(writer, room, 4)
    assert [event["committed_id"] for event in reader.broadcasts(4)] == [number for number, _ in made]
    subscribe(reader, made[-1][0], [room], "a")
    made = filled(writer, room, 4)
    assert [event["committed_id"] for event in reader.broadcasts(1)] == [made[0][0]]
    reader.heartbeat()
    assert reader.pushed == []


@pytest.mark.parametrize("types", [[], [""], "a", [1], ["x" * 129], ["\u00e9" * 65], ["a"] * 65, {}, 1], ids=str)
def test_a_filter_that_no_page_can_have_is_refused(events: Events, types: Any) -> None:
    peer = events.peer()
    asked: Message = {"partitions": ["a"], "since_committed_id": 0}
    assert peer.error("sync", asked | {"types": types})["code"] == "bad_request"
    live = {"subscription_partitions": ["a"], "subscription_types": types}
    assert peer.error("sync", asked | live)["code"] == "bad_request"
    if isinstance(types, list) and types and types != [1]:
        params = httpx.QueryParams([("partition", "a"), *(("type", kind) for kind in types)])
        refused(events.http.get(PATH, params=params), 400, "bad_request")
    assert peer.sync(["a"])["effective_subscriptions"] == []


def test_types_of_a_subscription_need_its_partitions(events: Events) -> None:
    peer = events.peer()
    asked = {"partitions": ["a"], "since_committed_id": 0, "subscription_types": ["a"]}
    assert "subscription_partitions" in peer.error("sync", asked)["message"]


def test_a_heavy_event_is_found_by_its_type(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    heavy = '{"x":[' + ",".join(["[]"] * 200_000) + '],"type":"heavy"}'
    assert peer.result_text(fresh("id"), json.dumps([room]), heavy)["status"] == "committed"
    peer.commit(typed(room, "light"))
    assert len(page(events, room, ("heavy",))["events"]) == 1
    assert len(page(events, room, ("light",))["events"]) == 1


def test_a_quiet_stream_of_some_types_is_told_how_far_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A client that connects again does not begin at events that were passed over before."""
    data = tmp_path_factory.mktemp("quiet") / "data"
    with serving(data, store="sqlite") as served:
        peer, room = served.peer(), fresh("room")
        made = filled(peer, room, 8)
        params = {"partition": room, "type": "never"}
        with served.http.stream("GET", PATH, params=params, headers={"Accept": "text/event-stream"}) as response:
            text = ""
            for piece in response.iter_text():
                text += piece
                if "\n\n" in text:
                    break
        assert text == f"id: {made[-1][0]}\n\n"
