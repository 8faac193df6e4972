"""What is no JSON, or JSON that two readers would understand differently, is refused before anything looks at it."""

from __future__ import annotations

import json

import pytest

from tests.deltas.rig import check_nothing_stored
from tests.deltas.wire import CLIENT, Deltas, columns, delta

DELTA = delta("INSERT", columns(title="x"))
GOOD = json.dumps({"clientId": CLIENT, "deltas": [DELTA]}).encode()
DEEP = 100_000


def around(text: bytes) -> bytes:
    """A push with one more member, which nobody would look at; it holds this text."""
    return GOOD[:-1] + b', "extra": ' + text + b"}"


def valued(text: bytes, value: object = 0) -> bytes:
    """A push of a delta with this text for its value; the id is that of another, since the text has none."""
    made = delta("INSERT", columns(title=value)) | {"columns": [{"column": "title", "value": "HERE"}]}
    return json.dumps({"clientId": CLIENT, "deltas": [made]}).encode().replace(b'"HERE"', text)


def nested(levels: int, kind: str = "[]") -> bytes:
    opening, closing = {"[]": (b"[", b"]"), "{}": (b'{"a":', b"}")}[kind]
    return opening * levels + b"1" + closing * levels


BROKEN = {
    "nothing": b"",
    "blanks": b" \n",
    "cut off": GOOD[:-1],
    "cut in a string": GOOD[: GOOD.index(b"client-a") + 3],
    "more after it": GOOD + b"x",
    "twice": GOOD + GOOD,
    "single quotes": GOOD.replace(b'"', b"'"),
    "name without quotes": b'{clientId: "c", "deltas": []}',
    "comma at the end": b'{"clientId": "c", "deltas": [],}',
    "comma in a list": b'{"clientId": "c", "deltas": [,]}',
    "comment": GOOD + b"// note",
    "comment inside": b'{/* note */"clientId": "c", "deltas": []}',
    "control character": b'{"clientId": "c\x01", "deltas": []}',
    "raw newline": b'{"clientId": "c\n", "deltas": []}',
    "escape x": b'{"clientId": "\\x41", "deltas": []}',
    "escape u cut": b'{"clientId": "\\u12", "deltas": []}',
    "escape u spoiled": b'{"clientId": "\\u00zz", "deltas": []}',
    "vertical tab": b"\x0b" + GOOD,
    "wide blank": "\u00a0".encode() + GOOD,
    "mark of order": "\ufeff".encode() + GOOD,
    "utf-16": GOOD.decode().encode("utf-16"),
    "utf-32": GOOD.decode().encode("utf-32-le"),
    "nul after it": GOOD + b"\x00",
    "True": around(b"True"),
    "undefined": around(b"undefined"),
    "byte ff": around(b'"\xff"'),
    "overlong": around(b'"\xc0\x80"'),
    "half a pair in bytes": around(b'"\xed\xa0\x80"'),
    "beyond unicode": around(b'"\xf4\x90\x80\x80"'),
    "cut character": around(b'"\xe6\x97"'),
    "latin-1": around('"caf\u00e9"'.encode("latin-1")),
}
NO_NUMBERS = {
    "NaN": b"NaN",
    "-NaN": b"-NaN",
    "Infinity": b"Infinity",
    "-Infinity": b"-Infinity",
    "too large": b"1e400",
    "too far below": b"-1e400",
    "just too large": b"1.7976931348623159e308",
    "digits beyond a double": b"1" * 400,
    "huge exponent": b"1e999999999",
    "leading nought": b"01",
    "minus leading nought": b"-01",
    "plus": b"+1",
    "no digit first": b".5",
    "no digit after": b"1.",
    "no digit behind e": b"1e",
    "two minuses": b"--1",
    "minus alone": b"-",
    "hexadecimal": b"0x10",
    "underscore": b"1_000",
    "other digits": "\u0661".encode(),
}
TWICE = {
    "clientId": GOOD[:-1] + b', "clientId": "client-a"}',
    "deltas": GOOD[:-1] + b', "deltas": []}',
    "unknown": GOOD[:-1] + b', "x": 1, "x": 1}',
    "escaped": GOOD[:-1] + b', "x": 1, "\\u0078": 1}',
    "empty": around(b'{"": 1, "": 2}'),
    "deep": around(b'[[{"a": {"b": [{"c": 1, "d": 2, "c": 1}]}}]]'),
    "in a delta": GOOD.replace(b'"op": "INSERT"', b'"op": "INSERT", "op": "INSERT"'),
    "hlc": GOOD.replace(b'"op": "INSERT"', b'"op": "INSERT", "hlc": "0"'),
    "in a column": GOOD.replace(b'"value": "x"', b'"value": "x", "value": "x"'),
    "in a value": valued(b'{"a": 0, "a": 0}'),
    "half a pair": around(b'{"\\ud800": 1, "\\uD800": 2}'),
    "pair raw and escaped": around('{"\U0001f389": 1, "\\ud83c\\udf89": 2}'.encode()),
}
TOO_DEEP = {
    **{f"value of {levels} lists": valued(nested(levels)) for levels in (65, 200, DEEP)},
    **{f"value of {levels} objects": valued(nested(levels, "{}")) for levels in (65, 200, DEEP)},
    "unknown member": around(nested(DEEP)),
    "never closed": b"[" * DEEP,
    "objects never closed": b'{"a":' * DEEP,
    "behind clientId": b'{"clientId": "c", "deltas": ' + nested(DEEP) + b"}",
}
REFUSED = {
    **BROKEN,
    **{f"number: {name}": valued(text) for name, text in NO_NUMBERS.items()},
    **{f"twice: {name}": text for name, text in TWICE.items()},
    **{f"deep: {name}": text for name, text in TOO_DEEP.items()},
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_no_sound_json(anywhere: Deltas, gateway: str, body: bytes) -> None:
    assert anywhere.push_raw(gateway, body, expect=400).told == (400, "VALIDATION_ERROR")
    check_nothing_stored(anywhere, gateway)


TAKEN = {
    "blanks around": b" \t\r\n" + GOOD + b"\n ",
    "escaped names": GOOD.replace(b'"clientId"', b'"\\u0063lient\\u0049d"').replace(b'"op"', b'"\\u006fp"'),
    "raw characters": around('"\u2028\u007f\U0001f389"'.encode()),
    "escaped solidus": around(b'"\\/"'),
    "halves of pairs": around(b'["\\ud800", "\\udc00\\ud800", {"\\udfff": "\\ud800\\ud800"}]'),
    "same name in two objects": around(b'[{"a": {"a": {"a": 1}}}, {"a": 1, "A": 2}]'),
    "composed and not": around('{"\u00e9": 1, "e\u0301": 2}'.encode()),
    "largest double": around(b"[1.7976931348623157e308, -1.7976931348623157E+308]"),
    "smallest double": around(b"[5e-324, 1e-999]"),
    "many digits": around(b"0." + b"1" * 5_000),
    "nought": around(b"[0, -0, 0.0, -0.0, 0e0, 0e999]"),
    "fifty levels": around(nested(50)),
    "fifty levels of objects": around(nested(50, "{}")),
}


@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN.keys())
def test_sound_json(anywhere: Deltas, gateway: str, body: bytes) -> None:
    told = anywhere.push_raw(gateway, body)
    assert (told["accepted"], told["deltas"]) == (1, [DELTA])


@pytest.mark.parametrize("kind", ["[]", "{}"])
def test_a_value_of_fifty_levels_comes_back(deltas: Deltas, gateway: str, kind: str) -> None:
    value = json.loads(nested(50, kind))
    made = delta("INSERT", columns(title=value))
    deltas.push(gateway, [made])
    assert deltas.log(gateway) == [made]


@pytest.mark.parametrize(
    "hlc", ["115998720000000000", "115998720000000000.0", "1.1599872e17", "null", "0", "-0", "1e400", "[]"]
)
def test_a_stamp_that_is_no_text(deltas: Deltas, gateway: str, hlc: str) -> None:
    body = GOOD.replace(b'"hlc": "115998720000000000"', b'"hlc": ' + hlc.encode())
    assert body != GOOD
    assert deltas.push_raw(gateway, body, expect=400).told == (400, "VALIDATION_ERROR")
    check_nothing_stored(deltas, gateway)
    assert deltas.push_raw(gateway, GOOD)["duplicates"] == 0


def test_a11_the_server_goes_on(deltas: Deltas, gateway: str) -> None:
    """The worst of each kind, one after the other, while somebody else's rows are there."""
    kept = delta("INSERT", columns(title="kept"), row="kept")
    deltas.push(gateway, [kept])
    for name in ("utf-16", "number: too large", "twice: in a value", "deep: never closed", "byte ff", "nothing"):
        deltas.push_raw(gateway, REFUSED[name], expect=400)
        deltas.push(gateway, [None], expect=400)
        assert deltas.log(gateway) == [kept]
    assert deltas.push_raw(gateway, GOOD)["deltas"] == [DELTA]
