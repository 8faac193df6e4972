"""Deltas as a replica makes them: their names by published vectors, what changes count, and what is refused at once."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from semel.client.deltas.drafts import changed, draft, row_text, stamped_again, table_name, value_texts, written
from semel.client.deltas.rows import Op, ReplicaStamp
from semel.kernel.hashes import json_text

HLC = 115998720000000000

VECTORS: dict[str, tuple[Op, str, str, dict[str, Any], str]] = {
    "V01": ("DELETE", "client-a", "row-1", {}, "dd09bac6050d0f6d61f3da7e46adcefcff4037df72237f8693746c5e51b5e32f"),
    "V02": (
        "INSERT",
        "client-a",
        "row-1",
        {"title": "Buy milk"},
        "c83a248d2431f229a3289cf8a2e5923396df8c9ea1b1ee585c5bd5f21d23a331",
    ),
    "V03": (
        "INSERT",
        "client-a",
        "row-1",
        {"title": "Buy milk", "completed": 0},
        "8b05f2339265bc99d594edff5a6f0a36bf705cf788a6a8e3944e863d580dea1b",
    ),
    "V04": (
        "UPDATE",
        "client-a",
        "row-1",
        {"completed": 0, "title": "Buy milk"},
        "340c7071c8debe279dd9042648576276ef2d1f8c80d1bf85a15ac6f4f196af58",
    ),
    "V05": (
        "INSERT",
        "client-a",
        "row-1",
        {"a": None, "b": True, "c": False, "d": -1, "e": 42},
        "ebd9a08d1957bdf5461341cf27649d863fbfa18b7df7eea28293bf106e4f5bce",
    ),
    "V06": (
        "INSERT",
        "client-a",
        "row-1",
        {"n": -0.0},
        "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4",
    ),
    "V09": (
        "INSERT",
        "client-a",
        "row-1",
        {"meta": {"b": 1, "a": {"d": [3, 1, 2], "c": None}, "10": "x", "9": "y", "": "empty"}},
        "9bab8eeca777af54cdd48b038f8e7a6ebfac2470e347988309134a27ea38c1ec",
    ),
    "V11": (
        "INSERT",
        "client-a",
        "row-1",
        {"title": "naïve café — 日本語 🎉"},
        "d7f3a482bf7a27a000fe098d2d22ae3ba2792e99ac9354995e16f4e8dfab43c6",
    ),
    "V13": (
        "INSERT",
        "client-a",
        "row-1",
        {"title": "a\ud800b\udc00c"},
        "e638e92945bcb68227db73d3c763c7a1186ff6a8d137fadbdb967607fdc1e685",
    ),
    "V14": (
        "INSERT",
        "client-a",
        "row-1",
        {"meta": {"\uff5e": 2, "\U0001f389": 1, "\ue000": 3, "z": 4, "é": 5, "Z": 6}},
        "4285e580b4cf3058e42ab6de6157d18d65fa19e5455c9f42e84cef1b3655ad3a",
    ),
    "V21": (
        "INSERT",
        "клиент-🎉",
        "行/1",
        {"title": "x"},
        "5a6daf68b98145be1e47538a9bd8d6a446927e4682ee1d09d70cd7f9c64b8716",
    ),
}


@pytest.mark.parametrize(("op", "client", "row", "columns", "name"), VECTORS.values(), ids=VECTORS)
def test_published_vectors(op: Op, client: str, row: str, columns: dict[str, Any], name: str) -> None:
    made = draft(op, "todos", row_text(row), value_texts(columns), json_text(client), HLC)
    assert made.delta_id == name
    back = written(made.body)
    assert (back.op, back.stamp) == (op, ReplicaStamp(HLC, client))
    assert dict(back.columns) == columns
    assert stamped_again(made.body, HLC) == made
    assert stamped_again(made.body, HLC + 1).delta_id != name


def test_the_body_is_what_the_wire_wants() -> None:
    made = draft("INSERT", "todos", '"r"', value_texts({"a": [1.0, "é"]}), '"c"', 7)
    assert orjson.loads(made.body) == {
        "op": "INSERT",
        "table": "todos",
        "rowId": "r",
        "clientId": "c",
        "columns": [{"column": "a", "value": [1, "é"]}],
        "hlc": "7",
        "deltaId": made.delta_id,
    }


SAME = {
    "a whole double": (1, 1.0),
    "zero": (0, -0.0),
    "order of names": ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
    "cleared and not there": (None, None),
    "large": (1e21, 10.0**21),
}
OTHER = {
    "a truth and a number": (1, True),
    "a number and its digits": (1, "1"),
    "order of a list": ([1, 2], [2, 1]),
    "composed": ("é", "e\u0301"),
    "empty": ("", None),
    "null and nothing inside": ({"a": None}, {}),
}


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_what_is_equal_makes_no_delta(before: Any, after: Any) -> None:
    assert changed({} if before is None else {"x": before}, value_texts({"x": after})) == {}


@pytest.mark.parametrize(("before", "after"), OTHER.values(), ids=OTHER)
def test_what_differs_does(before: Any, after: Any) -> None:
    assert list(changed({"x": before, "y": 1}, value_texts({"y": 1, "x": after}))) == ["x"]


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


BAD_VALUES = {
    "not a number": math.nan,
    "infinity": math.inf,
    "not a number in a list": [math.nan],
    "not a number beside what is printed slowly": [math.nan, 1e21, "\ud800"],
    "not a number in an object": {"a": {"b": math.nan}},
    "infinity in both": {"a": [-math.inf]},
    "an integer in a list": [2**53 + 1],
    "a date in a list": [datetime(2026, 11, 16, tzinfo=UTC)],
    "an integer that no double holds": 2**53 + 1,
    "a tuple": (1, 2),
    "bytes": b"x",
    "a set": {1},
    "a name that is no string": {1: 2},
    "too deep": nested(60),
}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_that_json_cannot_hold(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        value_texts({"x": value})


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "é", "a\n", "a" * 65])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="name must match"):
        table_name(name)
    with pytest.raises(ValueError, match="name must match"):
        value_texts({name: 1})


def test_row_ids() -> None:
    assert row_text("é\ud800") == '"é\\ud800"'
    assert len(row_text("x" * 1_024)) == 1_026
    for bad in ("", "x" * 1_025):
        with pytest.raises(ValueError, match="1 to 1024"):
            row_text(bad)
    with pytest.raises(TypeError):
        row_text(7)  # type: ignore[arg-type]


def test_the_deepest_value() -> None:
    assert value_texts({"x": nested(59)})
