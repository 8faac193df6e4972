"""An expected watermark (`if_watermark`) over WebSocket and HTTP, in every dialect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.events.wire import PATH, Camel, Events, Message, fresh, item, serving
from tests.harness.together import at_once
from tests.harness.tokens import token_file

WRITERS = 6
ROUNDS = 8


def is_refused(result: Message, watermark: int) -> bool:
    """Whether a result is that of an item which expected another watermark than this one."""
    assert result["status"] == "rejected", result
    [error] = result["errors"]
    assert error["field"] == "if_watermark"
    assert str(watermark) in error["message"]
    return (result["reason"], result["watermark"]) == ("watermark_mismatch", watermark)


def test_an_expected_watermark_is_compared_with_the_last_event_of_the_partition(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    [first] = peer.commit(item([room], if_watermark=0))
    peer.commit(item([fresh("other")]))
    [late] = peer.submit([item([room], if_watermark=0)])
    assert is_refused(late, first)
    [second] = peer.commit(item([room], if_watermark=first))
    assert [event["committed_id"] for event in peer.history([room])] == [first, second]


def test_a_plain_submission_moves_the_watermark(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    [first] = peer.commit(item([room]))
    [second] = peer.commit(item([room], if_watermark=first))
    [third] = peer.commit(item([room]))
    [stale] = peer.submit([item([room], if_watermark=second)])
    assert is_refused(stale, third)


def test_a_retry_gets_the_first_answer_whatever_the_watermark_is(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    draft = item([room], if_watermark=0)
    [recorded] = peer.submit([draft])
    peer.commit(item([room]))
    assert peer.submit([draft]) == [recorded]
    assert peer.submit([draft | {"if_watermark": 12_345}]) == [recorded]
    del draft["if_watermark"]
    assert peer.submit([draft]) == [recorded]
    answer = events.http.post(PATH, json={"events": [draft | {"if_watermark": 1}]})
    assert answer.json()["results"] == [recorded]


def test_the_watermark_of_several_partitions_is_that_of_the_last_event_in_any(events: Events) -> None:
    peer, one, two = events.peer(), fresh("room"), fresh("room")
    [first], [second] = peer.commit(item([one])), peer.commit(item([two]))
    [stale] = peer.submit([item([one, two], if_watermark=first)])
    assert is_refused(stale, second)
    page = peer.sync([one, two])
    assert page["events"][-1]["committed_id"] == second
    [both] = peer.commit(item([two, one], if_watermark=second))
    for room in (one, two):
        [late] = peer.submit([item([room], if_watermark=second)])
        assert is_refused(late, both)


def test_items_of_one_request_are_decided_one_behind_the_other(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    results = peer.submit([item([room], if_watermark=0), item([room], if_watermark=0), item([room])])
    assert [result["status"] for result in results] == ["committed", "rejected", "committed"]
    assert is_refused(results[1], results[0]["committed_id"])


def test_http_decides_alike(events: Events) -> None:
    room = fresh("room")
    drafts = [item([room], if_watermark=0), item([room], if_watermark=0)]
    first, second = events.http.post(PATH, json={"events": drafts}).json()["results"]
    assert first["status"] == "committed"
    assert is_refused(second, first["committed_id"])


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, [], {}], ids=repr)
def test_a_value_that_is_no_position_rejects_the_item(events: Events, value: Any) -> None:
    peer, room = events.peer(), fresh("room")
    wrong, right = peer.submit([item([room], if_watermark=value), item([room], if_watermark=None)])
    assert (wrong["status"], wrong["reason"]) == ("rejected", "validation_failed")
    assert wrong["errors"] == [{"field": "if_watermark", "message": "must be an integer of at least 0"}]
    assert right["status"] == "committed"


def test_the_condition_is_neither_stored_nor_sent(events: Events) -> None:
    peer, reader, room = events.peer(), events.peer(), fresh("room")
    reader.subscribe(room)
    peer.commit(item([room], if_watermark=0))
    [live] = reader.broadcasts(1)
    assert [live] == reader.history([room])
    assert set(live) == {"id", "client_id", "partitions", "committed_id", "event", "status_updated_at"}


def test_the_camel_dialects_name_it_in_their_spelling(events: Events) -> None:
    project = fresh("project")
    two: Camel = events.camel_2(project)
    one: Camel = events.camel_1()
    [first] = two.commit(two.draft(ifWatermark=0))
    late, behind = two.submit([two.draft(ifWatermark=0), two.draft()])
    assert (late["status"], late["reason"], late["watermark"]) == ("rejected", "watermark_mismatch", first)
    assert behind["status"] == "not_processed"
    [second] = one.commit(one.draft([project], ifWatermark=first))
    [stale] = one.submit([one.draft([project], ifWatermark=first)])
    assert (stale["reason"], stale["watermark"]) == ("watermark_mismatch", second)


@pytest.mark.each_store
def test_of_racing_writers_exactly_one_wins_each_round(events: Events) -> None:
    room = fresh("room")
    peers = [events.peer() for _ in range(WRITERS)]
    last = 0
    for _ in range(ROUNDS):
        drafts = [item([room], if_watermark=last) for _ in peers]
        over_http = item([room], if_watermark=last)
        calls = [partial(peer.submit, [draft]) for peer, draft in zip(peers, drafts, strict=True)]
        results = [one for [one] in at_once([*calls, partial(_posted, events, over_http)])]
        winners = [result for result in results if result["status"] == "committed"]
        assert len(winners) == 1, results
        last = winners[0]["committed_id"]
        assert all(is_refused(result, last) for result in results if result is not winners[0])
    assert len(peers[0].history([room])) == ROUNDS


def _posted(events: Events, draft: Message) -> list[Message]:
    answer = events.http.post(PATH, json={"events": [draft]})
    results: list[Message] = answer.json()["results"]
    return results


# -- Rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    folder: Path = tmp_path_factory.mktemp("rights")
    tokens = token_file(folder, {"writer": ("w" * 20, ["write"], []), "both": ("b" * 20, ["read", "write"], [])})
    with serving(folder / "data", store="sqlite", TOKENS=str(tokens)) as events:
        yield events


def test_a_client_that_may_not_read_a_partition_may_not_expect_its_watermark(guarded: Events) -> None:
    room = fresh("room")
    writer, both = guarded.peer("writer", token="w" * 20), guarded.peer("both", token="b" * 20)
    [first] = both.commit(item([room], if_watermark=0))
    refused, plain = writer.submit([item([room], if_watermark=first), item([room])])
    assert (refused["status"], refused["reason"]) == ("rejected", "forbidden")
    assert "watermark" not in refused
    assert plain["status"] == "committed"
