"""Submitting: what refuses a whole request, what rejects one item, and what is committed.

Partitions, equality and authorization have tests of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.events.wire import ABSENT, Events, Message, fresh, item
from tests.harness.together import at_once

LOCALE_TEXT = "\u00e9 e\u0301 \ufb33 \U0001f600 \u2028 \u0000 \u007f /"


def described(value: object) -> str:
    return json.dumps(value, default=repr)[:30]


# -- The request ------------------------------------------------------------------------------------------------------

WRONG_REQUESTS: list[Any] = [
    {},
    {"events": None},
    {"events": {}},
    {"events": "x"},
    {"events": 1},
    {"events": []},
    {"events": {"0": {}}},
    {"event": [{}]},
]


@pytest.mark.parametrize("payload", WRONG_REQUESTS, ids=described)
def test_a_request_without_items_is_refused(events: Events, payload: Message) -> None:
    peer = events.peer()
    assert peer.error("submit_events", payload)["code"] == "bad_request"
    peer.heartbeat()


WRONG_ITEMS: list[Any] = [
    None,
    1,
    "x",
    True,
    [],
    {},
]
WRONG_FIELDS: dict[str, list[Any]] = {
    "id": [ABSENT, None, 1, True, "", [], {}],
    "event": [ABSENT, None, 1, "x", True, [], [{"type": "t"}]],
}
WRONG_ITEMS += [{field: value} for field, values in WRONG_FIELDS.items() for value in values]


@pytest.mark.parametrize("wrong", WRONG_ITEMS, ids=described)
def test_an_item_of_the_wrong_shape_refuses_the_request(events: Events, wrong: Any) -> None:
    peer, reader, room = events.peer(), events.peer(), fresh("room")
    reader.subscribe(room)
    before = peer.watermark()
    bad = item([room], **wrong) if wrong and isinstance(wrong, dict) else wrong
    for batch in ([bad], [item([room]), bad], [bad, item([room])], [item([room]), bad, item([room])]):
        assert peer.error("submit_events", {"events": batch})["code"] == "bad_request"
    assert peer.watermark() == before
    assert peer.history([room]) == []
    marker = item([room])
    peer.commit(marker)
    assert reader.broadcasts(1)[0]["id"] == marker["id"]


def test_an_id_twice_in_one_request_refuses_it(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    draft = item([room])
    other = item([room], id=draft["id"])
    for batch in ([draft, draft], [draft, item([room]), draft], [draft, other]):
        assert peer.error("submit_events", {"events": batch})["code"] == "bad_request"
    assert peer.history([room]) == []
    peer.commit(draft)
    assert peer.error("submit_events", {"events": [draft, draft]})["code"] == "bad_request"


def test_a_batch_has_a_largest_size(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    refusal = peer.error("submit_events", {"events": [item([room]) for _ in range(101)]})
    assert (refusal["code"], refusal["details"]["max_batch_size"]) == ("bad_request", 100)
    assert peer.history([room]) == []
    committed = peer.commit(*(item([room]) for _ in range(100)))
    assert committed == sorted(set(committed))
    assert len(peer.history([room])) == 100


@pytest.mark.parametrize("where", ["payload", "item", "second item"])
def test_a_foreign_client_id_ends_the_connection(events: Events, where: str) -> None:
    peer, room = events.peer(), fresh("room")
    batch = [item([room]), item([room])]
    payload: Message = {"events": batch}
    target = {"payload": payload, "item": batch[0], "second item": batch[1]}[where]
    target["client_id"] = "somebody-else"
    peer.send("submit_events", payload)
    ending = peer.ending()
    assert (ending.error, ending.code, len(ending.messages)) == ("auth_failed", 1008, 1)
    assert events.peer().history([room]) == []


def test_the_own_client_id_may_be_said(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    drafts = [item([room], client_id=peer.client_id), item([room])]
    peer.send("submit_events", {"events": drafts, "client_id": peer.client_id})
    results = peer.receive_until("submit_events_result")["payload"]["results"]
    assert [result["status"] for result in results] == ["committed", "committed"]
    assert {event["client_id"] for event in peer.history([room])} == {peer.client_id}


# -- The item ---------------------------------------------------------------------------------------------------------

BAD_ITEMS: dict[str, tuple[dict[str, Any], str]] = {
    "id of 129 bytes": ({"id": "i" * 129}, "id"),
    "id of 65 two-byte letters": ({"id": "\u00e9" * 65}, "id"),
    "no type": ({"event": {}}, "event.type"),
    "no type but a payload": ({"event": {"payload": {"type": "t"}}}, "event.type"),
    "empty type": ({"event": {"type": ""}}, "event.type"),
    "type of null": ({"event": {"type": None}}, "event.type"),
    "type of a number": ({"event": {"type": 1}}, "event.type"),
    "type of a list": ({"event": {"type": ["t"]}}, "event.type"),
    "type init": ({"event": {"type": "init"}}, "event.type"),
}


@pytest.mark.parametrize(("fields", "where"), BAD_ITEMS.values(), ids=BAD_ITEMS.keys())
def test_a_bad_item_is_rejected_and_the_others_are_committed(
    events: Events, fields: dict[str, Any], where: str
) -> None:
    peer, room = events.peer(), fresh("room")
    before, after = item([room]), item([room])
    results = peer.submit([before, item([room], **fields), after])
    assert [result["status"] for result in results] == ["committed", "rejected", "committed"]
    assert set(results[1]) == {"id", "status", "reason", "errors", "status_updated_at"}
    assert results[1]["reason"] == "validation_failed"
    assert [error["field"] for error in results[1]["errors"]] == [where]
    assert results[0]["committed_id"] < results[2]["committed_id"]
    assert [event["id"] for event in peer.history([room])] == [before["id"], after["id"]]


GOOD_EVENTS: list[Message] = [
    {"type": "t"},
    {"type": "t", "payload": None},
    {"type": "t", "payload": 0},
    {"type": "t", "payload": False},
    {"type": "t", "payload": ""},
    {"type": "t", "payload": [1, [2, {}]]},
    {"type": " ", "payload": {"": {"__proto__": {"constructor": 1}}, "1": 1, "10": 2, "toString": None}},
    {"type": LOCALE_TEXT, "payload": {LOCALE_TEXT: LOCALE_TEXT}},
    {"type": "t", "id": "x", "partitions": [1], "client_id": "other", "committed_id": -1, "event": {"type": 1}},
    {"type": "t", "payload": [0, 1.5, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 2**53 - 1, 1 - 2**53, True, None]},
    {"z": 1, "type": "t", "a": {"z": 1, "a": [{"b": 1, "a": 2}]}},
]


@pytest.mark.parametrize("event", GOOD_EVENTS, ids=described)
def test_an_event_comes_back_unchanged(events: Events, event: Message) -> None:
    peer, reader, room = events.peer(), events.peer(), fresh("room")
    reader.subscribe(room)
    peer.commit(item([room], event))
    [stored], [pushed] = peer.history([room]), reader.broadcasts(1)
    assert stored == pushed
    assert json.dumps(stored["event"], sort_keys=True) == json.dumps(event, sort_keys=True)


@pytest.mark.parametrize("length", [1, 127, 128])
def test_ids_are_any_string_of_up_to_128_bytes(events: Events, length: int) -> None:
    peer, room = events.peer(), fresh("room")
    for letter in ("\U0001f600", "\u00e9", " ", "/"):
        width = len(letter.encode())
        chosen = (fresh("i") + letter * length).encode()[: length // width * width].decode(errors="ignore")
        if len(chosen) > 10:
            peer.commit(item([room], id=chosen))
            assert peer.history([room])[-1]["id"] == chosen


def test_ids_are_compared_letter_by_letter(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    base = fresh("caf")
    spelled = [f"{base}\u00e9", f"{base}e\u0301", f"{base}E\u0301", f" {base}\u00e9", f"{base}\u00e9\u0000"]
    committed = peer.commit(*(item([room], id=one) for one in spelled))
    assert len(set(committed)) == len(spelled)
    assert [event["id"] for event in peer.history([room])] == spelled


def test_an_id_with_a_lone_surrogate_is_never_committed(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    answer = peer.ask("submit_events", {"events": [item([room], id="\ud800")]})
    if answer["type"] == "error":
        assert answer["payload"]["code"] == "bad_request"
    else:
        assert answer["payload"]["results"][0]["status"] == "rejected"
    assert peer.history([room]) == []


# -- Outcomes ---------------------------------------------------------------------------------------------------------


def test_a_rejection_is_not_remembered_and_uses_up_no_id(events: Events) -> None:
    peer, room, name = events.peer(), fresh("room"), fresh("e")
    before = peer.watermark()
    for _ in range(3):
        [result] = peer.submit([item([room], {"type": ""}, id=name)])
        assert result["status"] == "rejected"
    assert peer.watermark() == before
    [result] = peer.submit([item([room], {"type": "mended"}, id=name)])
    assert result["status"] == "committed"


def test_a_conflict_says_that_the_id_is_taken(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    draft = item([room])
    peer.commit(draft)
    [result] = peer.submit([draft | {"event": {"type": "other"}}])
    assert [error["field"] for error in result["errors"]] == ["event"]
    assert re.search(r"already|taken", result["errors"][0]["message"])
    assert isinstance(result["status_updated_at"], int)


def test_a_batch_of_retries_and_news_keeps_every_place(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    old = [item([room]) for _ in range(3)]
    first = peer.submit(old)
    news = [item([room]) for _ in range(3)]
    mixed = [news[0], old[2], news[1], old[0], old[1], news[2]]
    results = peer.submit(mixed)
    assert [results[1], results[3], results[4]] == [first[2], first[0], first[1]]
    fresh_ids = [results[number]["committed_id"] for number in (0, 2, 5)]
    assert fresh_ids == sorted(set(fresh_ids))
    assert fresh_ids[0] > first[2]["committed_id"]


@pytest.mark.each_store
def test_times_do_not_go_back_as_ids_go_up(events: Events) -> None:
    peers, room = [events.peer() for _ in range(4)], fresh("room")

    def commit_ten(number: int) -> list[list[int]]:
        return [peers[number].commit(item([room])) for _ in range(10)]

    at_once([partial(commit_ten, number) for number in range(4)])
    history = peers[0].history([room])
    assert len(history) == 40
    times = [event["status_updated_at"] for event in history]
    assert times == sorted(times)
    assert all(1 <= event["committed_id"] <= 2**53 - 1 for event in history)


@pytest.mark.each_store
def test_the_order_is_one_over_all_partitions(events: Events) -> None:
    peers = [events.peer() for _ in range(4)]
    rooms = [fresh("room") for _ in range(4)]

    def commit_ten(number: int) -> list[int]:
        return [peers[number].commit(item([rooms[number]]))[0] for _ in range(10)]

    committed = at_once([partial(commit_ten, number) for number in range(4)])
    assert all(ids == sorted(ids) for ids in committed)
    everything = [one for ids in committed for one in ids]
    assert len(set(everything)) == 40
    assert [event["committed_id"] for event in peers[0].history(rooms)] == sorted(everything)
    assert peers[1].watermark() >= max(everything)


@pytest.mark.each_store
def test_no_id_becomes_visible_late(events: Events) -> None:
    """Whoever has seen an id, from a result or a page, has missed none below it: pages only grow at their end."""
    writers, reader, room = [events.peer() for _ in range(4)], events.peer(), fresh("room")

    def commit_many(number: int) -> list[int]:
        return [writers[number].commit(item([room]))[0] for _ in range(15)]

    def read_many() -> list[int]:
        seen, cursor = list[int](), 0
        for _ in range(60):
            page = reader.sync([room], cursor)
            seen += [event["committed_id"] for event in page["events"]]
            cursor = page["next_since_committed_id"]
        return seen

    calls: list[Callable[[], list[int]]] = [partial(commit_many, number) for number in range(4)]
    *committed, seen = at_once([*calls, read_many])
    everything = sorted(one for ids in committed for one in ids)
    assert seen == everything[: len(seen)]
    assert [event["committed_id"] for event in reader.history([room])] == everything
