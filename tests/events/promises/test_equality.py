"""Case 23: two submissions are the same if their canonical bytes are; the vectors of RFC 8785 and the traps, as text.

What is equal is answered with the recorded commit, what differs is a conflict, and what no canonical form can hold is
refused. Texts go over the wire letter for letter.
"""

from __future__ import annotations

import hashlib
import json

import pytest
import rfc8785

from tests.events.wire import Events, Message, Peer, fresh


def outcome(peer: Peer, room: str, first: str, second: str) -> str:
    """What a second submission under the same id gets: `same` or `conflict`."""
    name, partitions = fresh("e"), json.dumps([room])
    recorded = peer.result_text(name, partitions, first)
    assert recorded["status"] == "committed", recorded
    answer = peer.result_text(name, partitions, second)
    if answer == recorded:
        return "same"
    assert (answer["status"], answer["reason"]) == ("rejected", "validation_failed"), answer
    assert [error["field"] for error in answer["errors"]] == ["event"], answer
    return "conflict"


def event_with(value: str) -> str:
    return f'{{"type":"t","payload":{value}}}'


# -- Numbers ----------------------------------------------------------------------------------------------------------

CANONICAL_NUMBERS = {
    "1": ["1.0", "10e-1", "1E0", "1e+0", "0.1e1"],
    "10000000000000000": ["1e16", "1E+16"],
    "100000000000000000000": ["1e20", "100000000000000000000"],
    "1e+21": ["1e21", "1000000000000000000000.0"],
    "0.000001": ["1e-6", "0.0000010"],
    "1e-7": ["0.0000001", "0.1e-6"],
    "5e-324": ["5E-324", "4.9406564584124654e-324"],
    "1.7976931348623157e+308": ["1.7976931348623157e308"],
    "333333333.3333333": ["333333333.33333329"],
    "1e+23": ["1e23"],
    "4.5": ["4.50"],
    "0.30000000000000004": ["0.300000000000000044"],
    "0": ["-0", "-0.0", "0.0", "0e5", "-0e-5", "1e-400", "-1e-400"],
    "12345678901234567000": ["12345678901234567000", "1.2345678901234567e19"],
    "9007199254740991": ["9007199254740991.0"],
    "9007199254740992": ["9007199254740992", "9007199254740993.0", "9.007199254740993e15"],
    "-1.5": ["-15e-1"],
}


@pytest.mark.parametrize(
    ("canonical", "spelled"), [(canonical, one) for canonical, many in CANONICAL_NUMBERS.items() for one in many]
)
def test_case_23_a_number_may_be_spelled_in_many_ways(events: Events, canonical: str, spelled: str) -> None:
    peer, room = events.peer(), fresh("room")
    assert outcome(peer, room, event_with(spelled), event_with(canonical)) == "same"
    assert outcome(peer, room, event_with(f"[{canonical}]"), event_with(f"[{spelled}]")) == "same"
    values = [event["event"]["payload"] for event in peer.history([room])]
    assert [float(value) for value in (values[0], values[1][0])] == [float(canonical)] * 2


OTHER_NUMBERS = [
    ("1", "1.0000000000000002"),
    ("0.1", "0.10000000000000002"),
    ("5e-324", "0"),
    ("9007199254740992", "9007199254740991"),
    ("1", '"1"'),
    ("1", "true"),
    ("0", "false"),
    ("0", "null"),
    ("1", "-1"),
    ("1", "[1]"),
]


@pytest.mark.parametrize(("first", "second"), OTHER_NUMBERS)
def test_case_23_other_numbers_are_other_content(events: Events, first: str, second: str) -> None:
    assert outcome(events.peer(), fresh("room"), event_with(first), event_with(second)) == "conflict"


NO_NUMBERS = [
    "9007199254740993",
    "-9007199254740993",
    "12345678901234567001",
    "12345678901234567890",
    "1000000000000000000000",
    "1e400",
    "-1e400",
    "1.8e308",
    "1" + "0" * 400,
]


@pytest.mark.parametrize("token", NO_NUMBERS, ids=lambda token: token[:24])
def test_case_23_a_number_that_no_double_holds_rejects_the_item(events: Events, token: str) -> None:
    peer, room = events.peer(), fresh("room")
    for value in (token, f"[0,[{token}]]", f'{{"a":{{"b":{token}}}}}'):
        result = peer.result_text(fresh("e"), json.dumps([room]), event_with(value))
        assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
        assert result["errors"][0]["field"].startswith("event")
    assert peer.history([room]) == []


# -- Strings and keys -------------------------------------------------------------------------------------------------

SAME_TEXTS = {
    "escaped letter": ('"A"', '"\\u0041"'),
    "escaped slash": ('"a/b"', '"a\\/b"'),
    "short and long escape": ('"\\b\\t\\n\\f\\r\\"\\\\"', '"\\u0008\\u0009\\u000a\\u000C\\u000d\\u0022\\u005c"'),
    "upper case in escapes": ('"\\u001f\\u00e9"', '"\\u001F\\u00E9"'),
    "raw and escaped": ('"\u00e9\u2028\u007f"', '"\\u00e9\\u2028\\u007f"'),
    "raw and a pair of escapes": ('"\U0001f600"', '"\\ud83d\\ude00"'),
    "key order": ('{"b":1,"a":2}', '{"a":2,"b":1}'),
    "key order, deep": ('[{"b":{"d":1,"c":2},"a":3}]', '[{"a":3,"b":{"c":2,"d":1}}]'),
    "keys across the surrogates": ('{"\ue000":2,"\U0001f600":1}', '{"\\ud83d\\ude00":1,"\\ue000":2}'),
    "escaped key": ('{"a":1}', '{"\\u0061":1}'),
    "whitespace": ('{"a":[1,2]}', ' {\n"a" :\t[ 1 ,2 ]\r} '),
    "odd keys": ('{"":0,"__proto__":1,"1":2,"10":3,"9":4}', '{"9":4,"10":3,"1":2,"__proto__":1,"":0}'),
    "empty": ("{}", "{ }"),
}


@pytest.mark.parametrize(("first", "second"), SAME_TEXTS.values(), ids=SAME_TEXTS.keys())
def test_case_23_a_text_may_be_spelled_in_many_ways(events: Events, first: str, second: str) -> None:
    peer, room = events.peer(), fresh("room")
    assert outcome(peer, room, event_with(first), event_with(second)) == "same"
    assert outcome(peer, room, event_with(second), event_with(first)) == "same"
    for event in peer.history([room]):
        assert event["event"]["payload"] == json.loads(first)


OTHER_TEXTS = {
    "composed and decomposed": ('"\u00e9"', '"e\u0301"'),
    "compatibility letter": ('"\ufb01"', '"fi"'),
    "a letter that NFC takes apart": ('"\ufb33"', '"\u05d3\u05bc"'),
    "decomposed key": ('{"\u00e9":1}', '{"e\u0301":1}'),
    "case": ('"A"', '"a"'),
    "space": ('"a"', '"a "'),
    "array order": ("[1,2]", "[2,1]"),
    "null and absent": ('{"a":null}', "{}"),
    "empty string and null": ('""', "null"),
    "object and array": ("{}", "[]"),
    "odd key": ('{"__proto__":1}', "{}"),
    "empty key": ('{"":1}', "{}"),
    "zero": ('"\\u0000"', '""'),
}


@pytest.mark.parametrize(("first", "second"), OTHER_TEXTS.values(), ids=OTHER_TEXTS.keys())
def test_case_23_other_texts_are_other_content(events: Events, first: str, second: str) -> None:
    assert outcome(events.peer(), fresh("room"), event_with(first), event_with(second)) == "conflict"


LONE_SURROGATES = ['"\\ud800"', '"a\\udc00"', '"\\ude00\\ud83d"', '"\\ud800\\ud800"', '["\\udfff"]', '{"\\ud800":1}']


@pytest.mark.parametrize("value", LONE_SURROGATES)
def test_case_23_a_lone_surrogate_rejects_the_item(events: Events, value: str) -> None:
    peer, room = events.peer(), fresh("room")
    for event in (event_with(value), f'{{"type":"t","x":{value}}}'):
        result = peer.result_text(fresh("e"), json.dumps([room]), event)
        assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
    assert peer.history([room]) == []


NOT_I_JSON = {
    "key twice": '{"type":"t","type":"t"}',
    "key twice, deep": '{"type":"t","payload":[{"a":1,"b":{},"a":1}]}',
    "key twice, once escaped": '{"type":"t","a":1,"\\u0061":1}',
    "empty key twice": '{"type":"t","":1,"":1}',
    "NaN": '{"type":"t","payload":NaN}',
    "Infinity": '{"type":"t","payload":[Infinity]}',
    "minus Infinity": '{"type":"t","payload":-Infinity}',
}


@pytest.mark.parametrize("event", NOT_I_JSON.values(), ids=NOT_I_JSON.keys())
def test_case_23_what_is_not_i_json_refuses_the_request(events: Events, event: str) -> None:
    peer, room = events.peer(), fresh("room")
    answer = peer.submit_text(fresh("e"), json.dumps([room]), event)
    assert (answer["type"], answer["payload"]["code"]) == ("error", "bad_request")
    assert peer.history([room]) == []


# -- Depth ------------------------------------------------------------------------------------------------------------


def nested(levels: int, opening: str = "[", closing: str = "]") -> str:
    """An event so many levels deep; it is the first one itself."""
    return event_with(opening * (levels - 1) + closing * (levels - 1))


def test_case_23_sixty_four_levels_are_stored(events: Events) -> None:
    peer, room = events.peer(), fresh("room")
    for event in (nested(64), '{"type":"t","a":' * 63 + "{}" + "}" * 63):
        assert peer.result_text(fresh("e"), json.dumps([room]), event)["status"] == "committed"
        assert peer.history([room])[-1]["event"] == json.loads(event)


@pytest.mark.parametrize("levels", [65, 200, 2_000, 100_000])
def test_case_23_deeper_events_are_rejected(events: Events, levels: int) -> None:
    peer, room = events.peer(), fresh("room")
    for event in (nested(levels), nested(levels, '{"":', "}").replace('{"":}', "{}")):
        result = peer.result_text(fresh("e"), json.dumps([room]), event)
        assert (result["status"], result["reason"]) == ("rejected", "validation_failed")
    assert peer.history([room]) == []


# -- Whole vectors ----------------------------------------------------------------------------------------------------

VECTORS = {
    "e5f93a307512dc44a8044478fd3e417466975de5e9bbd9f0379ac383a783854d": (
        '["room-7"]',
        '{"type":"note.added","payload":{"text":"hi","n":1.0}}',
        ['{"payload":{"n":1,"text":"hi"},"type":"note.added"}'],
        ["room-7"],
    ),
    "dfc9d2f9d6323278fd7c2f9aa016e552ef7f75e1d6c0f2c40b63b6e559c011b5": (
        '["cafe\\u0301","caf\\u00e9"]',
        '{"type":"t","payload":{"a":-0.0,"b":1e21,"c":1e-7,"d":0.000001,"e":1e16}}',
        ['{"payload":{"e":10000000000000000,"d":1e-6,"c":0.0000001,"b":1e+21,"a":0},"type":"t"}'],
        ["caf\u00e9"],
    ),
    "6c556cdc0df9646506deec8822fff501d868115e336d8fba9bdf4447c944ec5c": (
        '["\\ud83d\\ude00","\\ue000"]',
        '{"\\ue000":2,"\\ud83d\\ude00":1,"type":"t"}',
        ['{"type":"t","\U0001f600":1,"\ue000":2}'],
        ["\ue000", "\U0001f600"],
    ),
    "6ff5f1fb0cf179a9332dc13a5c975b705f4f8d985dd593a3788266274aef2b75": (
        '["p"]',
        '{"type":"t","payload":{"s":"\\u0001\\b\\t\\"\\\\/\\u007f\\u2028\\u00e9e\\u0301"}}',
        ['{"type":"t","payload":{"s":"\\u0001\\u0008\\u0009\\u0022\\u005C\\/\u007f\u2028\u00e9e\u0301"}}'],
        ["p"],
    ),
    "805ab44b97a9e3e2ac3ebf8e98c0857d5231519dca95a85542e86196ea000614": (
        '["\\ufb33"]',
        '{"type":"\\ufb33"}',
        ['{"type":"\ufb33"}'],
        ["\u05d3\u05bc"],
    ),
}


@pytest.mark.parametrize("digest", VECTORS)
def test_case_23_whole_vectors(events: Events, digest: str) -> None:
    partitions, event, equals, stored = VECTORS[digest]
    canonical = rfc8785.dumps({"partitions": stored, "event": json.loads(event)})
    assert hashlib.sha256(canonical).hexdigest() == digest, "the table of this test is right"
    peer, name = events.peer(), fresh("e")
    recorded = peer.result_text(name, partitions, event)
    assert recorded["status"] == "committed"
    own: Message = json.loads(canonical)
    for text in [*equals, event, json.dumps(own["event"])]:
        assert peer.result_text(name, partitions, text) == recorded
        assert peer.result_text(name, json.dumps(stored), text) == recorded
    [kept] = peer.history(stored, recorded["committed_id"] - 1)
    assert (kept["partitions"], kept["event"]) == (stored, json.loads(event))
