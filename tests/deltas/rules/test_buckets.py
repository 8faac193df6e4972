"""Sync rules: what is accepted as rules, and who then sees which row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semel.kernel.errors import Refused
from semel.surfaces.deltas.limits import MAX_BUCKETS, MAX_FILTERS, MAX_RULES_BYTES
from semel.surfaces.deltas.rules.sync_rules import SyncRules, columns_for, number_of, rules_of, sees, text_of

CLAIMS = {"sub": ("ann",), "org": ("acme",), "teams": ("red", "blue"), "level": ("5", "9"), "none": ()}


def bucket(*filters: tuple[str, str, str], tables: tuple[str, ...] = (), name: str = "b") -> dict[str, Any]:
    parts = [{"column": column, "op": op, "value": value} for column, op, value in filters]
    return {"name": name, "tables": list(tables), "filters": parts}


def rules(*buckets: dict[str, Any]) -> SyncRules:
    return rules_of(json.dumps({"version": 1, "buckets": buckets}).encode())


def with_filter(op: str, value: str) -> SyncRules:
    return rules(bucket(("c", op, value)))


MATCHES: dict[str, tuple[str, str, str, bool]] = {
    # name: op, value of the filter, canonical JSON of the cell, whether it is seen
    "eq text": ("eq", "x", '"x"', True),
    "eq other text": ("eq", "x", '"y"', False),
    "eq case": ("eq", "x", '"X"', False),
    "eq empty cell": ("eq", "x", '""', False),
    "eq null": ("eq", "null", "null", True),
    "eq the string null": ("eq", "null", '"null"', True),
    "eq true": ("eq", "true", "true", True),
    "eq false": ("eq", "false", "false", True),
    "eq True is not true": ("eq", "True", "true", False),
    "eq integer": ("eq", "1", "1", True),
    "eq integer as text": ("eq", "1", '"1"', True),
    "eq is not numeric": ("eq", "1.0", "1", False),
    "eq fraction": ("eq", "0.1", "0.1", True),
    "eq large": ("eq", "1e+21", "1e+21", True),
    "eq array": ("eq", "a,b", '["a","b"]', True),
    "eq empty array": ("eq", "a", "[]", False),
    "eq array of one": ("eq", "1", "[1]", True),
    "eq nested array": ("eq", "1,,2,true,3.5,[object Object]", '[1,null,[2,true],3.5,{"a":1}]', True),
    "eq object": ("eq", "[object Object]", '{"a":1}', True),
    "eq escapes": ("eq", 'a"\n\\', '"a\\"\\n\\\\"', True),
    "eq no normalisation": ("eq", "\u00e9", '"e\u0301"', False),
    "eq half a pair": ("eq", "\ud800", '"\\ud800"', True),
    "eq claim": ("eq", "jwt:org", '"acme"', True),
    "eq claim of others": ("eq", "jwt:org", '"other"', False),
    "eq sub": ("eq", "jwt:sub", '"ann"', True),
    "eq list": ("eq", "jwt:teams", '"blue"', True),
    "eq missing claim": ("eq", "jwt:absent", '"absent"', False),
    "eq missing claim, null": ("eq", "jwt:absent", "null", False),
    "eq empty claim": ("eq", "jwt:none", '""', False),
    "eq claim without a name": ("eq", "jwt:", '""', False),
    "eq only a prefix is a claim": ("eq", "x-jwt:org", '"x-jwt:org"', True),
    "in text": ("in", "x", '"x"', True),
    "in is no list": ("in", "x,y", '"x"', False),
    "in list": ("in", "jwt:teams", '"red"', True),
    "in list, other": ("in", "jwt:teams", '"green"', False),
    "in missing claim": ("in", "jwt:absent", '"red"', False),
    "neq text": ("neq", "x", '"y"', True),
    "neq same": ("neq", "x", '"x"', False),
    "neq null": ("neq", "x", "null", True),
    "neq list": ("neq", "jwt:teams", '"green"', True),
    "neq list, second": ("neq", "jwt:teams", '"blue"', False),
    "neq missing claim": ("neq", "jwt:absent", '"x"', False),
    "neq empty claim": ("neq", "jwt:none", '"x"', False),
    "gt number": ("gt", "9", "10", True),
    "gt same": ("gt", "10", "10", False),
    "gte same": ("gte", "10", "10", True),
    "lt number": ("lt", "10", "9", True),
    "lt same": ("lt", "10", "10", False),
    "lte same": ("lte", "10", "10", True),
    "lte greater": ("lte", "10", "11", False),
    "gt text as numbers": ("gt", "9", '"10"', True),
    "gt begins like a number": ("gt", "9 apples", '"10 pears"', True),
    "gt negative": ("gt", "-2", "-1", True),
    "lt exponent": ("lt", "1e3", "999", True),
    "gt one side is no number": ("gt", "apple", '"10"', False),
    "lt one side is no number": ("lt", "apple", '"10"', True),
    "gt text": ("gt", "a", '"b"', True),
    "gt longer": ("gt", "a", '"aa"', True),
    "gt code units, capitals first": ("gt", "a", '"B"', False),
    "gt code units, a pair is below": ("gt", "\uff5e", '"\U0001f389"', False),
    "lt code units, a pair is below": ("lt", "\uff5e", '"\U0001f389"', True),
    "lt half a pair": ("lt", "\udc00", '"\\ud800"', True),
    "gt null": ("gt", "a", "null", True),
    "gt null against a number": ("gt", "5", "null", True),
    "gt true": ("gt", "0", "true", True),
    "gt array as its first number": ("gt", "4", "[5,1]", True),
    "gt infinity": ("gt", "1e308", '"Infinity"', True),
    "gte infinity": ("gte", "Infinity", '"Infinity"', True),
    "gt first of a claim": ("gt", "jwt:level", "6", True),
    "lt first of a claim": ("lt", "jwt:level", "6", False),
    "gte missing claim": ("gte", "jwt:absent", "6", False),
    "lte empty claim": ("lte", "jwt:none", "6", False),
}


@pytest.mark.parametrize("name", MATCHES)
def test_filter(name: str) -> None:
    op, value, cell, expected = MATCHES[name]
    assert sees(with_filter(op, value), CLAIMS, "t", {"c": cell, "d": "1"}) is expected


@pytest.mark.parametrize("op", ["eq", "in", "neq", "gt", "lt", "gte", "lte"])
def test_a_column_that_is_absent_never_matches(op: str) -> None:
    assert not sees(with_filter(op, "null"), CLAIMS, "t", {"d": "1"})


def test_without_rules_everything_is_seen_but_what_is_not_there() -> None:
    assert sees(rules(), {}, "t", {})
    assert not sees(rules(), {}, "t", None)
    assert not sees(rules(bucket()), {}, "t", None)


@pytest.mark.parametrize(
    ("table", "cells", "expected"),
    [
        ("todos", {"owner": '"ann"'}, True),
        ("todos", {"owner": '"bob"'}, False),
        ("todos", {"owner": '"bob"', "public": "true"}, False),
        ("notes", {"owner": '"ann"'}, False),
        ("notes", {"public": "true", "org": '"acme"'}, True),
        ("notes", {"public": "true", "org": '"other"'}, False),
        ("notes", {"public": "true"}, False),
        ("lists", {}, True),
        ("plans", {}, False),
        ("plans", {"everywhere": "1"}, True),
        ("todos", {"everywhere": "1"}, True),
    ],
)
def test_any_bucket_and_all_filters(table: str, cells: dict[str, str], expected: bool) -> None:
    several = rules(
        bucket(("owner", "eq", "jwt:sub"), tables=("todos",), name="mine"),
        bucket(("public", "eq", "true"), ("org", "eq", "jwt:org"), tables=("notes", "boards"), name="public"),
        bucket(tables=("lists",), name="lists"),
        bucket(("everywhere", "eq", "1"), name="all tables"),
    )
    assert sees(several, CLAIMS, table, cells) is expected


def test_the_columns_that_matter() -> None:
    several = rules(
        bucket(("owner", "eq", "jwt:sub"), ("a", "eq", "1"), tables=("todos",), name="1"),
        bucket(("a", "neq", "2"), tables=("todos", "notes"), name="2"),
        bucket(tables=("lists",), name="3"),
        bucket(("x", "eq", "1"), tables=("lists",), name="4"),
    )
    assert columns_for(several, "todos") == ("a", "owner")
    assert columns_for(several, "notes") == ("a",)
    assert columns_for(several, "lists") == ()
    assert columns_for(several, "plans") == ()
    assert columns_for(rules(), "todos") == ()


TEXTS = [
    ("null", "null"), ("true", "true"), ("-1.5e-9", "-1.5e-9"), ('""', ""), ("[]", ""), ("[null]", ""), ("[[]]", ""),
    ("[[1,2],[3]]", "1,2,3"), ("[true,false]", "true,false"), ('["null"]', "null"), ("{}", "[object Object]"),
    ("[1e+21,0.000001]", "1e+21,0.000001"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), TEXTS)
def test_text_as_javascript_prints_it(value: str, expected: str) -> None:
    assert text_of(value) == expected


NUMBERS: list[tuple[str, float | None]] = [
    ("1", 1.0), ("  \t\u00a0\ufeff-2.5x", -2.5), ("+.5", 0.5), ("5.", 5.0), ("1e", 1.0), ("1e+", 1.0), ("1e+2z", 100.0),
    ("0x1F", 0.0), ("1_000", 1.0), ("1,5", 1.0), ("-Infinityx", float("-inf")), ("1e999", float("inf")), ("", None),
    (".", None), ("-", None), ("e5", None), ("NaN", None), ("infinity", None), ("inf", None), ("\u0661", None),
    ("- 1", None), ("x1", None), ("\u200b1", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), NUMBERS, ids=[str(index) for index in range(len(NUMBERS))])
def test_numbers_as_javascript_reads_them(text: str, expected: float | None) -> None:
    assert number_of(text) == expected


def changed(**members: Any) -> dict[str, Any]:
    return {"version": 1, "buckets": [], **members}


def changed_bucket(**members: Any) -> dict[str, Any]:
    return changed(buckets=[{**bucket(), **members}])


def changed_filter(**members: Any) -> dict[str, Any]:
    return changed_bucket(filters=[{"column": "c", "op": "eq", "value": "x", **members}])


def without(item: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != name}


FLAWS: dict[str, Any] = {
    "null": None,
    "array": [],
    "version missing": without(changed(), "version"),
    "version 0": changed(version=0),
    "version negative": changed(version=-1),
    "version text": changed(version="1"),
    "version true": changed(version=True),
    "version a fraction": changed(version=1.5),
    "version beyond": changed(version=2**53),
    "version far beyond": changed(version=1e300),
    "buckets missing": without(changed(), "buckets"),
    "buckets null": changed(buckets=None),
    "buckets an object": changed(buckets={}),
    "bucket null": changed(buckets=[None]),
    "bucket array": changed(buckets=[[]]),
    "too many buckets": changed(buckets=[bucket(name=str(index)) for index in range(MAX_BUCKETS + 1)]),
    "name missing": changed(buckets=[without(bucket(), "name")]),
    "name empty": changed_bucket(name=""),
    "name a number": changed_bucket(name=1),
    "name twice": changed(buckets=[bucket(), bucket()]),
    "tables missing": changed(buckets=[without(bucket(), "tables")]),
    "tables a string": changed_bucket(tables="todos"),
    "table empty": changed_bucket(tables=["todos", ""]),
    "table a number": changed_bucket(tables=[1]),
    "filters missing": changed(buckets=[without(bucket(), "filters")]),
    "filters null": changed_bucket(filters=None),
    "filter a string": changed_bucket(filters=["x"]),
    "too many filters": changed(buckets=[bucket(*[("c", "eq", "x")] * (MAX_FILTERS + 1))]),
    "column missing": changed_bucket(filters=[{"op": "eq", "value": "x"}]),
    "column empty": changed_filter(column=""),
    "op missing": changed_bucket(filters=[{"column": "c", "value": "x"}]),
    "op unknown": changed_filter(op="like"),
    "op in capitals": changed_filter(op="EQ"),
    "op an array": changed_filter(op=["eq"]),
    "value missing": changed_bucket(filters=[{"column": "c", "op": "eq"}]),
    "value empty": changed_filter(value=""),
    "value a number": changed_filter(value=1),
    "value a list": changed_filter(value=["x"]),
}


@pytest.mark.parametrize("name", FLAWS)
def test_flaws_are_refused(name: str) -> None:
    with pytest.raises(Refused) as caught:
        rules_of(json.dumps(FLAWS[name]).encode())
    refusal = caught.value.refusal
    assert (refusal.name, refusal.status) == ("VALIDATION_ERROR", 400)
    assert refusal.message.endswith(".")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        b'{"version":1,"version":1,"buckets":[]}',
        b'{"version":1,"buckets":[]} ' + b" " * MAX_RULES_BYTES,
    ],
    ids=["empty", "half", "no UTF-8", "name twice", "too large"],
)
def test_texts_that_are_no_rules(raw: bytes) -> None:
    with pytest.raises(Refused):
        rules_of(raw)


def test_what_is_not_known_is_passed_over_and_a_whole_version_is_one() -> None:
    raw = json.dumps({**changed_filter(note=1), "version": 2.0, "author": "x"}).encode()
    assert rules_of(raw).version == 2


def test_the_limits_themselves_are_allowed() -> None:
    many = [bucket(name=str(index)) for index in range(MAX_BUCKETS)]
    assert len(rules(*many).buckets) == MAX_BUCKETS
    assert len(rules(bucket(*[("c", "eq", "x")] * MAX_FILTERS)).buckets[0].filters) == MAX_FILTERS


def test_rules_are_read_once() -> None:
    raw = json.dumps(changed_filter()).encode()
    assert rules_of(raw) is rules_of(bytes(bytearray(raw)))
