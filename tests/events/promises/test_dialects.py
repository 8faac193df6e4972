"""The camel dialects of the published clients, 1.3 and 2.x, and how all three see one log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.events.wire import ABSENT, Camel, Events, Message, fresh, item


def ids_of(events: list[Message]) -> list[str]:
    return [event["id"] for event in events]


# -- Detection --------------------------------------------------------------------------------------------------------


def test_each_dialect_is_answered_in_its_own(events: Events) -> None:
    client, project = fresh("client"), fresh("project")
    seed = events.raw(client).connect()
    assert seed["client_id"] == client
    old = events.camel("", client).connect()
    assert old["clientId"] == client
    assert old["globalLastCommittedId"] >= 0
    assert not {"projectId", "client_id"} & set(old)
    new = events.camel(project, client).connect()
    assert (new["clientId"], new["projectId"], new["projectLastCommittedId"]) == (client, project, 0)
    assert "client_id" not in new


VERSIONS: dict[str, Message] = {
    "neither": {},
    "both": {"protocol_version": "1.0", "protocolVersion": "1.0"},
}


@pytest.mark.parametrize("versions", VERSIONS.values(), ids=VERSIONS.keys())
def test_d19_before_the_dialect_is_known_an_error_is_in_both(events: Events, versions: Message) -> None:
    peer = events.raw()
    given = {"protocol_version": ABSENT} | versions
    answer = peer.ask("connect", {"token": "t", "client_id": "c"}, **given)
    assert (answer["type"], answer["payload"]["code"]) == ("error", "bad_request")
    assert (answer["protocol_version"], answer["protocolVersion"]) == ("1.0", "1.0")
    peer.connect()


@pytest.mark.parametrize("frame", ["what?", "[]", "{}", b"\x00"], ids=repr)
def test_d19_a_first_frame_that_says_nothing_settles_nothing(events: Events, frame: str | bytes) -> None:
    for peer in (events.bare(), events.bare()):
        peer.send_raw(frame)
        error = peer.receive()
        assert (error["type"], error["payload"]["code"]) == ("error", "bad_request")
        assert (error["protocol_version"], error["protocolVersion"]) == ("1.0", "1.0")
        peer.send_raw('{"type":"connect","protocolVersion":"1.0","payload":{"token":"t","clientId":"c"}}')
        connected = peer.receive()
        assert connected["type"] == "connected"
        assert "protocol_version" not in connected


def test_the_dialect_is_fixed_once_it_is_known(events: Events) -> None:
    camel = events.camel_1()
    error = camel.ask(
        "sync", {"partitions": ["a"], "sinceCommittedId": 0}, protocolVersion=ABSENT, protocol_version="1.0"
    )
    assert (error["type"], error["payload"]["code"]) == ("error", "bad_request")
    assert camel.sync(["nobody"])["events"] == []


@pytest.mark.parametrize("project", ["", "project"])
def test_camel_another_version_ends_the_connection(events: Events, project: str) -> None:
    for connected in (False, True):
        peer = events.camel(project)
        if connected:
            peer.connect()
        payload = {"token": "t", "clientId": "c"} | ({"projectId": project} if project else {})
        message_id = peer.send("sync" if connected else "connect", payload, protocolVersion="2.0")
        ending = peer.ending()
        assert (ending.error, ending.code) == ("protocolVersion_unsupported", 1008)
        assert ending.messages[-1]["msgId"] == message_id


@pytest.mark.parametrize("project", ["", "project"])
def test_camel_the_envelope(events: Events, project: str) -> None:
    peer = events.camel(project)
    assert peer.error("sync", {})["code"] == "bad_request"
    peer.connect()
    for kind in ("heartbeat", "disconnect", "connect", "nonsense"):
        assert peer.error(kind, {"clientId": "other", "token": "t"})["code"] == "bad_request"
    wrong: list[Message] = [{"type": 1}, {"payload": []}, {"payload": ABSENT}, {"protocolVersion": 1}]
    for overrides in wrong:
        assert peer.error("sync", {}, **overrides)["code"] == "bad_request"
    asked: Message = {"sinceCommittedId": 0} | ({"projectId": project} if project else {"partitions": ["nobody"]})
    without_id = peer.ask("sync", asked, msgId=ABSENT, timestamp=ABSENT)
    assert without_id["type"] == "sync_response"
    named = peer.ask("sync", asked, msgId="my own")
    assert (named["type"], named["msgId"]) == ("sync_response", "my own")


def test_one_connection_a_client_is_not_applied_to_camel(events: Events) -> None:
    client, project, port = fresh("client"), fresh("project"), events.ports[0]
    first, second = events.camel_2(project, client, port=port), events.camel_2(project, client, port=port)
    older, newer = events.camel_1(client, port=port), events.camel_1(client, port=port)
    seed = events.peer(client, port=port)
    for camel in (first, second, older, newer):
        camel.sync([project])
    seed.heartbeat()


# -- 1.3 --------------------------------------------------------------------------------------------------------------


def test_1_3_submit_and_retry(events: Events) -> None:
    room = fresh("room")
    peer, other = events.camel_1(), events.camel_1()
    draft = peer.draft([room, room])
    [result] = peer.submit([draft])
    assert set(result) == {"id", "status", "committedId", "created"}
    assert result["status"] == "committed"
    assert peer.submit([draft]) == [result]
    assert other.submit([draft | {"meta": draft["meta"] | {"clientId": other.client_id}}]) == [result]
    for change in ({"type": "x"}, {"payload": {"card": -1}}, {"partitions": [room, "x"]}, {"projectId": "p"}):
        [conflict] = peer.submit([draft | change])
        assert (conflict["status"], conflict["reason"]) == ("rejected", "validation_failed")
        assert set(conflict) == {"id", "status", "reason", "errors", "created"}
    assert [event["committedId"] for event in peer.sync([room])["events"]] == [result["committedId"]]


def test_1_3_takes_exactly_one_item(events: Events) -> None:
    peer, room = events.camel_1(), fresh("room")
    for batch in ([], [peer.draft([room]), peer.draft([room])]):
        assert peer.error("submit_events", {"events": batch})["code"] == "bad_request"
    assert peer.sync([room])["events"] == []


def test_1_3_sync_is_the_subscription_too(events: Events) -> None:
    first, second = fresh("first"), fresh("second")
    writer, reader = events.camel_1(), events.camel_1()
    old = writer.draft([first])
    [committed_id] = writer.commit(old)
    page = reader.sync([first])
    assert ids_of(page["events"]) == [old["id"]]
    assert (page["partitions"], page["hasMore"], page["nextSinceCommittedId"]) == ([first], False, committed_id)
    assert page["syncToCommittedId"] >= committed_id
    live = writer.draft([first])
    writer.commit(live)
    assert ids_of(reader.broadcasts(1)) == [live["id"]]
    reader.sync([second])
    drafts = [writer.draft([first]), writer.draft([second])]
    for draft in drafts:
        writer.commit(draft)
    assert ids_of(reader.broadcasts(1)) == [drafts[1]["id"]]


def test_1_3_an_event_comes_back_as_it_was_sent(events: Events) -> None:
    room = fresh("room")
    writer, reader = events.camel_1(), events.camel_1()
    reader.sync([room])
    meta = {"clientId": writer.client_id, "clientTs": 1.5, "more": {"a": [1]}}
    draft = writer.draft(["b", room], type="x", payload=[1, {"z": None}], meta=meta, projectId="p")
    [result] = writer.submit([draft])
    [pushed] = reader.broadcasts(1)
    expected = draft | {"committedId": result["committedId"], "created": result["created"]}
    assert pushed == expected | {"partitions": sorted(["b", room])}
    assert reader.sync([room])["events"] == [pushed]


# -- 2.x --------------------------------------------------------------------------------------------------------------


def test_2_x_submit_and_retry(events: Events) -> None:
    project = fresh("project")
    peer, other = events.camel_2(project), events.camel_2(project)
    drafts = [peer.draft() for _ in range(3)]
    results = peer.submit(drafts)
    assert all(set(result) == {"id", "status", "committedId", "serverTs"} for result in results)
    committed = [result["committedId"] for result in results]
    assert committed == sorted(set(committed))
    assert peer.submit(drafts) == results
    own = [draft | {"meta": draft["meta"] | {"clientId": other.client_id}} for draft in drafts]
    assert other.submit(own) == results
    changes: list[Message] = [
        {"partition": "other"},
        {"type": "x"},
        {"schemaVersion": 2},
        {"payload": {}},
        {"meta": drafts[0]["meta"] | {"clientTs": 1}},
        {"meta": drafts[0]["meta"] | {"more": 1}},
    ]
    for change in changes:
        [conflict] = peer.submit([drafts[0] | change])
        assert (conflict["status"], conflict["reason"]) == ("rejected", "validation_failed")
        assert conflict["errors"]
        assert isinstance(conflict["created"], int)
    assert events.camel(project).connect()["projectLastCommittedId"] == committed[-1]


def test_2_x_after_a_rejection_the_rest_is_not_processed(events: Events) -> None:
    project = fresh("project")
    peer, reader = events.camel_2(project), events.camel_2(project)
    reader.sync()
    drafts = [peer.draft(), peer.draft(type=""), peer.draft(), peer.draft(payload=[])]
    results = peer.submit(drafts)
    assert [result["status"] for result in results] == ["committed", "rejected", "not_processed", "not_processed"]
    for result in results[2:]:
        assert (result["reason"], result["blockedById"]) == ("prior_item_failed", drafts[1]["id"])
        assert isinstance(result["created"], int)
    assert ids_of(peer.sync()["events"]) == [drafts[0]["id"]]
    peer.commit(drafts[2])
    assert ids_of(reader.broadcasts(2)) == [drafts[0]["id"], drafts[2]["id"]]


BAD_ITEMS: dict[str, dict[str, list[Any]]] = {
    "validation_failed": {
        "type": [ABSENT, None, "", 1],
        "schemaVersion": [ABSENT, None, 0, -1, 1.5, "1", True],
        "payload": [ABSENT, None, 1, "x", [], True],
        "meta": [ABSENT, None, 1, [], {}, {"clientTs": "1"}, {"clientTs": None}],
        "projectId": [ABSENT],
    },
    "forbidden": {"meta": [{"clientId": "somebody-else", "clientTs": 1}], "projectId": ["another-project"]},
    "bad_request": {"partition": [ABSENT, None, "", 1, ["board"]]},
}
BAD_FIELDS = [
    (reason, field, value) for reason, rows in BAD_ITEMS.items() for field, values in rows.items() for value in values
]


@pytest.mark.parametrize(("reason", "field", "value"), BAD_FIELDS, ids=repr)
def test_2_x_a_bad_field_rejects_the_item(events: Events, reason: str, field: str, value: Any) -> None:
    project = fresh("project")
    peer = events.camel_2(project)
    if isinstance(value, dict) and "clientTs" in value:
        value = {"clientId": peer.client_id} | value
    bad = peer.draft(**{field: value})
    results = peer.submit([peer.draft(), bad, peer.draft()])
    assert [result["status"] for result in results] == ["committed", "rejected", "not_processed"]
    assert results[1]["reason"] == reason
    assert isinstance(results[1]["created"], int)
    assert len(peer.sync()["events"]) == 1


def test_2_x_only_these_refuse_the_request(events: Events) -> None:
    project = fresh("project")
    peer = events.camel_2(project)
    draft = peer.draft()
    wrong: list[Any] = [
        {},
        {"events": None},
        {"events": []},
        {"events": [draft, 1]},
        {"events": [draft, None]},
        {"events": [draft, peer.draft(id=ABSENT)]},
        {"events": [draft, draft]},
        {"events": [draft, peer.draft(id=draft["id"])]},
    ]
    for payload in wrong:
        assert peer.error("submit_events", payload)["code"] == "bad_request"
    assert peer.sync()["events"] == []
    peer.commit(*(peer.draft() for _ in range(100)))


@pytest.mark.parametrize("project", [None, "", 1, ["p"], "cafe\u0301", "\ufb33", "p" * 129, "\u00e9" * 65], ids=repr)
def test_2_x_a_project_that_is_no_name(events: Events, project: Any) -> None:
    peer = events.camel("p")
    refusal = peer.error("connect", {"token": "t", "clientId": "c", "projectId": project})
    assert refusal["code"] == "bad_request"


def test_2_x_the_first_sync_makes_the_connection_live(events: Events) -> None:
    project = fresh("project")
    writer, reader = events.camel_2(project), events.camel_2(project)
    old = [writer.draft() for _ in range(3)]
    committed = writer.commit(*old)
    reader.expect_nothing(0.05)
    page = reader.sync()
    assert ids_of(page["events"]) == ids_of(old)
    assert (page["projectId"], page["hasMore"], page["nextSinceCommittedId"]) == (project, False, committed[-1])
    assert page["syncToCommittedId"] >= committed[-1]
    live = writer.draft()
    writer.commit(live)
    assert ids_of(reader.broadcasts(1)) == [live["id"]]
    assert reader.error("sync", {"projectId": project})["code"] == "bad_request"
    assert reader.error("sync", {"projectId": project, "sinceCommittedId": -1})["code"] == "bad_request"


def test_2_x_an_event_comes_back_as_it_was_sent(events: Events) -> None:
    project = fresh("project")
    writer, reader = events.camel_2(project), events.camel_2(project)
    reader.sync()
    meta = {"clientId": writer.client_id, "clientTs": 1760000000990.5, "more": ["e\u0301", {"b": 1, "a": 2}]}
    payload = {"n": 1.0, "big": 1e21, "small": 1e-7, "text": "e\u0301\ufb33", "__proto__": {}, "": None}
    draft = writer.draft(partition="cafe\u0301", schemaVersion=3, payload=payload, meta=meta)
    [result] = writer.submit([draft])
    [pushed] = reader.broadcasts(1)
    assert pushed == draft | {"committedId": result["committedId"], "serverTs": result["serverTs"]}
    assert reader.sync()["events"] == [pushed]


@pytest.mark.parametrize("project", ["", "project"])
def test_camel_broadcasts_are_held_until_the_last_page(events: Events, project: str) -> None:
    room = fresh("room")

    def client() -> Camel:
        return events.camel_2(room) if project else events.camel_1()

    writer, reader = client(), client()
    old = [writer.draft([room]) for _ in range(5)]
    for draft in old:
        writer.commit(draft)
    page, live = reader.sync([room], 0, 2), list[str]()
    top, seen = page["syncToCommittedId"], ids_of(page["events"])
    for expected in (True, False):
        assert page["hasMore"] is True
        drafts = [writer.draft([room]) for _ in range(2)]
        for draft in drafts:
            writer.commit(draft)
        live += ids_of(drafts)
        page = reader.sync([room], page["nextSinceCommittedId"], 2)
        assert reader.pushed == [], "held until the page that ends the cycle"
        assert (page["hasMore"], page["syncToCommittedId"]) == (expected, top)
        seen += ids_of(page["events"])
    assert seen == ids_of(old)
    assert ids_of(reader.broadcasts(4)) == live


# -- Across dialects --------------------------------------------------------------------------------------------------


def test_a_2_x_event_is_shown_to_a_seed_client_as_it_is_stored(events: Events) -> None:
    project = fresh("project")
    writer, reader = events.camel_2(project), events.peer()
    reader.subscribe(project)
    draft = writer.draft(meta={"clientId": writer.client_id, "clientTs": 5, "more": 1})
    [result] = writer.submit([draft])
    [pushed] = reader.broadcasts(1)
    event = {name: draft[name] for name in ("type", "schemaVersion", "payload", "partition")}
    assert pushed == {
        "id": draft["id"],
        "client_id": writer.client_id,
        "partitions": [project],
        "committed_id": result["committedId"],
        "event": event | {"meta": {"clientTs": 5, "more": 1}},
        "status_updated_at": result["serverTs"],
    }
    assert reader.history([project]) == [pushed]
    again = item([project], pushed["event"], id=draft["id"])
    assert reader.commit(again) == [result["committedId"]], "one dedupe table, one equality"


SEED_TO_2_X: list[tuple[Message, Message]] = [
    ({"type": "t", "payload": {"a": 1}}, {"type": "t", "payload": {"a": 1}, "schemaVersion": 1}),
    ({"type": "t", "payload": 5}, {"payload": {"value": 5}}),
    ({"type": "t", "payload": [1]}, {"payload": {"value": [1]}}),
    ({"type": "t", "payload": None}, {"payload": {"value": None}}),
    (
        {"type": "t", "payload": {}, "schemaVersion": 4, "partition": "board"},
        {"schemaVersion": 4, "partition": "board"},
    ),
    ({"type": "t", "payload": {}, "schemaVersion": 0}, {"schemaVersion": 1}),
    ({"type": "t", "payload": {}, "schemaVersion": "2"}, {"schemaVersion": 1}),
    ({"type": "t", "payload": {}, "schemaVersion": True}, {"schemaVersion": 1}),
]


@pytest.mark.parametrize(("event", "shown"), SEED_TO_2_X, ids=repr)
def test_a_seed_event_is_shown_to_a_2_x_client(events: Events, event: Message, shown: Message) -> None:
    project, other = fresh("project"), fresh("other")
    writer, reader = events.peer(), events.camel_2(project)
    reader.sync()
    [result] = writer.submit([item([project, other], event)])
    [pushed] = reader.broadcasts(1)
    assert (pushed["projectId"], pushed["committedId"]) == (project, result["committed_id"])
    assert pushed["partition"] == event.get("partition", project)
    assert pushed["serverTs"] == result["status_updated_at"]
    assert pushed["meta"] == {"clientId": writer.client_id, "clientTs": result["status_updated_at"]}
    assert {name: pushed[name] for name in shown} == shown
    assert set(pushed) >= {"id", "type", "schemaVersion", "payload"}
    assert reader.sync()["events"] == [pushed]


def test_a_seed_event_without_payload_is_an_object_for_2_x(events: Events) -> None:
    project = fresh("project")
    reader = events.camel_2(project)
    reader.sync()
    events.peer().commit(item([project], {"type": "t"}))
    assert isinstance(reader.broadcasts(1)[0]["payload"], dict)


def test_1_3_and_the_others_see_each_other(events: Events) -> None:
    project = fresh("project")
    seed, old, new = events.peer(), events.camel_1(), events.camel_2(project)
    seed.subscribe(project)
    old.sync([project])
    new.sync()
    from_old = old.draft([project])
    [old_id] = old.commit(from_old)
    [at_seed], [at_new] = seed.broadcasts(1), new.broadcasts(1)
    meta = {"clientTs": from_old["meta"]["clientTs"]}
    stored = {"type": from_old["type"], "payload": from_old["payload"], "meta": meta}
    assert (at_seed["event"], at_seed["client_id"], at_seed["committed_id"]) == (stored, old.client_id, old_id)
    assert (at_new["type"], at_new["payload"], at_new["meta"]) == tuple(
        from_old[n] for n in ("type", "payload", "meta")
    )
    assert (at_new["projectId"], at_new["schemaVersion"], at_new["committedId"]) == (project, 1, old_id)
    from_new = new.draft()
    [new_id] = new.commit(from_new)
    [at_old], _ = old.broadcasts(1), seed.broadcasts(1)
    assert (at_old["id"], at_old["committedId"], at_old["partitions"]) == (from_new["id"], new_id, [project])
    assert (at_old["type"], at_old["payload"]) == (from_new["type"], from_new["payload"])
    assert at_old["meta"] == from_new["meta"]
    from_seed = item([project], {"type": "t", "payload": [1]})
    [seed_id] = seed.commit(from_seed)
    [at_old] = old.broadcasts(1)
    assert (at_old["id"], at_old["committedId"], at_old["type"], at_old["payload"]) == (
        from_seed["id"],
        seed_id,
        "t",
        [1],
    )
    assert at_old["meta"]["clientId"] == seed.client_id
    assert old_id < new_id < seed_id
    assert ids_of(seed.history([project])) == ids_of(old.sync([project])["events"]) == ids_of(new.sync()["events"])


def test_an_id_is_taken_in_every_dialect(events: Events) -> None:
    project = fresh("project")
    seed, old, new = events.peer(), events.camel_1(), events.camel_2(project)
    draft = item([project])
    seed.commit(draft)
    for camel in (old, new):
        [result] = camel.submit([camel.draft([project], id=draft["id"])])
        assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
