"""Partitions: normalized, then judged, then stored and compared in the normalized form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.events.wire import ABSENT, Events, Message, fresh, item

COMPOSED = "caf\u00e9"
DECOMPOSED = "cafe\u0301"


def sync_of(partitions: Any, **fields: Any) -> Message:
    return {"partitions": partitions, "since_committed_id": 0} | fields


# -- Shape: the whole request -----------------------------------------------------------------------------------------

WRONG_SHAPES: list[Any] = [ABSENT, None, "a", 1, True, {}, {"0": "a"}, [1], [None], ["a", 1], [["a"]], [True], [{}]]


@pytest.mark.parametrize("partitions", WRONG_SHAPES, ids=repr)
def test_partitions_of_the_wrong_shape_refuse_the_request(events: Events, partitions: Any) -> None:
    peer, room = events.peer(), fresh("room")
    good, bad = item([room]), item([room], partitions=partitions)
    for batch in ([bad], [good, bad], [bad, good]):
        assert peer.error("submit_events", {"events": batch})["code"] == "bad_request"
    asked = {name: value for name, value in sync_of(partitions).items() if value is not ABSENT}
    assert peer.error("sync", asked)["code"] == "bad_request"
    if partitions is not ABSENT:
        asked = sync_of([room], subscription_partitions=partitions)
        assert peer.error("sync", asked)["code"] == "bad_request"
    assert peer.history([room]) == []


@pytest.mark.parametrize("value", ["a", None, [], ["a"]], ids=repr)
def test_the_retired_key_refuses_the_request(events: Events, value: Any) -> None:
    peer, room = events.peer(), fresh("room")
    good = item([room])
    assert peer.error("submit_events", {"events": [good, item([room], partition=value)]})["code"] == "bad_request"
    assert peer.error("submit_events", {"events": [item(["x"], partitions=ABSENT, partition=value)]})
    assert peer.error("submit_events", {"events": [good], "partition": value})["code"] == "bad_request"
    assert peer.error("sync", sync_of([room], partition=value))["code"] == "bad_request"
    assert peer.history([room]) == []


def test_inside_the_event_the_retired_key_is_data(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    draft = item([room], {"type": "t", "partition": "p", "payload": {"partition": 1}})
    peer.commit(draft)
    assert peer.history([room])[0]["event"] == draft["event"]


# -- Values: the item -------------------------------------------------------------------------------------------------

TOO_LONG_AFTER_NFC = "\ufb33" * 33  # 99 bytes as sent, 132 as U+05D3 U+05BC
BAD_VALUES: dict[str, list[str]] = {
    "no name": [],
    "empty name": [""],
    "empty name among others": ["a", "", "b"],
    "129 bytes": ["a" * 129],
    "129 bytes of two-byte letters": ["\u00e9" * 64 + "a"],
    "longer after NFC": [TOO_LONG_AFTER_NFC],
    "65 names": [f"n{number}" for number in range(65)],
    "lone surrogate": ["\ud800"],
    "lone low surrogate": ["a\udc00b"],
    "surrogates the wrong way round": ["\udc00\ud800"],
}


@pytest.mark.parametrize("partitions", BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_bad_values_reject_the_item_and_refuse_the_sync(events: Events, partitions: list[str]) -> None:
    peer, room = events.peer(), fresh("room")
    before, after = item([room]), item([room])
    results = peer.submit([before, item(partitions), after])
    assert [result["status"] for result in results] == ["committed", "rejected", "committed"]
    assert results[1]["reason"] == "validation_failed"
    assert results[1]["errors"][0]["field"].startswith("partitions")
    assert results[1]["errors"][0]["message"]
    peer.subscribe(room)
    assert peer.error("sync", sync_of(partitions))["code"] == "bad_request"
    if partitions:
        refused = sync_of([room], subscription_partitions=partitions)
        assert peer.error("sync", refused)["code"] == "bad_request"
    assert peer.sync([room])["effective_subscriptions"] == [room]


GOOD_VALUES: dict[str, tuple[list[str], list[str]]] = {
    "128 bytes": (["a" * 128], ["a" * 128]),
    "128 bytes of two-byte letters": (["\u00e9" * 64], ["\u00e9" * 64]),
    "shorter after NFC": (["e\u0301" * 64], ["\u00e9" * 64]),
    "128 bytes after NFC": (["\ufb33" * 32], ["\u05d3\u05bc" * 32]),
    "64 names": ([f"n{number:02}" for number in range(64)], [f"n{number:02}" for number in range(64)]),
    "65 names, two of them equal": (
        [f"n{number:02}" for number in range(63)] + [COMPOSED, DECOMPOSED],
        [COMPOSED] + [f"n{number:02}" for number in range(63)],
    ),
    "a name many times": (["a"] * 200, ["a"]),
    "composed and decomposed": ([DECOMPOSED, COMPOSED], [COMPOSED]),
    "a composed letter that NFC takes apart": (["\ufb33"], ["\u05d3\u05bc"]),
    "by code point, not by UTF-16 unit": (["\U0001f600", "\ue000", "z"], ["z", "\ue000", "\U0001f600"]),
    "upper case is another letter": (["b", "B", "a", "A"], ["A", "B", "a", "b"]),
    "spaces stay": ([" a", "a ", "a", " "], [" ", " a", "a", "a "]),
    "odd names": (["\u0000", "\n", "*", "/", "..", "\u2028"], ["\u0000", "\n", "*", "..", "/", "\u2028"]),
}


@pytest.mark.parametrize(("sent", "stored"), GOOD_VALUES.values(), ids=GOOD_VALUES.keys())
def test_good_values_are_stored_normalized(events: Events, sent: list[str], stored: list[str]) -> None:
    peer, reader = events.peer(), events.peer()
    page = reader.sync(sent, since=2**53 - 1, subscription=sent)
    assert (page["partitions"], page["effective_subscriptions"]) == (stored, stored)
    draft = item(sent)
    [committed_id] = peer.commit(draft)
    [broadcast] = reader.broadcasts(1)
    assert (broadcast["id"], broadcast["partitions"]) == (draft["id"], stored)
    for name in (sent[0], stored[-1]):
        [event] = peer.history([name], committed_id - 1)
        assert event == broadcast


def test_equality_sees_the_normalized_set(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    first, second = f"{room}-{COMPOSED}", f"{room}-b"
    draft = item([first, second])
    [result] = peer.submit([draft])
    for same in ([second, first], [first, second, first], [f"{room}-{DECOMPOSED}", second]):
        assert peer.submit([draft | {"partitions": same}]) == [result]
    for other in ([first], [first, second, room], [first.upper(), second]):
        [refused] = peer.submit([draft | {"partitions": other}])
        assert (refused["status"], refused["reason"]) == ("rejected", "validation_failed")


def test_names_are_compared_byte_by_byte(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    names = [room, f" {room}", f"{room} ", room.upper(), f"{room}x", f"{room}\u200b"]
    drafts = [item([name]) for name in names]
    peer.commit(*drafts)
    for name, draft in zip(names, drafts, strict=True):
        assert [event["id"] for event in peer.history([name])] == [draft["id"]]
    assert peer.history([room[:-1]]) == []


def test_an_event_of_many_partitions_is_one_event(events: Events) -> None:
    peer, reader, room = events.peer(), events.peer(), fresh("room")
    names = [f"{room}-{number:02}" for number in range(64)]
    reader.subscribe(*names)
    draft, marker = item(names), item(names[-1:])
    peer.commit(draft, marker)
    assert [event["id"] for event in peer.history(names)] == [draft["id"], marker["id"]]
    assert [event["id"] for event in peer.history(names[5:6])] == [draft["id"]]
    assert [event["id"] for event in reader.broadcasts(2)] == [draft["id"], marker["id"]]
