"""What administrators do: schemas, flushes, figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deltas.rig import check_nothing_stored, digest_of
from tests.deltas.wire import CLIENT, Deltas, columns, delta, hlcs, path

TYPES = ("string", "number", "boolean", "json", "null")
COLUMN = {"name": "title", "type": "string"}

# -- schemas -----------------------------------------------------------------------------------------------------------


def test_a_schema_of_every_type(deltas: Deltas, gateway: str) -> None:
    body = {"table": "todos", "columns": [{"name": f"a_{kind}", "type": kind} for kind in TYPES]}
    for _ in range(2):
        assert deltas.post(path(gateway, "schema"), body).body == {"saved": True}


def test_other_members_of_a_schema_are_taken(deltas: Deltas, gateway: str) -> None:
    body = {"table": "todos", "columns": [COLUMN | {"primaryKey": True}], "softDelete": True, "version": 3}
    assert deltas.post(path(gateway, "schema"), body).body == {"saved": True}
    deltas.push(gateway, [delta("INSERT", columns(title="x"))])


ILL_FORMED: dict[str, Any] = {
    "null": None,
    "list": [],
    "text": "todos",
    "empty": {},
    "table missing": {"columns": [COLUMN]},
    "table empty": {"table": "", "columns": [COLUMN]},
    "table number": {"table": 1, "columns": [COLUMN]},
    "table with a dash": {"table": "to-dos", "columns": [COLUMN]},
    "table with a final newline": {"table": "todos\n", "columns": [COLUMN]},
    "table too long": {"table": "t" * 65, "columns": [COLUMN]},
    "columns missing": {"table": "todos"},
    "columns null": {"table": "todos", "columns": None},
    "columns object": {"table": "todos", "columns": {"title": "string"}},
    "column null": {"table": "todos", "columns": [None]},
    "column text": {"table": "todos", "columns": ["title"]},
    "name missing": {"table": "todos", "columns": [{"type": "string"}]},
    "name number": {"table": "todos", "columns": [{"name": 1, "type": "string"}]},
    "name empty": {"table": "todos", "columns": [{"name": "", "type": "string"}]},
    "name with a space": {"table": "todos", "columns": [{"name": "a b", "type": "string"}]},
    "name with a final newline": {"table": "todos", "columns": [{"name": "title\n", "type": "string"}]},
    "name too long": {"table": "todos", "columns": [{"name": "t" * 65, "type": "string"}]},
    "name twice": {"table": "todos", "columns": [COLUMN, COLUMN]},
    "type missing": {"table": "todos", "columns": [{"name": "title"}]},
    "type null": {"table": "todos", "columns": [{"name": "title", "type": None}]},
    "type unknown": {"table": "todos", "columns": [{"name": "title", "type": "date"}]},
    "type in capitals": {"table": "todos", "columns": [{"name": "title", "type": "STRING"}]},
    "type list": {"table": "todos", "columns": [{"name": "title", "type": ["string"]}]},
}


@pytest.mark.parametrize("body", ILL_FORMED.values(), ids=ILL_FORMED.keys())
def test_an_ill_formed_schema(anywhere: Deltas, gateway: str, body: Any) -> None:
    assert anywhere.post(path(gateway, "schema"), body, expect=400).code == "SCHEMA_ERROR"
    # It has not become a schema in any part.
    anywhere.push(gateway, [delta("INSERT", columns(colour=1))])


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"table": "t", "table": "t", "columns": []}'])
def test_a_schema_that_is_no_json(anywhere: Deltas, gateway: str, body: bytes) -> None:
    told = anywhere.call("POST", path(gateway, "schema"), body, expect=400)
    assert told.code in ("SCHEMA_ERROR", "VALIDATION_ERROR")


def test_columns_may_be_added_and_stay(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", title="string")
    deltas.schema(gateway, "todos", title="string", done="boolean")
    deltas.schema(gateway, "todos", age="number", done="boolean", title="string")
    for fewer in ({"title": "string"}, {"title": "string", "done": "boolean", "other": "json"}):
        assert deltas.schema(gateway, "todos", expect=422, **fewer).code == "SCHEMA_ERROR"
    retyped = deltas.schema(gateway, "todos", expect=422, title="number", done="boolean", age="number")
    assert retyped.code == "SCHEMA_ERROR"
    deltas.push(gateway, [delta("INSERT", columns(title="x", done=1, age=2))])
    assert deltas.push(gateway, [delta("UPDATE", columns(other=1))], expect=422).code == "SCHEMA_ERROR"


def test_a_column_that_the_schema_does_not_know(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", title="string")
    good, bad = delta("INSERT", columns(title="x")), delta("UPDATE", columns(title="y", colour="red"))
    told = deltas.push(gateway, [good, bad], expect=422)
    assert (told.code, told.blamed) == ("SCHEMA_ERROR", [(1, "SCHEMA_ERROR")])
    assert told["details"][0]["deltaId"] == bad["deltaId"]
    check_nothing_stored(deltas, gateway)
    deltas.schema(gateway, "todos", title="string", colour="string")
    assert deltas.push(gateway, [good, bad])["duplicates"] == 0


def test_types_are_hints(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", a="boolean", b="number", c="string", d="null", e="json")
    deltas.push(gateway, [delta("INSERT", columns(a=0, b="x", c=None, d={"x": 1}, e=1))])
    deltas.push(gateway, [delta("UPDATE", columns(a="no", b=True, c=[1], d=2, e=None))])


def test_a_schema_is_one_tables_in_one_gateway(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", title="string")
    for other, table in ((gateway, "notes"), (gateway, "Todos"), (f"{gateway}-other", "todos")):
        deltas.push(other, [delta("INSERT", columns(colour=1), table=table)])
    deltas.push(gateway, [delta("DELETE"), delta("UPDATE", row="no columns")])
    deltas.push(gateway, [delta("UPDATE", columns(colour=1))], expect=422)


def test_names_are_matched_letter_for_letter(deltas: Deltas, gateway: str) -> None:
    deltas.schema(gateway, "todos", title="string")
    assert deltas.push(gateway, [delta("INSERT", columns(Title=1))], expect=422).code == "SCHEMA_ERROR"


# -- flush and figures -------------------------------------------------------------------------------------------------


def test_a_flush_takes_nothing_away(deltas: Deltas, gateway: str) -> None:
    stamps = hlcs()
    made = [delta("INSERT", columns(n=number), row=str(number), hlc=next(stamps)) for number in range(5)]
    cursor = deltas.push(gateway, made).hlc
    before = digest_of(deltas, gateway)
    for body in (b"", b"{}"):
        assert deltas.call("POST", path(gateway, "flush"), body).body == {"flushed": True}
    assert digest_of(deltas, gateway) == before
    assert deltas.log(gateway) == made
    told = deltas.push(gateway, made)
    assert (told["duplicates"], told["deltas"]) == (5, [])
    assert told.hlc >= cursor


def test_figures(deltas: Deltas, gateway: str) -> None:
    stamps = hlcs()
    made = [
        delta("INSERT", columns(title="x"), row="one", hlc=next(stamps)),
        delta("INSERT", columns(title="y"), row="two", hlc=next(stamps)),
        delta("UPDATE", columns(title="z"), row="two", hlc=next(stamps)),
    ]
    deltas.push(gateway, made)
    gauges = deltas.gauges(gateway)
    assert (gauges["logSize"], gauges["indexSize"], gauges["deltaCount"]) == (3, 2, 3)
    assert isinstance(gauges["byteSize"], int)
    assert gauges["byteSize"] > 0
    deltas.push(gateway, made)
    assert deltas.gauges(gateway).body == gauges.body
    larger = delta("UPDATE", columns(title="x" * 5_000), row="one", hlc=next(stamps))
    deltas.push(gateway, [larger])
    assert deltas.gauges(gateway)["byteSize"] >= gauges["byteSize"] + 5_000


def test_sync_rules_are_saved_or_refused(deltas: Deltas, gateway: str) -> None:
    target = path(gateway, "sync-rules")
    bucket = {"name": "mine", "tables": ["todos"], "filters": [{"column": "owner", "op": "eq", "value": "jwt:sub"}]}
    assert deltas.post(target, {"version": 1, "buckets": [bucket]}).body == {"saved": True}
    twice = {"version": 1, "buckets": [bucket, bucket]}
    flawed: list[Any] = [{}, [], {"version": 0, "buckets": []}, twice, {"version": 1}]
    for bad in flawed:
        assert deltas.post(target, bad, expect=400).code == "VALIDATION_ERROR"
    for name in ("name", "tables", "filters"):
        less = {key: value for key, value in bucket.items() if key != name}
        assert deltas.post(target, {"version": 1, "buckets": [less]}, expect=400).code == "VALIDATION_ERROR"
    assert deltas.call("POST", target, b"\xff", expect=400).code == "VALIDATION_ERROR"


@pytest.mark.parametrize("what", ["schema", "sync-rules"])
def test_a_large_body_is_refused(anywhere: Deltas, gateway: str, what: str) -> None:
    body = json.dumps({"table": "todos", "columns": [COLUMN], "pad": "x" * 2 * 1024 * 1024}).encode()
    assert anywhere.call("POST", path(gateway, what), body, expect=413).code == "VALIDATION_ERROR"
    assert anywhere.push(gateway, [delta("INSERT", columns(colour=1))], client=CLIENT)["accepted"] == 1
