"""Deltas are known by their content: the published vectors over the wire, forged ids, and ids that are known."""

from __future__ import annotations

import json

import pytest

from tests.deltas.rig import check_nothing_stored, digest_of, signed
from tests.deltas.vectors import BY_NAME, JWT, JWT_CLAIMS, JWT_SECRET, STAMPS, VECTORS, Vector, stamp
from tests.deltas.wire import CLIENT, Deltas, columns, delta, delta_id, forged, fresh, hlcs

PUSHED = [vector for vector in VECTORS if vector.name != "V19"]
NOT_AS_PUSHED = ("V25",)
"""A column without a value is delivered with null, and says so."""


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_the_second_implementation_agrees_with_the_vectors(vector: Vector) -> None:
    assert delta_id(vector.delta()) == vector.id


def test_the_rig_agrees_with_the_vectors() -> None:
    assert [stamp(*parts) for parts, _ in STAMPS] == [number for _, number in STAMPS]
    assert signed(JWT_CLAIMS, JWT_SECRET) == JWT


@pytest.mark.parametrize("vector", PUSHED, ids=lambda vector: vector.name)
def test_a_vector_is_taken_under_its_id(deltas: Deltas, gateway: str, vector: Vector) -> None:
    pushed = vector.delta("INSERT")
    told = deltas.push(gateway, [pushed], client=pushed["clientId"])
    assert (told["accepted"], told["duplicates"], told.ids) == (1, 0, [vector.id])
    [entry] = deltas.log(gateway)
    assert told["deltas"] == [entry]
    if vector.name in NOT_AS_PUSHED:
        assert entry == pushed | {"columns": columns(a=None), "resolved": True}
    else:
        as_read = json.loads(json.dumps(pushed), parse_int=_double)
        assert json.loads(json.dumps(entry), parse_int=_double) == as_read


def _double(digits: str) -> float:
    """A JSON number is a double, whichever way it is written."""
    return float(digits)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_vector_under_another_id_is_refused(deltas: Deltas, gateway: str, vector: Vector) -> None:
    pushed = forged(vector.delta("INSERT"))
    told = deltas.push(gateway, [pushed], client=pushed["clientId"], expect=422)
    assert told.told == (422, "VALIDATION_ERROR")
    assert told.blamed == [(0, "VALIDATION_ERROR")]
    assert told["details"][0]["deltaId"] == pushed["deltaId"]
    check_nothing_stored(deltas, gateway)


def test_v19_is_refused_for_its_clock(deltas: Deltas, gateway: str) -> None:
    assert deltas.push(gateway, [BY_NAME["V19"].delta()], expect=409).told == (409, "CLOCK_DRIFT")
    check_nothing_stored(deltas, gateway)


@pytest.mark.parametrize("text", ["-0", "-0.0", "0", "0.0", "-0e7", "1e-400", "-1E-999"])
def test_r3_all_ways_to_write_nought_are_one_delta(deltas: Deltas, gateway: str, text: str) -> None:
    vector = BY_NAME["V06"]
    deltas.push(gateway, [vector.delta()])
    told = deltas.push_raw(gateway, _with_value(vector, text))
    assert (told["accepted"], told["duplicates"], told["deltas"]) == (1, 1, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("V02", '"\\u0042uy milk"'),
        ("V11", '"na\\u00efve caf\\u00e9 \\u2014 \\u65e5\\u672c\\u8a9e \\ud83c\\udf89"'),
        ("V12", r'''"q\" b\\ \/ \b\f\n\r\t \u0000\u001F\u007F \u2028\u2029 \u003c>&'"'''),
        ("V09", '{"a": {"c": null, "d": [3.0, 1e0, 0.2e1]}, "b": 1.0, "": "empty", "9": "y", "10": "x"}'),
        ("V13", '"a\\uD800b\\uDC00c"'),
        ("V16", ' [ "b" ,\t"a"\r\n] '),
    ],
)
def test_the_same_value_in_other_letters_is_the_same_delta(deltas: Deltas, gateway: str, name: str, text: str) -> None:
    vector = BY_NAME[name]
    told = deltas.push_raw(gateway, _with_value(vector, text))
    assert (told["duplicates"], told.ids) == (0, [vector.id])
    told = deltas.push(gateway, [vector.delta()])
    assert (told["duplicates"], told["deltas"]) == (1, [])


def _with_value(vector: Vector, text: str) -> bytes:
    """A push of the vector whose only column has its value in these letters."""
    pushed = vector.delta()
    [column] = pushed["columns"]
    body = json.dumps({"clientId": CLIENT, "deltas": [pushed | {"columns": [column | {"value": "HERE"}]}]})
    return body.replace('"HERE"', text).encode()


def test_r3_pairs_that_look_alike_are_different_deltas(deltas: Deltas, gateway: str) -> None:
    names = ("V03", "V04", "V22", "V23", "V25", "V26", "V27", "V07", "V06", "V24", "V10")
    told = deltas.push(gateway, [BY_NAME[name].delta() for name in names])
    assert (told["accepted"], told["duplicates"]) == (len(names), 0)
    assert deltas.gauges(gateway)["deltaCount"] == len(names)


@pytest.mark.parametrize(("first", "second"), [("DELETE", "INSERT"), ("DELETE", "UPDATE"), ("INSERT", "DELETE")])
def test_r4_the_first_op_stays(deltas: Deltas, gateway: str, first: str, second: str) -> None:
    vector = BY_NAME["V01"]
    told = deltas.push(gateway, [vector.delta(first)])
    assert (told["accepted"], told["duplicates"]) == (1, 0)
    before = digest_of(deltas, gateway)
    told = deltas.push(gateway, [vector.delta(second)])
    assert (told["accepted"], told["duplicates"], told["deltas"]) == (1, 1, [])
    assert digest_of(deltas, gateway) == before
    assert [entry["op"] for entry in deltas.log(gateway)] == [first]
    assert (("todos", "row-1") in deltas.rows(gateway)) is (first == "INSERT")


def test_r4_a_row_stays_deleted(deltas: Deltas, gateway: str) -> None:
    stamps = hlcs()
    deltas.push(gateway, [delta("INSERT", columns(title="x"), hlc=next(stamps))])
    gone = delta("DELETE", hlc=next(stamps))
    deltas.push(gateway, [gone])
    told = deltas.push(gateway, [gone | {"op": "INSERT"}])
    assert (told["accepted"], told["duplicates"]) == (1, 1)
    assert deltas.rows(gateway) == {}


def test_r7_a_losing_delta_is_known_too(deltas: Deltas, gateway: str) -> None:
    stamps = hlcs()
    early, late = next(stamps), next(stamps)
    deltas.push(gateway, [delta("INSERT", columns(title="new"), hlc=late, client="other")], client="other")
    size = deltas.gauges(gateway)["logSize"]
    loser = delta("UPDATE", columns(title="old"), hlc=early)
    told = [deltas.push(gateway, [loser]) for _ in range(5)]
    assert [(one["accepted"], one["duplicates"], one["deltas"]) for one in told] == [(1, 0, [])] + 4 * [(1, 1, [])]
    gauges = deltas.gauges(gateway)
    assert gauges["deltaCount"] == 2
    assert gauges["logSize"] <= size + 1
    assert deltas.rows(gateway) == {("todos", "row-1"): {"title": "new"}}


def test_r9_a_known_id_takes_no_other_content(deltas: Deltas, gateway: str) -> None:
    known = delta("INSERT", columns(title="true"))
    deltas.push(gateway, [known])
    before = digest_of(deltas, gateway)
    for name, value in {
        "columns": columns(title="false"),
        "rowId": "row-2",
        "clientId": "client-b",
        "hlc": "115998720000000001",
        "table": "todo",
    }.items():
        told = deltas.push(gateway, [known | {name: value}], expect=422)
        assert (told.code, told.blamed) == ("VALIDATION_ERROR", [(0, "VALIDATION_ERROR")])
    assert digest_of(deltas, gateway) == before
    assert deltas.push(gateway, [known])["duplicates"] == 1


def test_a_forged_id_does_not_shadow_the_delta_that_has_it(deltas: Deltas, gateway: str) -> None:
    true = delta("INSERT", columns(title="true"))
    false = delta("INSERT", columns(title="false")) | {"deltaId": true["deltaId"]}
    deltas.push(gateway, [false], expect=422)
    told = deltas.push(gateway, [true])
    assert (told["duplicates"], told.ids) == (0, [true["deltaId"]])


def test_r2_random_content_is_taken(anywhere: Deltas, gateway: str) -> None:
    """Nothing is refused and every entry that is delivered has the hash of what it shows."""
    made = [delta("INSERT", columns(v=value), row=fresh("row")) for value in _awkward_values()]
    told = anywhere.push(gateway, made)
    assert told["duplicates"] == 0
    assert told.ids == [one["deltaId"] for one in made]


def _awkward_values() -> list[object]:
    powers = [sign * base * 10.0**power for power in range(-30, 31) for base in (1, 1.5, 9.999) for sign in (1, -1)]
    integers = [2**power + step for power in range(70) for step in (-1, 0, 1)]
    texts = [chr(code) for code in [*range(0x180), 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]]
    pairs = [{one: 1, other: 2} for one in texts[::40] for other in texts[1::40]]
    return [*powers, *integers, *texts, *pairs, {"k": [{}, [], {"": [[]]}]}]
