"""Frames, envelopes, states, versions and profiles: what is malformed is refused in words and the connection stays.

Nothing here reaches a store beyond an ordinary write, so one store will do: SQLite.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.events.wire import ABSENT, Events, Peer, fresh, item, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Events]:
    with serving(tmp_path_factory.mktemp("envelope") / "data", store="sqlite") as events:
        yield events


@pytest.fixture
def events(served: Events) -> Iterator[Events]:
    yield served
    served.close_peers()


def refuses(peer: Peer, code: str = "bad_request") -> None:
    """The next answer is this error, and the connection lives on."""
    answer = peer.receive_until("error")
    assert answer["payload"]["code"] == code, answer
    assert isinstance(answer["payload"]["message"], str)
    peer.heartbeat()


# -- Frames -----------------------------------------------------------------------------------------------------------

HEAD = '"type":"heartbeat","msg_id":"m","timestamp":1,"protocol_version":"1.0"'
NOT_A_MESSAGE = {
    "empty": "",
    "space": " ",
    "word": "hello",
    "array": "[]",
    "array of messages": f'[{{{HEAD},"payload":{{}}}}]',
    "number": "1",
    "string": '"x"',
    "null": "null",
    "cut off": f"{{{HEAD}",
    "two objects": f'{{{HEAD},"payload":{{}}}}{{}}',
    "trailing comma": f'{{{HEAD},"payload":{{}},}}',
    "single quotes": "{'type':'heartbeat'}",
    "comment": f'{{{HEAD},"payload":{{}}}}// x',
    "byte order mark": f'\ufeff{{{HEAD},"payload":{{}}}}',
    "raw control character": f'{{{HEAD},"payload":{{"a":"\n"}}}}',
    "NaN": f'{{{HEAD},"payload":{{"a":NaN}}}}',
    "Infinity": f'{{{HEAD},"payload":{{"a":Infinity}}}}',
    "minus Infinity": f'{{{HEAD},"payload":{{"a":-Infinity}}}}',
    "leading zero": f'{{{HEAD},"payload":{{"a":01}}}}',
    "plus sign": f'{{{HEAD},"payload":{{"a":+1}}}}',
    "bare point": f'{{{HEAD},"payload":{{"a":1.}}}}',
    "hexadecimal": f'{{{HEAD},"payload":{{"a":0x1}}}}',
    "bad escape": f'{{{HEAD},"payload":{{"a":"\\x"}}}}',
    "envelope key twice": f'{{{HEAD},"type":"heartbeat","payload":{{}}}}',
    "payload key twice": f'{{{HEAD},"payload":{{"a":1,"a":1}}}}',
    "inner key twice, once escaped": f'{{{HEAD},"payload":{{"a":[{{"b":1,"\\u0062":2}}]}}}}',
}


@pytest.mark.parametrize("frame", NOT_A_MESSAGE.values(), ids=NOT_A_MESSAGE.keys())
def test_text_that_is_no_message(events: Events, frame: str) -> None:
    peer = events.raw()
    peer.send_raw(frame)
    refuses(peer)
    peer.connect()
    peer.send_raw(frame)
    refuses(peer)


def test_a_binary_frame_is_refused_even_if_its_content_is_right(events: Events) -> None:
    peer = events.peer()
    peer.send_raw(f'{{{HEAD},"payload":{{}}}}'.encode())
    refuses(peer)
    peer.send_raw(b"\x00\xff")
    refuses(peer)
    peer.send_raw(b"")
    refuses(peer)


def test_a_message_may_come_in_fragments(events: Events) -> None:
    peer = events.peer()
    text = f'{{{HEAD},"payload":{{"note":"caf\u00e9"}}}}'
    peer.sent.add("m")
    peer.send_raw([text[:1], text[1:40], "", text[40:]])
    peer.receive_until("heartbeat_ack")


def test_invalid_utf8_ends_the_connection_or_is_refused(events: Events) -> None:
    peer = events.peer()
    peer.socket.send(f'{{{HEAD},"payload":{{"a":"'.encode() + b'\xff"}}', text=True)
    try:
        assert peer.answer()["payload"]["code"] == "bad_request"
    except AssertionError:
        assert peer.ending().code == 1007
    events.peer().heartbeat()


@pytest.mark.parametrize("depth", [70, 10_000, 200_000])
def test_deep_nesting_is_refused_and_overflows_nothing(events: Events, depth: int) -> None:
    peer = events.peer()
    peer.send_raw("[" * depth)
    refuses(peer)
    peer.send_raw("[" * depth + "]" * depth)
    refuses(peer)
    peer.send_raw('{"a":' * (depth // 5) + "1" + "}" * (depth // 5))
    refuses(peer)


def test_whitespace_and_escapes_do_not_matter(events: Events) -> None:
    peer = events.peer()
    message = {"type": "heartbeat", "msg_id": "m-1", "timestamp": 1, "protocol_version": "1.0", "payload": {}}
    peer.sent.add("m-1")
    peer.send_raw(" \r\n" + json.dumps(message, indent=4).replace("heartbeat", "heart\\u0062eat") + "\t\n")
    peer.receive_until("heartbeat_ack")


# -- Envelope ---------------------------------------------------------------------------------------------------------

WRONG_FIELDS: dict[str, list[Any]] = {
    "type": [ABSENT, None, 1, True, "", [], {}],
    "msg_id": [ABSENT, None, 1, "", [], {}],
    "timestamp": [ABSENT, None, "1760000000000", True, [], {}],
    "protocol_version": [None, 1, 1.0, True, ["1.0"], {}],
    "payload": [ABSENT, None, 1, "x", [], True],
}


def described(value: object) -> str:
    return json.dumps(value, default=repr)


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG_FIELDS.items() for value in values], ids=described
)
def test_a_field_of_the_envelope_is_wrong(events: Events, field: str, value: Any) -> None:
    peer = events.raw()
    peer.heartbeat()
    for kind in ("heartbeat", "connect"):
        peer.send(kind, **{field: value})
        refuses(peer)
    peer.connect()
    peer.send("heartbeat", **{field: value})
    refuses(peer)


def test_the_version_may_not_go_missing_once_the_dialect_is_known(events: Events) -> None:
    peer = events.peer()
    peer.send("heartbeat", protocol_version=ABSENT)
    refuses(peer)
    peer.send("heartbeat", protocol_version=ABSENT, protocolVersion="1.0")
    refuses(peer)


@pytest.mark.parametrize("timestamp", [0, -1, 1.5, 1e300, 2**53 - 1, 9_999_999_999_999])
def test_no_clock_is_too_wrong(events: Events, timestamp: float) -> None:
    peer = events.peer()
    peer.send("heartbeat", timestamp=timestamp)
    peer.receive_until("heartbeat_ack")


def test_unknown_fields_are_ignored_outside_the_event(events: Events) -> None:
    peer, room = events.raw(), fresh("room")
    peer.send("connect", {"token": "t", "client_id": peer.client_id, "colour": "red"}, trace=[1], reply_to="x")
    peer.receive_until("connected")
    draft = item([room], {"type": "t", "colour": "red"}, colour="red")
    peer.send("submit_events", {"events": [draft], "colour": "red"}, trace={"a": 1})
    assert peer.receive_until("submit_events_result")["payload"]["results"][0]["status"] == "committed"
    peer.send("sync", {"partitions": [room], "since_committed_id": 0, "colour": "red"})
    [event] = peer.receive_until("sync_response")["payload"]["events"]
    assert event["event"] == {"type": "t", "colour": "red"}
    assert "colour" not in event


def test_answers_may_name_the_request_and_nothing_else(events: Events) -> None:
    peer = events.peer()
    message_id = peer.send("heartbeat")
    assert peer.answer().get("reply_to", message_id) == message_id
    message_id = peer.send("nonsense")
    assert peer.answer().get("reply_to", message_id) == message_id


def test_one_message_id_may_come_twice(events: Events) -> None:
    """It is for tracing: a repeated one is no fault of the message."""
    peer = events.peer()
    for _ in range(2):
        peer.sent.add("same")
        peer.send("heartbeat", msg_id="same")
        peer.receive_until("heartbeat_ack")


# -- States and types -------------------------------------------------------------------------------------------------

UNKNOWN_TYPES = ["teleport", "Connect", "connected", "submit_events_result", "event_broadcast", "error", "submit"]


@pytest.mark.parametrize("kind", UNKNOWN_TYPES)
def test_unknown_types_are_refused_in_both_states(events: Events, kind: str) -> None:
    peer = events.raw()
    peer.send(kind)
    refuses(peer)
    peer.connect()
    peer.send(kind)
    refuses(peer)


@pytest.mark.parametrize("kind", ["submit_events", "sync", "disconnect"])
def test_before_connect_only_heartbeats_are_answered(events: Events, kind: str) -> None:
    peer, room = events.raw(), fresh("room")
    peer.heartbeat()
    peer.send(kind, {"events": [item([room])], "partitions": [room], "since_committed_id": 0})
    refuses(peer)
    peer.connect()
    assert peer.history([room]) == []


def test_a_second_connect_is_refused_and_changes_nothing(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    peer.subscribe(room)
    peer.send("connect", {"token": "t", "client_id": "somebody-else"})
    refuses(peer)
    draft = item([room])
    events.peer().commit(draft)
    assert peer.broadcasts(1)[0]["id"] == draft["id"]
    peer.commit(item([room]))
    assert peer.history([room])[-1]["client_id"] == peer.client_id


WRONG_CONNECTS: list[dict[str, Any]] = [
    {"client_id": ABSENT},
    {"client_id": None},
    {"client_id": 1},
    {"client_id": ""},
    {"token": ABSENT},
    {"token": None},
    {"token": 1},
    {"supported_profiles": "canonical"},
    {"supported_profiles": [1]},
    {"required_profile": 1},
    {"required_tree_policy": 1},
]


@pytest.mark.parametrize("payload", WRONG_CONNECTS, ids=str)
def test_a_connect_of_the_wrong_shape_can_be_mended(events: Events, payload: dict[str, Any]) -> None:
    peer = events.raw()
    given = {"token": "t", "client_id": peer.client_id} | payload
    peer.send("connect", {name: value for name, value in given.items() if value is not ABSENT})
    refuses(peer)
    peer.connect()


def test_messages_of_one_connection_are_handled_in_order(events: Events) -> None:
    peer, room = events.raw(), fresh("room")
    drafts = [item([room]) for _ in range(3)]
    asked = {"partitions": [room], "since_committed_id": 0}
    peer.send("connect", {"token": "t", "client_id": peer.client_id})
    peer.send("submit_events", {"events": drafts[:2]})
    peer.send("sync", asked)
    peer.send("heartbeat")
    peer.send("nonsense")
    peer.send("submit_events", {"events": drafts[2:]})
    peer.send("sync", asked)
    peer.send("disconnect")
    ending = peer.ending()
    assert ending.code == 1000
    assert [message["type"] for message in ending.messages] == [
        "connected",
        "submit_events_result",
        "sync_response",
        "heartbeat_ack",
        "error",
        "submit_events_result",
        "sync_response",
    ]
    pages = [message["payload"]["events"] for message in ending.messages if message["type"] == "sync_response"]
    assert [len(page) for page in pages] == [2, 3]


# -- Versions and profiles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.1", "1", "1.0.0", "2.0", "0.9", "", "v1.0", " 1.0"])
@pytest.mark.parametrize("connected", [False, True])
def test_any_other_version_ends_the_connection(events: Events, version: str, connected: bool) -> None:
    peer = events.peer() if connected else events.raw()
    payload = {"token": "t", "client_id": peer.client_id}
    peer.send("heartbeat" if connected else "connect", payload, protocol_version=version)
    ending = peer.ending()
    assert (ending.error, ending.code, len(ending.messages)) == ("protocol_version_unsupported", 1008, 1)
    details = ending.messages[0]["payload"]["details"]
    assert (details["requested_version"], details["supported_versions"]) == (version, ["1.0"])


def test_without_profiles_a_client_is_of_the_compatibility_profile(events: Events) -> None:
    for payload in ({}, {"supported_profiles": ["compatibility"]}, {"required_profile": "compatibility"}):
        capabilities = events.raw().connect(**payload)["capabilities"]
        assert (capabilities["profile"], capabilities["tree_policy"]) == ("compatibility", "strict")
        assert all(isinstance(kind, str) for kind in capabilities["accepted_event_types"])


def test_the_canonical_profile(events: Events) -> None:
    for payload in (
        {"supported_profiles": ["canonical"]},
        {"supported_profiles": ["canonical", "compatibility"], "required_profile": "canonical"},
    ):
        capabilities = events.raw().connect(**payload)["capabilities"]
        assert (capabilities["profile"], capabilities["accepted_event_types"]) == ("canonical", ["event"])
        assert "tree_policy" not in capabilities


def test_a_tree_policy_that_is_met(events: Events) -> None:
    assert events.raw().connect(required_tree_policy="strict")["capabilities"]["tree_policy"] == "strict"


@pytest.mark.parametrize(
    "payload",
    [
        {"required_profile": "baroque"},
        {"required_profile": "baroque", "supported_profiles": ["baroque"]},
        {"required_tree_policy": "lenient"},
    ],
    ids=str,
)
def test_a_requirement_that_cannot_be_met_ends_the_connection(events: Events, payload: dict[str, Any]) -> None:
    peer = events.raw()
    peer.send("connect", {"token": "t", "client_id": peer.client_id} | payload)
    ending = peer.ending()
    assert (ending.error, ending.code) == ("profile_unsupported", 1008)
    assert sorted(ending.messages[0]["payload"]["details"]["supported_profiles"]) == ["canonical", "compatibility"]


@pytest.mark.parametrize("profile", ["canonical", "compatibility"])
def test_any_type_but_init_is_accepted_by_default(events: Events, profile: str) -> None:
    peer, room = events.raw(), fresh("room")
    peer.connect(supported_profiles=[profile])
    peer.commit(
        *(item([room], {"type": kind}) for kind in ("event", "order.placed", "x y", "\u00e9", "Init", "treePush"))
    )
    [result] = peer.submit([item([room], {"type": "init", "payload": {}})])
    assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
    assert result["errors"][0]["field"] == "event.type"
