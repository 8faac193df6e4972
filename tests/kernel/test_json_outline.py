"""Outlines of JSON texts: what the strict parser and the printers make of them, in memory that follows the text."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semel.kernel.json import chunks
from semel.kernel.json.canonical import Integers, Surrogates, canonical_outlined, canonical_parsed, parse
from semel.kernel.json.fragment import JsonFragment, JsonOutline, dump
from semel.kernel.json.outline import OutlinePlan, is_heavy, outline
from semel.kernel.json.parse import first_mark, parse_marked
from semel.kernel.json.text import JsonError, JsonKind

LEVELS = 68
NAMES = frozenset({"a", "b", "meta"})
TEXT = OutlinePlan(LEVELS, 0, frozenset(), frozenset(), Integers.REFUSE, Surrogates.REFUSE)
OUTER = TEXT._replace(kept=3, names=NAMES, lists=frozenset({"b"}))
SIZES = st.sampled_from([1, 2, 5, 9, 16, 40])
MEGABYTE = 1024 * 1024

LEAVES = (
    st.sampled_from(["1", "0", "1.5", "-0.0", "1e400", "1e2", "9" * 25, "true", "null", '"<"', '""'])
    | st.text(max_size=6).map(json.dumps)
    | st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=False))
    | st.integers(-(10**20), 10**20).map(str)
    | st.sampled_from(['"\\ud800"', '"\\u003c"', '"a\\u0000"', '"\\ud83d\\ude00"', '"\U0001f600"', '"\\"],{"'])
)
MEMBER_NAMES = (
    st.sampled_from(["a", "b", "meta", "<", "<<", "", "a\x00", "a\x01", "\ue000", "\U0001f600", ":", '"'])
    | st.text(max_size=3)
).map(json.dumps) | st.sampled_from(['"\\u003c"', '"\\u0061"', '"\\ud800"'])
GAPS = st.sampled_from(["", "", "", " ", "\n\t"])


def texts(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Lists and objects of these texts, with white space; names may come twice."""
    lists = st.tuples(GAPS, st.lists(inside, max_size=6)).map(lambda it: f"[{it[0]}{f',{it[0]}'.join(it[1])}{it[0]}]")
    member = st.tuples(MEMBER_NAMES, GAPS, inside).map(lambda it: f"{it[0]}{it[1]}:{it[1]}{it[2]}")
    objects = st.tuples(GAPS, st.lists(member, max_size=6)).map(
        lambda it: f"{{{it[0]}{f',{it[0]}'.join(it[1])}{it[0]}}}"
    )
    return lists | objects


DOCUMENTS = st.recursive(LEAVES, texts, max_leaves=30)


def outlined(raw: bytes, plan: OutlinePlan, piece_bytes: int) -> Any:
    """The outline, or the error, with pieces of this size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "PIECE_BYTES", piece_bytes)
        try:
            return outline(raw, plan)
        except JsonError as error:
            return error


def expected(raw: bytes) -> Any:
    """The whole value with its marks, or the error."""
    try:
        return parse_marked(raw, LEVELS).value
    except JsonError as error:
        return error


def same(found: Any, whole: Any, level: int, plan: OutlinePlan, name: str = "") -> None:
    """Whether an outline is what a plan makes of a whole value."""
    if isinstance(whole, JsonError):
        assert isinstance(found, JsonError)
        assert found.kind is whole.kind
    elif not isinstance(whole, dict | list):
        assert (found, type(found)) == (whole, type(whole))
    elif level >= plan.kept or (level == plan.kept - 1 and isinstance(whole, list) and name not in plan.lists):
        assert isinstance(found, JsonFragment)
        same_text(found, whole)
    elif isinstance(whole, list):
        assert isinstance(found, list)
        assert len(found) == len(whole)
        for one, other in zip(found, whole, strict=True):
            same(one, other, level + 1, plan)
    else:
        assert isinstance(found, JsonOutline)
        assert set(dict(found.items())) == set(whole) & plan.names
        for member, value in found.items():
            if level < plan.kept - 1 or not isinstance(whole[member], dict | list):
                same(value, whole[member], level + 1, plan, member)
        if level == plan.kept - 1:
            assert found.fragment is not None
            same_text(found.fragment, whole)
        else:
            assert found.fragment is None
        assert (first_mark(found) is None) == (first_mark(whole) is None)


def same_text(fragment: JsonFragment, whole: Any) -> None:
    """Whether a fragment has the texts of a value."""
    assert (fragment.mark is None) == (first_mark(whole) is None)
    if fragment.mark is not None:
        return
    if fragment.flaw is not None:
        with pytest.raises(JsonError):
            canonical_parsed(whole, Integers.REFUSE, Surrogates.REFUSE)
        return
    assert fragment.canonical == canonical_parsed(whole, Integers.REFUSE, Surrogates.REFUSE)
    assert parse(fragment.text) == whole
    assert list(json.loads(fragment.text)) == list(whole) or isinstance(whole, list)


@settings(max_examples=600)
@given(DOCUMENTS, SIZES)
@example('{"a":1,"a":2}', 5)
@example('{"b":[1,2,3],"a":{"x":1},"c":[[]]}', 2)
@example('{"<":1,"<<":2,"\\u003c<<":3}', 5)
@example('[[[["a","b"],{"a":{"a":[1,2]}}]]]', 1)
def test_an_outline_is_what_the_parser_and_the_printers_make(document: str, piece_bytes: int) -> None:
    raw = document.encode("utf-8", "surrogatepass")
    whole = expected(raw)
    for plan in (TEXT, OUTER, TEXT._replace(kept=1, names=NAMES), TEXT._replace(kept=2, names=NAMES)):
        same(outlined(raw, plan, piece_bytes), whole, 0, plan)


@settings(max_examples=300)
@given(DOCUMENTS, st.integers(0, 60), st.sampled_from([",", "]", "}", '"', "{", ":", "\\", "1", "\x01"]), SIZES)
def test_a_broken_text_is_refused_as_the_parser_refuses_it(text: str, place: int, sign: str, piece_bytes: int) -> None:
    for broken in (text[:place] + sign + text[place:], text[:place] + text[place + 1 :], text + sign):
        raw = broken.encode("utf-8", "surrogatepass")
        whole, found = expected(raw), outlined(raw, OUTER, piece_bytes)
        assert isinstance(found, JsonError) == isinstance(whole, JsonError)


def test_members_that_are_left_out_of_the_text_are_kept() -> None:
    plan = TEXT._replace(kept=2, names=NAMES | {"x"}, left_out={"meta": frozenset({"x"})})
    raw = b'{"meta":{"z":1,"x":7,"y":[2,3]},"a":{"x":1}}'
    for piece_bytes in (1, 8, 100):
        found = outlined(raw, plan, piece_bytes)
        assert found["meta"].get("x") == 7
        assert found["meta"].fragment == JsonFragment(b'{"z":1,"y":[2,3]}', b'{"y":[2,3],"z":1}')
        assert found["a"].fragment.text == b'{"x":1}'


def test_what_is_too_deep_is_marked_and_the_rest_is_taken() -> None:
    raw = b'{"a":' + b"[" * 80 + b"1" + b"]" * 80 + b',"b":[2]}'
    found = outlined(raw, OUTER, 10)
    assert found["a"][0].mark.kind is JsonKind.DEPTH
    assert found["b"] == [2]


def test_long_lists_are_kept_as_values_of_the_same_types() -> None:
    rest: list[Any] = ["x", 7, 1.5, {"a": 1}, [1], None, True]
    raw = json.dumps([0] * 1_000 + rest).encode()
    kept = outlined(raw, OUTER, 64)[1_000:]
    assert [type(one) for one in kept] == [str, int, float, JsonOutline, JsonFragment, type(None), bool]


def test_strings_of_a_long_list_that_are_the_same_stay_the_same() -> None:
    raw = json.dumps([str(number % 900) for number in range(5_000)]).encode()
    assert outlined(raw, OUTER, 64) == json.loads(raw)
    raw = json.dumps([str(number) for number in range(5_000)]).encode()
    kept = outlined(raw, OUTER, 64)
    assert (len(kept), len(set(kept))) == (5_000, 1_001)


def test_an_object_of_fragments_is_printed_and_canonical() -> None:
    plan = TEXT._replace(kept=2, names=frozenset({"p"}))
    payload = outlined(b'{"p":{"b":1,"a":[2]}}', plan, 4)["p"]
    event = {"type": "t", "number": 10**20, "payload": payload}
    assert json.loads(dump(event)) == {"type": "t", "number": 10**20, "payload": {"b": 1, "a": [2]}}
    printed = canonical_outlined(event, Integers.REFUSE, Surrogates.REFUSE)
    assert printed == b'{"number":100000000000000000000,"payload":{"a":[2],"b":1},"type":"t"}'


def filled(beginning: bytes, unit: bytes, end: bytes) -> bytes:
    return beginning + unit * ((MEGABYTE - len(beginning) - len(end)) // len(unit)) + end


HEAVY = {
    "lists": filled(b"[", b"[],", b"0]"),
    "deep lists": filled(b"[", b"[" * 58 + b"]" * 58 + b",", b"0]"),
    "objects": filled(b"[", b"{},", b"0]"),
    "members": b"{" + b",".join(b'"%x":1' % number for number in range(105_000)) + b"}",
    "objects with a member": filled(b"[", b'{"":1},', b"0]"),
    "strings": filled(b"[", b'"ab",', b"0]"),
    "doubles": filled(b"[", b"1.5,", b"0]"),
    "whole doubles": filled(b"[", b"1.0,", b"0]"),
    "numbers that overflow": filled(b"[", b"1e999,", b"0]"),
    "long integers": filled(b"[", b"9007199254740993,", b"0]"),
    "one name twice": filled(b"{", b'"a":1,', b'"a":1}'),
}


@pytest.mark.parametrize("shape", HEAVY)
def test_a3_an_outline_takes_memory_that_follows_the_text(shape: str) -> None:
    raw = b'{"a":' + HEAVY[shape] + b"}"
    assert is_heavy(raw) or shape == "long integers"
    tracemalloc.start()
    try:
        for plan in (TEXT, OUTER):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                kept = outline(raw, plan)
            except JsonError:
                kept = None
            assert tracemalloc.get_traced_memory()[1] - before < 12 * MEGABYTE
            del kept
    finally:
        tracemalloc.stop()
