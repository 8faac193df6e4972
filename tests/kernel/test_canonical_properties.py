"""Laws of canonical JSON on made-up documents, with an independent canonicalizer as the judge."""

from __future__ import annotations

import json
from typing import Any

import rfc8785
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from semel.kernel.json.canonical import (
    Integers,
    JsonError,
    JsonKind,
    Surrogates,
    canonical,
    canonical_slowly,
    canonicalize,
    parse,
)
from semel.kernel.json.messages import Messages, split_messages
from semel.kernel.json.parse import parse_slowly

SAFE_INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
# Dense where the rules are: escapes, quotes, the two sides of the surrogates, and what looks like a number.
TEXT = st.text(max_size=12) | st.text('\\"/:[]{},.0e1u\x00\x1f\x7f\u2028\ud7ff\ue000\uffff\U0001f600', max_size=8)
ANY_TEXT = TEXT | st.text(st.characters(exclude_categories=()), max_size=8)


def documents(leaves: st.SearchStrategy[Any], names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=5),
        max_leaves=12,
    )


LITERALS = st.none() | st.booleans()
PORTABLE = documents(LITERALS | SAFE_INTEGERS | FINITE | TEXT, TEXT)
ORDINARY = documents(LITERALS | st.integers(-(10**14), 10**14) | st.text("abc é:\\", max_size=8), st.text("abcé"))
ANYTHING = documents(LITERALS | st.integers(-(10**25), 10**25) | FINITE | ANY_TEXT, ANY_TEXT)
POLICIES = st.sampled_from(Integers), st.sampled_from(Surrogates)
SPELLINGS = st.sampled_from(
    [
        {"ensure_ascii": True},
        {"ensure_ascii": False},
        {"ensure_ascii": False, "separators": (",", ":"), "sort_keys": True},
        {"ensure_ascii": True, "indent": 1},
    ]
)


def outcome(call: Any, *arguments: object) -> object:
    """What a call returns, or the kind of its refusal: two paths must agree on either."""
    try:
        return call(*arguments)
    except JsonError as error:
        return error.kind


def slowly(raw: bytes, integers: Integers, surrogates: Surrogates) -> bytes:
    return canonical_slowly(parse_slowly(raw), integers, surrogates)


@given(PORTABLE, SPELLINGS)
@settings(max_examples=400, deadline=None)
def test_equal_to_an_independent_canonicalizer(document: Any, spelling: Any) -> None:
    raw = json.dumps(document, **spelling).encode()
    expected = rfc8785.dumps(document)
    for integers in Integers:
        assert canonicalize(raw, integers, Surrogates.REFUSE) == expected
        assert canonical(document, integers, Surrogates.REFUSE) == expected
    assert slowly(raw, Integers.REFUSE, Surrogates.REFUSE) == expected


@given(ORDINARY, SPELLINGS)
@settings(max_examples=200, deadline=None)
def test_ordinary_documents_too(document: Any, spelling: Any) -> None:
    raw = json.dumps(document, **spelling).encode()
    assert canonicalize(raw, Integers.REFUSE, Surrogates.REFUSE) == rfc8785.dumps(document)


@given(ANYTHING, SPELLINGS, *POLICIES)
@settings(max_examples=500, deadline=None)
def test_the_two_paths_agree(document: Any, spelling: Any, integers: Integers, surrogates: Surrogates) -> None:
    raw = json.dumps(document, **spelling).encode("utf-8", "surrogatepass")
    expected = outcome(slowly, raw, integers, surrogates)
    assert outcome(canonicalize, raw, integers, surrogates) == expected
    assert outcome(lambda: canonical(parse(raw), integers, surrogates)) == expected


@given(ANYTHING, *POLICIES)
@settings(max_examples=300, deadline=None)
def test_canonical_text_is_its_own_canonical_text(document: Any, integers: Integers, surrogates: Surrogates) -> None:
    once = outcome(canonical, document, integers, surrogates)
    assume(not isinstance(once, JsonKind))
    assert isinstance(once, bytes)
    # An integer rounded to 1e21 or more has an exponent now, and so is read as the double that prints alike.
    assert outcome(canonicalize, once, integers, surrogates) == once


@given(st.binary(max_size=60) | st.text('[]{}",:\\u0123456789eE+-.truefalsn \n', max_size=40).map(str.encode))
@example(b"")
@example(b'"\\')
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_parsed_or_refused(raw: bytes) -> None:
    assert_paths_agree(raw)


@given(ANYTHING, SPELLINGS, st.data())
@settings(max_examples=500, deadline=None)
def test_broken_documents_are_parsed_or_refused(document: Any, spelling: Any, data: st.DataObject) -> None:
    raw = bytearray(json.dumps(document, **spelling).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b",", b"]", b"1e999", b'"a":1,"a":1', b"NaN"])
        )
    assert_paths_agree(bytes(raw))


def assert_paths_agree(raw: bytes) -> None:
    quick, slow = outcome(parse, raw), outcome(parse_slowly, raw)
    # repr tells 1 from 1.0 and from True, and -0.0 from 0.0
    assert repr(quick) == repr(slow)
    refused = isinstance(slow, JsonKind)
    if isinstance(outcome(split_messages, raw, 1_000), JsonKind):
        assert refused  # what is not JSON is refused by both, if not always for the same of several faults
    else:
        assert not refused or slow in {"duplicate_name", "overflow", "digits"}


@given(ANYTHING, SPELLINGS)
@settings(max_examples=300, deadline=None)
def test_messages_put_together_again_are_the_array(document: Any, spelling: Any) -> None:
    elements = document if isinstance(document, list) else [document]
    raw = json.dumps(elements, **spelling).encode("utf-8", "surrogatepass")
    messages = outcome(split_messages, raw, 1_000)
    assume(messages != "utf8")  # a lone surrogate that was not escaped
    assert isinstance(messages, Messages)
    assert messages.total == len(elements)
    assert repr(parse(b"[" + messages.data + b"]")) == repr(parse(raw))
    assert messages.data == messages.data.strip()
