"""The fields of a delta and of a push: what is taken up to its limit, and what one step beyond it is told."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.deltas.rig import check_nothing_stored
from tests.deltas.vectors import LARGEST, changed, delta_id
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, path

MISSING = object()
MALFORMED = (400, "VALIDATION_ERROR")
BAD_NAME = (422, "SCHEMA_ERROR")
EITHER = (MALFORMED, BAD_NAME)
"""A name that is no text at all breaks two rules at once."""
BASE = delta("UPDATE", columns(title="x", note="y"))
IDENTIFIER_FLAWS = {
    "empty": "",
    "digit first": "9a",
    "space": "a b",
    "dash": "a-b",
    "dot": "a.b",
    "quote": 'a"b',
    "accent": "caf\u00e9",
    "other digits": "a\u0661",
    "wide letter": "\uff41",
    "final newline": "todos\n",
    "first newline": "\ntodos",
    "nul": "todos\u0000",
    "lone surrogate": "a\ud800",
    "too long": "a" * 65,
}
NOT_TEXT: dict[str, Any] = {"number": 1, "null": None, "true": True, "list": ["a"], "object": {"a": 1}}


class Case(NamedTuple):
    """A delta and what its push is told."""

    name: str
    delta: Any
    told: tuple[tuple[int, str], ...]


def with_field(name: str, value: Any) -> Message:
    """The plain delta with another value in a field, under the id that this gives, if it gives one."""
    other = {key: one for key, one in (BASE | {name: value}).items() if one is not MISSING}
    if name in ("op", "deltaId") or value is MISSING:
        return other
    return other | {"deltaId": delta_id(other)}


def with_column(value: Any) -> Message:
    return with_field("columns", [{"column": "title", "value": 1}, value])


def flaws(field: str, values: dict[str, Any], *told: tuple[int, str]) -> list[Case]:
    return [Case(f"{field}: {name}", with_field(field, value), told) for name, value in values.items()]


REFUSED = [
    *flaws("op", NOT_TEXT | {"missing": MISSING}, MALFORMED),
    *flaws("op", {"small": "insert", "empty": "", "other": "UPSERT", "final newline": "INSERT\n"}, MALFORMED),
    *[
        Case(f"op and deltaType: {op}, {alias}", BASE | {"op": op, "deltaType": alias}, (MALFORMED,))
        for op, alias in (("UPDATE", "DELETE"), ("UPDATE", "update"), ("UPDATE", 1), ("", "UPDATE"), (None, "x"))
    ],
    *flaws("table", IDENTIFIER_FLAWS, BAD_NAME),
    *flaws("table", NOT_TEXT | {"missing": MISSING}, *EITHER),
    *flaws("rowId", NOT_TEXT | {"missing": MISSING, "empty": "", "too long": "r" * 1_025}, MALFORMED),
    *flaws("clientId", NOT_TEXT | {"missing": MISSING, "empty": "", "too long": "c" * 257}, MALFORMED),
    *flaws("columns", {"number": 1, "null": None, "text": "[]", "object": {}, "missing": MISSING}, MALFORMED),
    *flaws("columns", {"twice": columns(a=1) + columns(b=1) + columns(a=1)}, MALFORMED),
    *[Case(f"column: {name}", with_column(value), (MALFORMED,)) for name, value in (NOT_TEXT | {"object": []}).items()],
    *[
        Case(f"column name: {name}", with_column({"column": value, "value": 1}), (BAD_NAME,))
        for name, value in IDENTIFIER_FLAWS.items()
    ],
    *[
        Case(f"column name: {name}", with_column({"column": value, "value": 1}), EITHER)
        for name, value in NOT_TEXT.items()
    ],
    Case("column name: missing", with_column({"value": 1}), EITHER),
    Case("column: empty", with_column({}), EITHER),
    *flaws("hlc", {"missing": MISSING, "null": None, "true": True, "list": ["1"]}, MALFORMED),
    *flaws("hlc", {"number": 115_998_720_000_000_000, "nought": 0, "fraction": 1.5}, MALFORMED),
    *flaws(
        "hlc",
        {
            "empty": "",
            "leading nought": "01",
            "two noughts": "00",
            "minus": "-1",
            "plus": "+1",
            "fraction": "1.0",
            "exponent": "1e3",
            "hexadecimal": "0x1F",
            "underscore": "1_0",
            "space": " 1",
            "final newline": "1\n",
            "other digits": "\u0661",
            "too large": str(LARGEST + 1),
            "twenty nines": "9" * 20,
            "twenty-one digits": "1" + "0" * 20,
            "thousands of digits": "1" * 5_000,
        },
        MALFORMED,
    ),
    *flaws("deltaId", NOT_TEXT | {"missing": MISSING, "empty": ""}, MALFORMED),
    *flaws(
        "deltaId",
        {
            "capitals": BASE["deltaId"].upper(),
            "short": BASE["deltaId"][:-1],
            "long": BASE["deltaId"] + "0",
            "final newline": BASE["deltaId"] + "\n",
            "other letter": BASE["deltaId"][:-1] + "g",
            "other digits": "\u0661" * 64,
        },
        MALFORMED,
    ),
    *[Case(f"delta: {name}", value, (MALFORMED,)) for name, value in (NOT_TEXT | {"object": {}, "text": "x"}).items()],
]

TAKEN = {
    **{f"op: {op}": with_field("op", op) for op in ("INSERT", "UPDATE", "DELETE")},
    **{
        f"table: {name}": with_field("table", value)
        for name, value in {"one": "_", "longest": "Z9_z" * 16, "capital": "A"}.items()
    },
    **{
        f"rowId: {name}": with_field("rowId", value)
        for name, value in {
            "longest": "r" * 1_024,
            "longest of two bytes": "\u00e9" * 1_024,
            "longest of three bytes": "\u65e5" * 1_024,
            "space": " ",
            "nul": "\u0000",
            "newline": "a\n",
            "lone surrogate": "\udc00",
            "slash": "a/b?c#d%2F",
            "decomposed": "e\u0301",
        }.items()
    },
    **{
        f"clientId: {name}": with_field("clientId", value)
        for name, value in {
            "longest": "c" * 256,
            "longest of two bytes": "\u00e9" * 256,
            "nul": "\u0000",
            "lone surrogate": "\ud800",
            "newline": "c\n",
        }.items()
    },
    "columns: none": with_field("columns", []),
    "columns: longest name": with_field("columns", [{"column": "c" * 64, "value": 1}]),
    "columns: a hundred": with_field("columns", columns(**{f"c{number}": number for number in range(100)})),
    "columns: names that differ in case": with_field("columns", columns(a=1, A=2)),
    "columns: unknown members": with_field("columns", [{"column": "a", "value": 1, "type": {"x": [1, None]}}]),
    "value: 100,000 characters": with_field("columns", columns(a="x" * 100_000)),
    "value: a lone surrogate in a name": with_field("columns", columns(a={"\ud800": 1})),
    "value: names that objects have": with_field("columns", columns(a={"__proto__": {"x": 1}, "toString": 1})),
    "hlc: nought": with_field("hlc", "0"),
    "hlc: one": with_field("hlc", "1"),
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_flaw_is_refused_by_name(anywhere: Deltas, gateway: str, case: Case) -> None:
    """Between two good ones, of which nothing is stored either."""
    good = [delta("INSERT", columns(a=1), row=row) for row in ("before", "after")]
    told = anywhere.push(gateway, [good[0], case.delta, good[1]], expect=None)
    assert told.told in case.told, told.body
    assert told.blamed == [(1, told.code)]
    if isinstance(case.delta, dict) and case.delta.get("deltaId") == BASE["deltaId"]:
        assert told["details"][0]["deltaId"] == BASE["deltaId"]
    check_nothing_stored(anywhere, gateway)


@pytest.mark.parametrize("made", TAKEN.values(), ids=TAKEN.keys())
def test_a_limit_belongs_to_what_is_taken(deltas: Deltas, gateway: str, made: Message) -> None:
    told = deltas.push(gateway, [made], client=made["clientId"])
    assert (told["accepted"], told["duplicates"], told.ids) == (1, 0, [made["deltaId"]])
    [entry] = deltas.log(gateway)
    assert {name: entry[name] for name in ("table", "rowId", "clientId", "hlc")} == {
        name: made[name] for name in ("table", "rowId", "clientId", "hlc")
    }
    assert entry["columns"] == ([] if made["op"] == "DELETE" else made["columns"])
    again = deltas.push(gateway, [made], client=made["clientId"])
    assert (again["duplicates"], again["deltas"]) == (1, [])


def test_other_members_are_ignored(deltas: Deltas, gateway: str) -> None:
    """Retry counters and what else a client keeps: neither hashed nor stored nor delivered."""
    made = delta("INSERT", columns(title="x"))
    extra = {"retryCount": 3, "meta": {"hlc": 7, "deep": [[["x"]]]}, "": None}
    told = deltas.push(gateway, [made | extra], lastSeenHlc="115998720000000000", extra=extra)
    assert told["deltas"] == [made]
    assert deltas.log(gateway) == [made]
    assert deltas.push(gateway, [made])["duplicates"] == 1


@pytest.mark.parametrize("op", ["INSERT", "UPDATE", "DELETE"])
@pytest.mark.parametrize("more", [{}, {"op": None}, {"retries": 1}, {"op": "same"}], ids=str)
def test_the_operation_may_be_called_by_its_other_name(
    deltas: Deltas, gateway: str, op: str, more: dict[str, Any]
) -> None:
    """`deltaType` is its name in the specification of delta identity."""
    made = delta(op, [] if op == "DELETE" else columns(title="x"))
    sent = {name: value for name, value in made.items() if name != "op"} | more | {"deltaType": op}
    sent |= {"op": op} if more == {"op": "same"} else {}
    assert deltas.push(gateway, [sent])["accepted"] == 1
    assert [entry["op"] for entry in deltas.log(gateway)] == [op]
    assert deltas.push(gateway, [made])["duplicates"] == 1


def test_values_of_every_kind_come_back(deltas: Deltas, gateway: str) -> None:
    values: Message = {
        "text": "\u0000\u007f\u2028\U0001f389\ud800",
        "yes": True,
        "no": False,
        "whole": 42,
        "large": 1e300,
        "small": -5e-324,
        "none": None,
        "list": [1, [2, [3, {"x": []}]]],
        "object": {"b": {"lastHlc": "0x1F", "hlc": 7}, "a": "\ud83c\udf89"},
    }
    made = delta("INSERT", columns(**values))
    deltas.push(gateway, [made])
    assert deltas.log(gateway) == json.loads(json.dumps([made]))


BODIES: dict[str, Any] = {
    "null": None,
    "number": 1,
    "text": "x",
    "list": [],
    "list of a push": [{"clientId": CLIENT, "deltas": []}],
    "empty": {},
    "clientId missing": {"deltas": []},
    "clientId empty": {"clientId": "", "deltas": []},
    "clientId null": {"clientId": None, "deltas": []},
    "clientId number": {"clientId": 1, "deltas": []},
    "clientId list": {"clientId": [CLIENT], "deltas": []},
    "deltas missing": {"clientId": CLIENT},
    "deltas null": {"clientId": CLIENT, "deltas": None},
    "deltas object": {"clientId": CLIENT, "deltas": {}},
    "deltas text": {"clientId": CLIENT, "deltas": "[]"},
    "one delta": {"clientId": CLIENT, "deltas": BASE},
    "other names": {"client_id": CLIENT, "Deltas": []},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_no_push_is_refused(anywhere: Deltas, gateway: str, body: Any) -> None:
    assert anywhere.post(path(gateway, "push"), body, expect=400).told == MALFORMED
    check_nothing_stored(anywhere, gateway)


def test_nothing_to_push_is_fine(deltas: Deltas, gateway: str) -> None:
    told = deltas.push(gateway, [])
    assert (told["accepted"], told["duplicates"], told["deltas"]) == (0, 0, [])
    check_nothing_stored(deltas, gateway)


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream", "x", ""])
def test_any_content_type_is_taken(anywhere: Deltas, gateway: str, kind: str) -> None:
    body = json.dumps({"clientId": CLIENT, "deltas": [BASE]}).encode()
    assert anywhere.push_raw(gateway, body, headers={"Content-Type": kind})["accepted"] == 1


@pytest.mark.parametrize("op", ["INSERT", "UPDATE", "DELETE"])
def test_without_credentials_anyone_may_push_for_anyone(deltas: Deltas, gateway: str, op: str) -> None:
    foreign = changed(BASE, clientId="somebody-else") | {"op": op}
    assert deltas.push(gateway, [foreign])["accepted"] == 1
