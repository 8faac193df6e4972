"""Reading backwards, and the last n events."""

from __future__ import annotations

import pytest

from tests.events.promises.test_http import refused
from tests.events.wire import PATH, Events, Message, Peer, fresh, item, serving
from tests.harness.together import eventually

NEXT = "next_before_committed_id"


def page(events: Events, *rooms: str, **query: int | str) -> Message:
    """One page of GET."""
    answer = events.http.get(PATH, params=[*(("partition", room) for room in rooms), *query.items()])
    assert answer.status_code == 200, answer.text
    found: Message = answer.json()
    return found


def ids_of(found: Message) -> list[int]:
    return [event["committed_id"] for event in found["events"]]


def backwards(events: Events, *rooms: str, limit: int, **query: int | str) -> list[Message]:
    """The pages of a whole walk from the end to the beginning."""
    pages = [page(events, *rooms, order="desc", limit=limit, **query)]
    while pages[-1]["has_more"]:
        assert ids_of(pages[-1])
        assert pages[-1][NEXT] == ids_of(pages[-1])[-1]
        pages.append(page(events, *rooms, order="desc", limit=limit, **query | {"before": pages[-1][NEXT]}))
    return pages


def committed(peer: Peer, *rooms: str, count: int) -> list[int]:
    """So many events, each in one of the rooms by turns, with others between them."""
    made = [item([rooms[number % len(rooms)]]) for number in range(count)]
    peer.commit(item([fresh("other")]))
    return peer.commit(*made)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 500])
def test_pages_backwards_are_the_pages_forwards_in_reverse(events: Events, limit: int) -> None:
    peer, rooms = events.peer(), [fresh("room") for _ in range(3)]
    numbers = committed(peer, *rooms, count=7)
    both = peer.commit(item(rooms[:2]))
    walked = [number for found in backwards(events, *rooms, limit=limit) for number in ids_of(found)]
    assert walked == [*both, *numbers[::-1]]
    assert walked[::-1] == ids_of(page(events, *rooms))


def test_a_page_backwards_is_bounded_below_and_above(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    numbers = committed(peer, room, count=6)
    found = page(events, room, order="desc", before=numbers[4], since=numbers[1])
    assert (ids_of(found), found["has_more"]) == ([numbers[3], numbers[2]], False)
    assert found["next_since_committed_id"] == numbers[4] - 1
    assert found[NEXT] == numbers[2]
    for before in (0, 1, numbers[0]):
        empty = page(events, room, order="desc", before=before)
        assert (empty["events"], empty["has_more"]) == ([], False)
    all_of_them = page(events, room, order="desc", before=2**53 - 1)
    assert ids_of(all_of_them) == numbers[::-1]
    assert page(events, room, order="desc", since=2**53 - 1)["events"] == []


def test_events_that_are_committed_meanwhile_do_not_move_the_pages(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    numbers = committed(peer, room, count=4)
    first = page(events, room, order="desc", limit=2)
    later = committed(peer, room, count=2)
    second = page(events, room, order="desc", limit=2, before=first[NEXT])
    assert ids_of(first) + ids_of(second) == numbers[::-1]
    forwards = page(events, room, since=first["next_since_committed_id"])
    assert ids_of(forwards) == later, "a reader goes on forwards behind the first page"


def test_the_last_n_come_in_ascending_order_and_a_reader_can_go_on_from_them(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    numbers = committed(peer, room, count=5)
    found = page(events, room, last=2)
    assert (ids_of(found), found["has_more"]) == (numbers[3:], True)
    assert found[NEXT] == numbers[3]
    assert found["next_since_committed_id"] == found["sync_to_committed_id"]
    earlier = page(events, room, last=2, before=found[NEXT])
    assert ids_of(earlier) == numbers[1:3]
    assert not page(events, room, last=5)["has_more"]
    assert ids_of(page(events, room, last=1_000_000)) == numbers
    assert ids_of(page(events, room, last=0)) == numbers[-1:], "as a limit, it is brought into 1 to 1,000"
    later = committed(peer, room, count=1)
    assert ids_of(page(events, room, since=found["next_since_committed_id"])) == later


def test_a_page_of_a_partition_without_events_is_empty(events: Events) -> None:
    for query in ({"order": "desc"}, {"last": 3}):
        found = page(events, fresh("room"), **query)
        assert (found["events"], found["has_more"]) == ([], False)
        assert found[NEXT] == found["sync_to_committed_id"] + 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"order": "down"}, "order must be asc or desc"),
        ({"order": "desc", "to": "3"}, "to read backwards, give before"),
        ({"last": "3", "to": "3"}, "to read backwards, give before"),
        ({"before": "3"}, "before needs order=desc or last"),
        ({"order": "asc", "before": "3"}, "before needs order=desc or last"),
        ({"last": "3", "limit": "3"}, "last cannot be combined with order or limit"),
        ({"last": "3", "order": "desc"}, "last cannot be combined with order or limit"),
        ({"last": "x"}, "last must be an integer"),
        ({"order": "desc", "before": "-1"}, "before must be an integer of at least 0"),
    ],
    ids=str,
)
def test_a_query_that_contradicts_itself_is_refused(events: Events, query: dict[str, str], words: str) -> None:
    answer = events.http.get(PATH, params={"partition": "a"} | query)
    assert words in refused(answer, 400, "bad_request")["detail"]


@pytest.mark.parametrize("query", [{"order": "desc"}, {"last": "1"}], ids=str)
def test_an_event_stream_is_read_forwards(events: Events, query: dict[str, str]) -> None:
    headers = {"Accept": "text/event-stream"}
    answer = events.http.get(PATH, params={"partition": "a"} | query, headers=headers)
    assert "read forwards" in refused(answer, 400, "bad_request")["detail"]


def test_a_page_backwards_stays_within_the_size_of_a_message(
    tmp_path_factory: pytest.TempPathFactory, store_kind: str
) -> None:
    data = tmp_path_factory.mktemp("narrow") / "data"
    with serving(data, store=store_kind, EVENTS_MESSAGE_BYTES="20000") as narrow:
        peer, room = narrow.peer(), fresh("room")
        numbers = [peer.commit(item([room], {"type": "t", "text": "x" * 4_000}))[0] for _ in range(9)]
        walked: list[int] = []
        for found in backwards(narrow, room, limit=500):
            walked += ids_of(found)
            assert len(found["events"]) in (1, 4)
        assert walked == numbers[::-1]
        assert len(narrow.http.get(PATH, params={"partition": room, "last": 9}).content) <= 20_000


def test_the_page_that_meets_the_pruned_part_says_so(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> None:
    data = tmp_path_factory.mktemp("pruned") / "data"
    with serving(data, store=store_kind, EVENTS_RETENTION_MS="1000", SWEEP_INTERVAL_MS="50") as forgetful:
        peer, room = forgetful.peer(), fresh("room")
        old = committed(peer, room, count=2)
        eventually(lambda: page(forgetful, room)["events"] == [], "the events are pruned")
        found = page(forgetful, room, order="desc")
        assert (found["events"], found["has_more"]) == ([], False)
        assert found["pruned_to_committed_id"] >= old[-1]
        assert "pruned_to_committed_id" not in page(forgetful, room, order="desc", since=2**53 - 1)
