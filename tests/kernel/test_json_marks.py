"""JSON with marks: one bad value is marked in its place, and what breaks the text itself is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.json.canonical import Integers, Surrogates, canonical, parse
from semel.kernel.json.fragment import dump
from semel.kernel.json.parse import first_mark, parse_marked
from semel.kernel.json.text import JsonError, JsonKind

LEVELS = 70

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=4), inside, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_has_no_fault_is_parsed_as_the_strict_parser_does(value: Any) -> None:
    raw = json.dumps(value).encode()
    marked = parse_marked(raw, 64)
    assert marked.value == parse(raw)
    assert first_mark(marked.value) is None


@given(VALUES)
def test_a_proof_means_that_the_quick_printer_is_canonical(value: Any) -> None:
    marked = parse_marked(json.dumps({"inside": value}).encode(), 64)
    if marked.prints_canonically:
        inside = marked.value["inside"]
        printed = canonical(inside, Integers.EXACT, Surrogates.ESCAPE)
        assert json.loads(printed) == inside
        assert printed == dump(_sorted(inside))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        ("1e400", JsonKind.OVERFLOW),
        ("-1e400", JsonKind.OVERFLOW),
        ("1" * 4301, JsonKind.DIGITS),
        ("[" * LEVELS + "]" * LEVELS, JsonKind.DEPTH),
        ('{"a":' * LEVELS + "1" + "}" * LEVELS, JsonKind.DEPTH),
        ("[" * 100_000 + "]" * 100_000, JsonKind.DEPTH),
    ],
)
def test_a_value_that_cannot_be_taken_is_marked_and_the_rest_is_kept(token: str, kind: JsonKind) -> None:
    value = parse_marked(f'{{"bad": {token}, "text": "]}}\\\\\\"[", "good": [1, {{"n": 2}}]}}'.encode(), LEVELS).value
    assert value["good"] == [1, {"n": 2}]
    assert value["text"] == ']}\\"['
    mark = first_mark(value["bad"])
    assert mark is not None
    assert mark.kind is kind


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'{"a": 1, "a": 2}', JsonKind.DUPLICATE_NAME),
        (b'[1e400, {"a": 1, "a": 2}]', JsonKind.DUPLICATE_NAME),
        (b"[NaN]", JsonKind.NOT_A_NUMBER),
        (b"[-Infinity, 1e400]", JsonKind.NOT_A_NUMBER),
        (b"[1e400", JsonKind.SYNTAX),
        (b"[" * 100_000, JsonKind.SYNTAX),
        (b"[" * 100_000 + b"]" * 99_999, JsonKind.SYNTAX),
        (b"]" * 10, JsonKind.SYNTAX),
        (b'["\xff"]', JsonKind.UTF8),
        (b'["unfinished', JsonKind.SYNTAX),
        (b"", JsonKind.SYNTAX),
    ],
)
def test_a_text_that_is_broken_is_refused(raw: bytes, kind: JsonKind) -> None:
    with pytest.raises(JsonError) as refused:
        parse_marked(raw, LEVELS)
    assert refused.value.kind is kind


def test_what_stands_for_a_cut_is_no_number_of_its_own() -> None:
    """A client that sends the sign itself gets a mark too, and nothing is lost or merged by it."""
    mark = first_mark(parse_marked(b'{"a": 6.4e99999}', LEVELS).value)
    assert mark is not None


@pytest.mark.parametrize("value", [10**30, -(10**30), "\ud800", ["\udfff", 2**64]])
def test_what_the_quick_printer_cannot_carry_is_printed_whole(value: Any) -> None:
    assert json.loads(dump(value)) == value
