"""The acceptance cases 00 to 14, on each lasting store; over PostgreSQL the peers of one test sit on different nodes.

Cases 15 to 23 are in `test_cases_more`; what a case needs in settings (an idle timeout, tokens, retention) is tested
under its number where those settings are.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.events.wire import Events, Message, Peer, fresh, item, serving
from tests.harness.together import at_once

pytestmark = pytest.mark.each_store


def ids_of(events: list[Message]) -> list[str]:
    return [event["id"] for event in events]


def test_case_00_handshake_and_empty_sync(tmp_path: Path, store_kind: str) -> None:
    with serving(tmp_path / "data") as events:
        peer = events.raw("tablet-9")
        connected = peer.connect(last_committed_id=0)
        assert connected["client_id"] == "tablet-9"
        assert (connected["server_last_committed_id"], connected["global_last_committed_id"]) == (0, 0)
        assert isinstance(connected["server_time"], int)
        assert "model_version" not in connected
        assert connected["limits"] == {
            "max_batch_size": 100,
            "sync_limit_min": 1,
            "sync_limit_max": 1000,
            "max_message_bytes": 1_048_576,
            "max_in_flight_drafts": 200,
        }
        assert peer.sync(["b", "a", "b"], subscription=["d", "c"]) == {
            "partitions": ["a", "b"],
            "effective_subscriptions": ["c", "d"],
            "events": [],
            "next_since_committed_id": 0,
            "sync_to_committed_id": 0,
            "has_more": False,
            "log_epoch": 0,
        }
        assert peer.commit(item(["a"])) == [1]


def test_case_01_draft_commit_broadcast(events: Events) -> None:
    room = fresh("room")
    writer, reader = events.peer(), events.peer()
    reader.subscribe(room)
    before = writer.watermark()
    draft = item([room], {"type": "note.added", "payload": {"text": "hi"}})
    [result] = writer.submit([draft])
    assert set(result) == {"id", "status", "committed_id", "status_updated_at"}
    assert (result["id"], result["status"]) == (draft["id"], "committed")
    assert result["committed_id"] > before
    assert isinstance(result["status_updated_at"], int)
    expected = {
        "id": draft["id"],
        "client_id": writer.client_id,
        "partitions": [room],
        "committed_id": result["committed_id"],
        "event": draft["event"],
        "status_updated_at": result["status_updated_at"],
    }
    assert reader.broadcasts(1) == [expected]
    assert reader.sync([room])["events"] == [expected]
    assert writer.sync([room])["events"] == [expected]


def test_case_02_rejected_draft(events: Events) -> None:
    room = fresh("room")
    writer, reader = events.peer(), events.peer()
    reader.subscribe(room)
    before = writer.watermark()
    [result] = writer.submit([item([room], {"type": ""})])
    assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
    assert "committed_id" not in result
    assert isinstance(result["status_updated_at"], int)
    assert result["errors"]
    assert all(isinstance(error["field"], str) and error["message"] for error in result["errors"])
    assert writer.watermark() == before
    assert writer.history([room]) == []
    marker = item([room])
    writer.commit(marker)
    assert ids_of(reader.broadcasts(1)) == [marker["id"]]


def test_case_03_retry_of_a_committed_id(events: Events) -> None:
    room = fresh("room")
    writer, other, reader = events.peer(), events.peer(), events.peer()
    reader.subscribe(room)
    draft = item([room])
    [first] = writer.submit([draft])
    before = writer.watermark()
    assert writer.submit([draft]) == [first]
    assert other.submit([draft]) == [first]
    again = events.peer(writer.client_id)
    assert again.submit([draft]) == [first]
    assert again.watermark() == before
    [kept] = again.history([room])
    assert kept["client_id"] == writer.client_id
    marker = item([room])
    other.commit(marker)
    assert ids_of(reader.broadcasts(2)) == [draft["id"], marker["id"]]


def test_case_04_event_in_two_partitions(events: Events) -> None:
    left, right = fresh("left"), fresh("right")
    writer, on_left, on_right, on_both = (events.peer() for _ in range(4))
    writer.subscribe(left, right)
    on_left.subscribe(left)
    on_right.subscribe(right)
    on_both.subscribe(left, right)
    draft = item([right, left])
    [committed_id] = writer.commit(draft)
    marker = item([left, right])
    on_both.commit(marker)
    for peer in (on_left, on_right):
        assert ids_of(peer.broadcasts(2)) == [draft["id"], marker["id"]]
    assert ids_of(on_both.broadcasts(1)) == [draft["id"]]
    assert ids_of(writer.broadcasts(1)) == [marker["id"]]
    for names in ([left], [right], [left, right]):
        [event, _] = writer.history(names)
        assert (event["committed_id"], event["partitions"]) == (committed_id, sorted([left, right]))


def test_case_05_reconnect_paged(events: Events) -> None:
    room = fresh("room")
    writer = events.peer()
    reader = events.peer()
    cursor = reader.sync([room], subscription=[room])["next_since_committed_id"]
    reader.close()
    away = [item([room]) for _ in range(5)]
    committed = [writer.commit(one)[0] for one in away]
    reader = events.peer(reader.client_id, last_committed_id=cursor)
    first = reader.sync([room], cursor, 2, [room])
    late = item([room])
    [late_id] = writer.commit(late)
    second = reader.sync([room], first["next_since_committed_id"], 2)
    third = reader.sync([room], second["next_since_committed_id"], 2)
    pages = [first, second, third]
    assert [len(page["events"]) for page in pages] == [2, 2, 1]
    assert [page["has_more"] for page in pages] == [True, True, False]
    assert [page["next_since_committed_id"] for page in pages] == [committed[1], committed[3], committed[4]]
    assert {page["sync_to_committed_id"] for page in pages} == {committed[4]}
    assert [event["id"] for page in pages for event in page["events"]] == ids_of(away)
    [broadcast] = reader.broadcasts(1)
    assert (broadcast["id"], broadcast["committed_id"]) == (late["id"], late_id)
    assert late_id > committed[4]


def test_case_06_deliveries_out_of_order_can_be_sorted(events: Events) -> None:
    room = fresh("room")
    writers = [events.peer() for _ in range(3)]
    reader = events.peer()
    early = [item([room]) for _ in range(3)]
    for one in early:
        writers[0].commit(one)
    page = reader.sync([room], subscription=[room])
    at_once([partial(peer.commit, *(item([room]) for _ in range(3))) for peer in writers])
    deliveries = page["events"] + reader.broadcasts(9)
    random.Random(6).shuffle(deliveries)
    ordered = sorted(deliveries, key=lambda delivery: int(delivery["committed_id"]))
    assert ordered == reader.history([room])
    assert len({delivery["id"] for delivery in deliveries}) == 12


def test_case_08_what_was_refused_is_nowhere(events: Events) -> None:
    room = fresh("room")
    writer, reader = events.peer(), events.peer()
    reader.subscribe(room)
    bad = item([room], {"payload": "an event without a type"})
    good = item([room])
    assert [result["status"] for result in writer.submit([bad, good])] == ["rejected", "committed"]
    assert ids_of(writer.history([room])) == [good["id"]]
    assert ids_of(reader.broadcasts(1)) == [good["id"]]


def test_case_09_same_id_other_payload(events: Events) -> None:
    room, other_room = fresh("room"), fresh("room")
    writer, other, reader = events.peer(), events.peer(), events.peer()
    reader.subscribe(room, other_room)
    draft = item([room], {"type": "t", "payload": {"n": 1}})
    [first] = writer.submit([draft])
    before = writer.watermark()
    changed = [
        draft | {"event": {"type": "t", "payload": {"n": 2}}},
        draft | {"event": {"type": "u", "payload": {"n": 1}}},
        draft | {"event": {"type": "t"}},
        draft | {"partitions": [room, other_room]},
        draft | {"partitions": [other_room]},
    ]
    for submitter in (writer, other):
        for one in changed:
            [result] = submitter.submit([one])
            assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
            assert [error["field"] for error in result["errors"]] == ["event"]
            assert draft["id"] in result["errors"][0]["message"]
    assert writer.watermark() == before
    [kept] = writer.history([room, other_room])
    assert (kept["committed_id"], kept["event"]) == (first["committed_id"], draft["event"])
    marker = item([other_room])
    other.commit(marker)
    assert ids_of(reader.broadcasts(2)) == [draft["id"], marker["id"]]


def test_case_10_the_submitter_never_sees_its_own_broadcast(events: Events) -> None:
    room = fresh("room")
    first, second = events.peer(), events.peer()
    first.subscribe(room)
    second.subscribe(room)
    drafts = [item([room]) for _ in range(6)]
    for number, draft in enumerate(drafts):
        (first if number % 2 == 0 else second).commit(draft)
    assert ids_of(first.broadcasts(3)) == ids_of(drafts[1::2])
    assert ids_of(second.broadcasts(3)) == ids_of(drafts[0::2])
    first.expect_nothing()
    second.expect_nothing()


def test_case_11_three_submits_keep_their_order(events: Events) -> None:
    room = fresh("room")
    writer = events.peer()
    drafts = [item([room]) for _ in range(3)]
    for draft in drafts:
        writer.send("submit_events", {"events": [draft]})
    results = [writer.receive_until("submit_events_result")["payload"]["results"] for _ in drafts]
    assert [[result["id"] for result in one] for one in results] == [[draft["id"]] for draft in drafts]
    committed = [one[0]["committed_id"] for one in results]
    assert committed == sorted(set(committed))
    assert ids_of(writer.history([room])) == ids_of(drafts)


def test_case_12_partition_added_in_mid_session(events: Events) -> None:
    old, new = fresh("old"), fresh("new")
    writer, reader = events.peer(), events.peer()
    reader.sync([old], subscription=[old])
    [before_old, before_new] = [item([old]), item([new])]
    writer.commit(before_old, before_new)
    added = reader.sync([new], 0, subscription=[old, new])
    assert added["effective_subscriptions"] == sorted([old, new])
    assert ids_of(added["events"]) == [before_new["id"]]
    after_old, after_new = item([old]), item([new])
    writer.commit(after_old, after_new)
    assert ids_of(reader.broadcasts(3)) == [before_old["id"], after_old["id"], after_new["id"]]


def test_case_13_retry_while_still_a_draft(events: Events) -> None:
    room = fresh("room")
    writer = events.peer()
    draft = item([room])
    writer.send("submit_events", {"events": [draft]})
    writer.send("submit_events", {"events": [draft]})
    first = writer.receive_until("submit_events_result")["payload"]["results"]
    second = writer.receive_until("submit_events_result")["payload"]["results"]
    assert first == second
    assert first[0]["status"] == "committed"
    assert ids_of(writer.history([room])) == [draft["id"]]


def test_case_14_two_clients_converge(events: Events) -> None:
    room = fresh("room")
    first, second = events.peer(), events.peer()
    first.subscribe(room)
    second.subscribe(room)
    drafts = {peer: [item([room], {"type": "set", "payload": {"by": n}}) for n in range(5)] for peer in (first, second)}

    def commit_each(peer: Peer) -> list[list[int]]:
        return [peer.commit(draft) for draft in drafts[peer]]

    at_once([partial(commit_each, peer) for peer in drafts])
    history = first.history([room])
    assert history == second.history([room])
    for peer, foreign in ((first, second), (second, first)):
        own, seen = set(ids_of(drafts[peer])), peer.broadcasts(5)
        assert ids_of(seen) == ids_of(drafts[foreign])
        assert seen == [event for event in history if event["id"] not in own]
