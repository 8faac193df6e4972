"""Sync: pages, cycles, cursors and the instant at which a subscription begins."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.events.wire import ABSENT, Events, Message, Peer, fresh, item
from tests.harness.together import at_once


def ids_of(events: list[Message]) -> list[str]:
    return [event["id"] for event in events]


def filled(peer: Peer, room: str, count: int) -> list[int]:
    """Commit so many events; their committed ids."""
    return peer.commit(*(item([room]) for _ in range(count)))


# -- S1 to S5: what a cycle returns -----------------------------------------------------------------------------------


def test_s1_what_intersects_is_returned_once_and_in_order(events: Events) -> None:
    peer = events.peer()
    a, b, c = fresh("a"), fresh("b"), fresh("c")
    drafts = [item(names) for names in ([a], [b], [c], [a, b], [b, c], [a, b, c], [c], [a])]
    peer.commit(*drafts)
    for wanted in ([a], [b], [c], [a, b], [a, c], [b, c], [a, b, c], [a, fresh("nothing")]):
        expected = [draft["id"] for draft in drafts if set(draft["partitions"]) & set(wanted)]
        assert ids_of(peer.history(wanted)) == expected
        assert ids_of(peer.history(wanted, limit=2)) == expected


def test_s1_since_is_exclusive(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    committed = filled(peer, room, 4)
    for position, since in enumerate(committed):
        assert [event["committed_id"] for event in peer.history([room], since)] == committed[position + 1 :]
        assert [event["committed_id"] for event in peer.history([room], since - 1)] == committed[position:]


def test_s2_events_committed_later_are_not_in_the_cycle(events: Events) -> None:
    writer, reader, room = events.peer(), events.peer(), fresh("room")
    committed = filled(writer, room, 5)
    first = reader.sync([room], 0, 2)
    filled(writer, room, 3)
    second = reader.sync([room], first["next_since_committed_id"], 2)
    filled(writer, room, 3)
    third = reader.sync([room], second["next_since_committed_id"], 100)
    assert [event["committed_id"] for event in third["events"]] == committed[4:]
    assert third["has_more"] is False
    tops = {page["sync_to_committed_id"] for page in (first, second, third)}
    assert len(tops) == 1
    assert tops.pop() >= committed[-1]
    assert len(reader.sync([room], third["next_since_committed_id"])["events"]) == 6


def test_s3_only_the_next_page_of_the_same_question_goes_on(events: Events) -> None:
    writer, reader, room, other = events.peer(), events.peer(), fresh("room"), fresh("other")
    filled(writer, room, 4)
    cursor = reader.sync([room], 0, 2)["next_since_committed_id"]
    for partitions, since in (([room, other], cursor), ([room], cursor - 1), ([room], cursor + 1), ([room], 0)):
        assert reader.sync([room], 0, 2)["next_since_committed_id"] == cursor
        [late] = filled(writer, room, 1)
        assert reader.sync(partitions, since, 2)["sync_to_committed_id"] >= late


def test_s3_a_cycle_goes_on_with_another_limit_spelling_and_subscription(events: Events) -> None:
    writer, reader, room, other = events.peer(), events.peer(), fresh("room"), fresh("other")
    filled(writer, room, 4)
    first = reader.sync([room], 0, 2)
    [late] = filled(writer, room, 1)
    second = reader.sync([room, room], first["next_since_committed_id"], 1, [other])
    assert second["sync_to_committed_id"] == first["sync_to_committed_id"] < late
    last = reader.sync([room], second["next_since_committed_id"], 5)
    assert (last["has_more"], last["sync_to_committed_id"]) == (False, first["sync_to_committed_id"])
    anew = reader.sync([room], last["next_since_committed_id"], 2)
    assert anew["sync_to_committed_id"] >= late
    assert [event["committed_id"] for event in anew["events"]] == [late]


def test_s3_a_cycle_belongs_to_its_connection(events: Events) -> None:
    writer, room = events.peer(), fresh("room")
    filled(writer, room, 4)
    first = events.peer().sync([room], 0, 2)
    [late] = filled(writer, room, 1)
    assert events.peer().sync([room], first["next_since_committed_id"], 2)["sync_to_committed_id"] >= late


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_s4_has_more_is_exact(events: Events, count: int) -> None:
    peer, room = events.peer(), fresh("room")
    filled(peer, room, count)
    filled(peer, fresh("other"), 3)
    for limit in range(1, count + 2):
        page, seen = peer.sync([room], 0, limit), 0
        while page["has_more"]:
            assert len(page["events"]) == limit
            seen += limit
            page = peer.sync([room], page["next_since_committed_id"], limit)
        assert page["events"]
        assert seen + len(page["events"]) == count


def test_s5_the_cursor_is_the_last_event_or_stays(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    committed = filled(peer, room, 2)
    top = filled(peer, fresh("other"), 3)[-1]
    page = peer.sync([room], 0)
    assert (page["next_since_committed_id"], page["sync_to_committed_id"]) == (committed[-1], top)
    for since in (committed[-1], committed[-1] + 1, top):
        page = peer.sync([room], since)
        assert (page["events"], page["next_since_committed_id"], page["has_more"]) == ([], since, False)
    assert peer.sync([fresh("nothing")], 0)["next_since_committed_id"] == 0


# -- S6 and S7: bounds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "size"), [(1, 1), (0, 1), (-5, 1), (2, 2), (7, 7), (10**9, 12), (None, 12)])
def test_s6_the_page_size_is_coerced(events: Events, limit: int | None, size: int) -> None:
    peer, room = events.peer(), fresh("room")
    filled(peer, room, 12)
    page = peer.sync([room], 0, limit)
    assert (len(page["events"]), page["has_more"]) == (size, size < 12)


def test_s6_the_default_and_the_largest_page(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    for _ in range(11):
        filled(peer, room, 100)
    assert len(peer.sync([room], 0)["events"]) == 500
    assert len(peer.sync([room], 0, 5_000)["events"]) == 1000
    assert len(peer.history([room])) == 1100


def test_s7_a_cursor_from_the_future_is_told_the_truth(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    [top] = filled(peer, room, 1)
    for since in (top + 1, top + 1000, 2**53 - 1):
        page = peer.sync([room], since)
        assert page["events"] == []
        assert page["has_more"] is False
        assert page["sync_to_committed_id"] == top
        assert page["next_since_committed_id"] == top


# -- S9: subscriptions ------------------------------------------------------------------------------------------------


def test_s9_the_set_is_replaced_kept_or_cleared(events: Events) -> None:
    writer, reader = events.peer(), events.peer()
    a, b = fresh("a"), fresh("b")
    assert reader.sync([a])["effective_subscriptions"] == []
    assert reader.sync([a], subscription=[b, a, b])["effective_subscriptions"] == [a, b]
    assert reader.sync([fresh("other")])["effective_subscriptions"] == [a, b]
    assert reader.sync([a], subscription=[b])["effective_subscriptions"] == [b]
    first, second = item([a]), item([b])
    writer.commit(first, second)
    assert ids_of(reader.broadcasts(1)) == [second["id"]]
    assert reader.sync([a], subscription=[])["effective_subscriptions"] == []
    writer.commit(item([a]), item([b]))
    reader.sync([a], since=2**53 - 1, subscription=[a])
    last = item([a])
    writer.commit(last)
    assert ids_of(reader.broadcasts(1)) == [last["id"]]


def test_s9_subscribed_and_synced_may_be_other_names(events: Events) -> None:
    writer, reader = events.peer(), events.peer()
    history, live = fresh("history"), fresh("live")
    old = [item([history]), item([live])]
    writer.commit(*old)
    page = reader.sync([history], 0, subscription=[live])
    assert ids_of(page["events"]) == [old[0]["id"]]
    new = [item([history]), item([live])]
    writer.commit(*new)
    assert ids_of(reader.broadcasts(1)) == [new[1]["id"]]


def test_s9_a_new_connection_has_no_subscription(events: Events) -> None:
    writer, room = events.peer(), fresh("room")
    reader = events.peer()
    reader.subscribe(room)
    reader.close()
    reader = events.peer(reader.client_id)
    writer.commit(item([room]))
    assert reader.sync([room], since=2**53 - 1)["effective_subscriptions"] == []
    reader.expect_nothing()


@pytest.mark.each_store
def test_s9_no_gap_and_no_overlap_while_others_write(events: Events) -> None:
    """Readers subscribe in the midst of writing: pages and broadcasts together are the whole log, each event once."""
    room = fresh("room")
    writers, readers = [events.peer() for _ in range(3)], [events.peer() for _ in range(4)]

    def write(writer: Peer) -> list[Message]:
        for _ in range(20):
            writer.commit(item([room]), item([room]))
        return []

    def read(reader: Peer, limit: int) -> list[Message]:
        page = reader.sync([room], 0, limit, [room])
        top, seen = page["sync_to_committed_id"], page["events"]
        while page["has_more"]:
            page = reader.sync([room], page["next_since_committed_id"], limit)
            seen += page["events"]
        assert all(event["committed_id"] <= top for event in seen)
        live = reader.broadcasts(120 - len(seen))
        assert all(event["committed_id"] > top for event in live)
        return [*seen, *live]

    calls = [partial(write, writer) for writer in writers]
    reading = [partial(read, reader, 1 + 10 * number) for number, reader in enumerate(readers)]
    results = at_once([*calls, *reading])[len(writers) :]
    history = writers[0].history([room])
    assert len(history) == 120
    for received in results:
        assert received == history


# -- S8, S11: what is refused -----------------------------------------------------------------------------------------

WRONG_CURSORS: list[Any] = [ABSENT, None, -1, 1.5, True, False, "0", "", [], {}, [0]]


@pytest.mark.parametrize("since", WRONG_CURSORS, ids=repr)
def test_s11_a_cursor_of_the_wrong_kind(events: Events, since: Any) -> None:
    peer, room = events.peer(), fresh("room")
    peer.subscribe(room)
    asked = {"partitions": [room], "since_committed_id": since, "subscription_partitions": []}
    refusal = peer.error("sync", {name: value for name, value in asked.items() if value is not ABSENT})
    assert refusal["code"] == "bad_request"
    assert peer.sync([room])["effective_subscriptions"] == [room]


@pytest.mark.parametrize("text", ["0.0", "0e0", "-0", "1E0"])
def test_s11_a_whole_number_may_be_spelled_in_many_ways(events: Events, text: str) -> None:
    peer = events.peer()
    peer.send_text("sync", f'{{"partitions":["nobody"],"since_committed_id":{text}}}')
    assert peer.receive_until("sync_response")["payload"]["events"] == []


@pytest.mark.parametrize("limit", ["5", True, [], {}], ids=repr)
def test_a_limit_that_is_no_number_is_refused(events: Events, limit: Any) -> None:
    peer = events.peer()
    refusal = peer.error("sync", {"partitions": ["a"], "since_committed_id": 0, "limit": limit})
    assert refusal["code"] == "bad_request"


def test_s11_a_second_sync_before_the_first_answer_is_handled_in_order(events: Events) -> None:
    peer, room, other = events.peer(), fresh("room"), fresh("other")
    filled(peer, room, 3)
    filled(peer, other, 2)
    for name in (room, other, room):
        peer.send("sync", {"partitions": [name], "since_committed_id": 0})
    pages = [peer.receive_until("sync_response")["payload"] for _ in range(3)]
    assert [page["partitions"] for page in pages] == [[room], [other], [room]]
    assert [len(page["events"]) for page in pages] == [3, 2, 3]


def test_large_events_fill_several_pages(events: Events) -> None:
    """S10: a page stops early at the byte budget, with `has_more`, and holds at least one event."""
    peer, room = events.peer(), fresh("room")
    drafts = [item([room], {"type": "t", "payload": "x" * 300_000}) for _ in range(8)]
    for draft in drafts:
        peer.commit(draft)
    first = peer.sync([room], 0)
    assert first["has_more"] is True
    assert 1 <= len(first["events"]) <= 3
    assert ids_of(peer.history([room])) == ids_of(drafts)
