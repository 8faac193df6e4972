"""Messages cut out of a JSON text: byte for byte, strict about grammar, never slow, never too deep, never large."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semel.kernel.json import chunks, messages
from semel.kernel.json.messages import Messages, TooManyMessagesError, single_message, split_messages
from semel.kernel.json.text import MAX_DEPTH, JsonError
from tests.kernel.reference_messages import split_one_by_one
from tests.kernel.test_canonical_properties import ANYTHING, SPELLINGS

MEGABYTE = 1_000_000


def joined(messages: Sequence[bytes]) -> Messages:
    """As they are stored."""
    return Messages(b",".join(messages), len(messages))


@pytest.mark.parametrize(
    ("raw", "messages"),
    [
        (b"[]", []),
        (b" [ \n\t\r ] ", []),
        (b"1", [b"1"]),
        (b" \r\n 1 \t", [b"1"]),
        (b"null", [b"null"]),
        (b'"[1,2]"', [b'"[1,2]"']),
        (b"{}", [b"{}"]),
        (b' {"a" : [1, 2]} ', [b'{"a" : [1, 2]}']),
        (b"[1]", [b"1"]),
        (b"[ 1 , 2 ,3]", [b"1", b"2", b"3"]),
        (b"[[1,2],[3]]", [b"[1,2]", b"[3]"]),
        (b"[[[1]]]", [b"[[1]]"]),
        (b"[[]]", [b"[]"]),
        (b"[{},{}]", [b"{}", b"{}"]),
        (b'["a,]","\\"],[",{"b": "}"}]', [b'"a,]"', b'"\\"],["', b'{"b": "}"}']),
        (b"[true,\nfalse,\nnull]", [b"true", b"false", b"null"]),
        ('["é", "日本語 🎉"]'.encode(), ['"é"'.encode(), '"日本語 🎉"'.encode()]),
    ],
)
def test_an_array_is_flattened_by_one_level(raw: bytes, messages: list[bytes]) -> None:
    assert split_messages(raw, 10) == joined(messages)


@given(ANYTHING, SPELLINGS)
def test_a_single_message_is_the_one_that_is_split(value: object, spelling: dict[str, Any]) -> None:
    raw = json.dumps(value, **spelling).encode("utf-8", "surrogatepass")
    text = single_message(raw)
    assert text is None or Messages(text, 1) == split_messages(raw, 1)


@pytest.mark.parametrize(("raw", "text"), [(b' {"a": 1}\n', b'{"a": 1}'), (b"1", b"1"), (b"[1]", None), (b"{", None)])
def test_an_array_is_no_single_message(raw: bytes, text: bytes | None) -> None:
    assert single_message(raw) == text


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        rb'"\ud800"',
        rb'"\u00E9\/"',
        b"1e400",
        b"-1e400",
        b"1.50",
        b"-0",
        b"1E+2",
        b"12345678901234567890123",
        b"9" * 10_000,
        b'{"n": ' + b"9" * 10_000 + b"}",
    ],
)
def test_the_text_of_a_message_is_kept(text: bytes) -> None:
    assert split_messages(text, 1) == joined([text])
    assert split_messages(b"[" + text + b" , " + text + b"]", 2) == joined([text, text])
    assert split_messages(b"[" + text + b"," + text + b"]", 2) == joined([text, text])


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "syntax"),
        (b" ", "syntax"),
        (b"[", "syntax"),
        (b"]", "syntax"),
        (b"[,]", "syntax"),
        (b"[,1]", "syntax"),
        (b"[1,]", "syntax"),
        (b"[1,,2]", "syntax"),
        (b"[1 2]", "syntax"),
        (b"[1", "syntax"),
        (b"[1,", "syntax"),
        (b"[1}", "syntax"),
        (b"[1]2", "syntax"),
        (b"[1],", "syntax"),
        (b"[] []", "syntax"),
        (b"[]]", "syntax"),
        (b"1 2", "syntax"),
        (b"1,2", "syntax"),
        (b"{}{}", "syntax"),
        (b'{"a":1,}', "syntax"),
        (b'[{"a":1,}]', "syntax"),
        (b"[01]", "syntax"),
        (b"[1.]", "syntax"),
        (b"[\x0c1]", "syntax"),
        (b"\x0c[1]", "syntax"),
        (b'["\x00"]', "syntax"),
        (b"\x00", "syntax"),
        ("[\u00a01]".encode(), "syntax"),
        ("[1\u0661]".encode(), "syntax"),
        (b"NaN", "not_a_number"),
        (b"[1,NaN]", "not_a_number"),
        (b'{"a":-Infinity}', "not_a_number"),
        (b"[[Infinity]]", "not_a_number"),
        (b"\xef\xbb\xbf[1]", "utf8"),
        (b"\xef\xbb\xbf1", "utf8"),
        (b'["\xff"]', "utf8"),
        (b'"\xed\xa0\x80"', "utf8"),
        (b"[" * 65 + b"]" * 65, "depth"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "depth"),
        (b"[" * 1_000_000, "depth"),
    ],
)
def test_what_is_not_json_is_refused(raw: bytes, kind: str) -> None:
    with pytest.raises(JsonError) as caught:
        split_messages(raw, 1_000)
    assert caught.value.kind == kind
    assert len(str(caught.value)) < 160


def test_the_depth_limit_is_exact() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert split_messages(deepest, 1) == joined([deepest[1:-1]])
    closed = b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert split_messages(closed, 1) == joined([closed])


# -- The quick way and Python's own parser agree ----------------------------------------------------------------------

TOKENS = [
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\",
    b" ",
    b"\n",
    b"1",
    b"-0.5e+3",
    b"1e999",
    b"null",
    b'"a"',
    b'"b,"',
]
TOKENS += [
    b'"\\\\"',
    b'"\\""',
    b'"\\ud800"',
    b'"\\u12"',
    "\u00e9".encode(),
    "\U0001f600".encode(),
    b"\xff",
    b"NaN",
    b'{"a":',
    b"[[",
    b"]]",
]


def outcome(raw: bytes, piece_bytes: int) -> Messages | None:
    """What the quick way says, with pieces so short that there is a cut wherever there may be one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "PIECE_BYTES", piece_bytes)
        patch.setattr(chunks, "PIECE_BYTES", piece_bytes)
        try:
            return split_messages(raw, MEGABYTE)
        except JsonError:
            return None


def expected(raw: bytes) -> Messages | None:
    try:
        return joined(split_one_by_one(raw))
    except JsonError:
        return None


pieces = pytest.mark.parametrize("piece_bytes", [1, 2, 7, 64 * 1024])


@pieces
@given(document=ANYTHING, spelling=SPELLINGS, spaces=st.sampled_from(["", " ", "\n\t "]))
@settings(max_examples=150, deadline=None)
@example(document=[[], [[]], {"": {}}], spelling={"indent": 2}, spaces="")
def test_a2_the_quick_split_of_json_equals_that_of_pythons_parser(
    piece_bytes: int, document: Any, spelling: Any, spaces: str
) -> None:
    raw = (spaces + json.dumps(document, **spelling) + spaces).encode("utf-8", "surrogatepass")
    assert outcome(raw, piece_bytes) == expected(raw)


@pieces
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=12))
@settings(max_examples=300, deadline=None)
def test_a2_what_may_not_be_json_is_judged_as_pythons_parser_judges_it(piece_bytes: int, tokens: list[bytes]) -> None:
    for raw in (b"".join(tokens), b"[" + b"".join(tokens) + b"]", b"[" + b",".join(tokens) + b"]"):
        assert outcome(raw, piece_bytes) == expected(raw)


@pieces
@given(document=ANYTHING, spelling=SPELLINGS, data=st.data())
@settings(max_examples=150, deadline=None)
def test_a2_a_damaged_text_is_judged_as_pythons_parser_judges_it(
    piece_bytes: int, document: Any, spelling: Any, data: Any
) -> None:
    raw = bytearray(json.dumps([document, document], **spelling).encode("utf-8", "surrogatepass"))
    at = data.draw(st.integers(0, len(raw)))
    raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2) | st.sampled_from(TOKENS))
    assert outcome(bytes(raw), piece_bytes) == expected(bytes(raw))


@pieces
@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_a2_depth_is_counted_over_cuts(piece_bytes: int, depth: int) -> None:
    fits = b"[1," * (depth - 1) + b"[]" + b",2]" * (depth - 1)
    assert outcome(fits, piece_bytes) == expected(fits)
    assert (outcome(fits, piece_bytes) is None) == (depth > MAX_DEPTH)


# -- Memory and the number of messages --------------------------------------------------------------------------------

DEEP = b"[" * 60 + b"]" * 60
SHAPES: dict[str, bytes] = {
    "zeros": b"[" + b"0," * 500_000 + b"0]",
    "zeros in one message": b"[[" + b"0," * 500_000 + b"0]]",
    "lists in one message": b"[[" + b"[]," * 350_000 + b"0]]",
    "deep lists": b"[[" + b",".join([DEEP] * 8_000) + b"]]",
    "members": b"{" + b",".join(b'"%d":{}' % number for number in range(100_000)) + b"}",
    "a wide string": b'["' + b"a" * MEGABYTE + "\U0001f600".encode() + b'"]',
    "escapes": b'["' + rb"\n" * 500_000 + b'"]',
    "spaces": b"[" + b" " * MEGABYTE + b"1]",
    "spaced zeros": b"[[" + b" 0 ," * 250_000 + b"1]]",
}


@pytest.mark.parametrize("raw", SHAPES.values(), ids=SHAPES)
def test_a2_a_split_takes_less_than_three_times_the_text_of_memory(raw: bytes) -> None:
    tracemalloc.start()
    try:
        split_messages(raw, MEGABYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(raw) + 8 * MEGABYTE


@pytest.mark.parametrize("between", [b",", b" , "])
def test_a2_the_number_of_messages_is_limited_exactly(between: bytes) -> None:
    def array(count: int) -> bytes:
        return b"[" + between.join([b"[1,2]"] * count) + b"]"

    for most in (1, 100, 50_000):
        assert split_messages(array(most), most).total == most
        with pytest.raises(TooManyMessagesError):
            split_messages(array(most + 1), most)
