"""Canonical JSON against RFC 8785's own examples, every token of the contracts, and every refusal."""

from __future__ import annotations

import json
import math
import pickle
import struct
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from semel.kernel.json.canonical import (
    MAX_DEPTH,
    Integers,
    JsonError,
    JsonKind,
    Surrogates,
    canonical,
    canonical_slowly,
    canonicalize,
    parse,
)
from semel.kernel.json.number import print_double
from semel.kernel.json.parse import load, parse_slowly, print_proved, prints_canonically


def strict(raw: str | bytes) -> bytes:
    """What the events contract asks for, by both paths, which must agree."""
    data = raw.encode() if isinstance(raw, str) else raw
    quick = canonicalize(data, Integers.REFUSE, Surrogates.REFUSE)
    assert quick == canonical_slowly(parse_slowly(data), Integers.REFUSE, Surrogates.REFUSE)
    return quick


def refusal(call: Callable[..., object], *arguments: object) -> JsonError:
    with pytest.raises(JsonError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert message.endswith(".")
    assert len(message) < 160
    assert message.isascii()
    return caught.value


# RFC 8785


def test_the_example_of_sections_3_2_2_and_3_2_4() -> None:
    raw = rb"""
        {
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"""
    assert strict(raw) == bytes.fromhex(
        "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a"
        "5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d3237"
        "5d2c22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d"
    )


def test_the_sorting_example_of_section_3_2_3() -> None:
    raw = r"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"}"""
    assert list(json.loads(strict(raw)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_the_numbers_of_appendix_b(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert print_double(value) == text
    assert canonical([value], Integers.REFUSE, Surrogates.REFUSE) == f"[{text}]".encode()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    assert refusal(canonical, [value], Integers.ROUND, Surrogates.ESCAPE).kind == "not_a_number"


# Tokens


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("1.0", "1"),
        ("10e-1", "1"),
        ("1E0", "1"),
        ("1e16", "10000000000000000"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("0.000001", "0.000001"),
        ("1e-6", "0.000001"),
        ("0.0000001", "1e-7"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("333333333.33333329", "333333333.3333333"),
        ("1e23", "1e+23"),
        ("4.50", "4.5"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("-0e9", "0"),
        ("1e-400", "0"),
        ("-1e-7", "-1e-7"),
        ("-1.5e20", "-150000000000000000000"),
        ("-0.00001", "-0.00001"),
        ("123456789012345.5", "123456789012345.5"),
        ("9007199254740992", "9007199254740992"),
        ("-9007199254740992", "-9007199254740992"),
        ("12345678901234567000", "12345678901234567000"),
        ("100000000000000000000", "100000000000000000000"),
    ],
)
def test_a_number_token_has_one_canonical_form(token: str, text: str) -> None:
    assert strict(token) == text.encode()
    assert strict(f'{{"a": [{token}]}}') == f'{{"a":[{text}]}}'.encode()


@pytest.mark.parametrize(
    ("token", "refused", "exact", "rounded"),
    [
        ("9007199254740992", "9007199254740992", "9007199254740992", "9007199254740992"),
        ("9007199254740993", None, "9007199254740993", "9007199254740992"),
        ("-9007199254740993", None, "-9007199254740993", "-9007199254740992"),
        ("123456789012345678901", None, "123456789012345678901", "123456789012345680000"),
        ("1000000000000000000000", None, "1000000000000000000000", "1e+21"),
        ("18446744073709551616", None, "18446744073709551616", "18446744073709552000"),
        ("-9223372036854775809", None, "-9223372036854775809", "-9223372036854776000"),
    ],
)
def test_integers_that_a_double_cannot_hold(token: str, refused: str | None, exact: str, rounded: str) -> None:
    raw = f"[{token}]".encode()
    assert canonicalize(raw, Integers.EXACT, Surrogates.REFUSE) == f"[{exact}]".encode()
    assert canonicalize(raw, Integers.ROUND, Surrogates.REFUSE) == f"[{rounded}]".encode()
    if refused is None:
        assert refusal(strict, raw).kind is JsonKind.INTEGER
    else:
        assert strict(raw) == f"[{refused}]".encode()


def test_an_integer_may_have_4300_digits() -> None:
    for sign in ("", "-"):
        longest = f"{sign}{'7' * 4300}".encode()
        assert canonicalize(longest, Integers.EXACT, Surrogates.REFUSE) == longest
        assert refusal(canonicalize, longest, Integers.ROUND, Surrogates.REFUSE).kind == "overflow"
        assert refusal(canonicalize, longest, Integers.REFUSE, Surrogates.REFUSE).kind == "overflow"
        assert refusal(parse, longest + b"7").kind == "digits"
    assert refusal(canonical, 10**4300, Integers.EXACT, Surrogates.REFUSE).kind == "digits"


def test_a_long_run_of_digits_in_a_string_is_only_text() -> None:
    raw = b'{"id":"12345678901234567890123"}'
    assert strict(raw) == raw


# Strings


def test_only_what_must_be_escaped_is_escaped() -> None:
    every = "".join(map(chr, range(0x80))) + "\u2028\u2029é"
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    expected = "".join(short.get(c, f"\\u{ord(c):04x}" if c < " " else c) for c in every)
    assert strict(json.dumps(every)) == f'"{expected}"'.encode()


def test_spelling_does_not_matter_and_normal_forms_do() -> None:
    assert strict(rb'"\u0041\/"') == strict(b'"A/"')
    assert strict('"é"') != strict('"e\u0301"')


def test_names_sort_by_utf16_code_units() -> None:
    assert strict('{"\ue000":2,"\U0001f600":1,"type":0}') == '{"type":0,"\U0001f600":1,"\ue000":2}'.encode()
    assert strict('{"10":1,"1":2,"":3,"__proto__":4}') == b'{"":3,"1":2,"10":1,"__proto__":4}'


def test_lone_surrogates_follow_the_policy() -> None:
    raw = rb'{"\uDC00":1,"a":"x\uD800y\uDBFFz\uD83D\uDE00","\ue000":2}'
    assert refusal(strict, raw).kind == "surrogate"
    expected = '{"a":"x\\ud800y\\udbffz\U0001f600","\\udc00":1,"\ue000":2}'.encode()
    assert canonicalize(raw, Integers.REFUSE, Surrogates.ESCAPE) == expected


def test_two_halves_that_stand_together_are_one_character() -> None:
    assert canonical("\ud83d\ude00", Integers.EXACT, Surrogates.ESCAPE) == '"\U0001f600"'.encode()


# Refusals of the text


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "syntax"),
        (b" ", "syntax"),
        (b"nul", "syntax"),
        (b"[1,]", "syntax"),
        (b'{"a":1,}', "syntax"),
        (b"{'a':1}", "syntax"),
        (b"{1:1}", "syntax"),
        (b"[1] 2", "syntax"),
        (b"[1]]", "syntax"),
        (b"01", "syntax"),
        (b"+1", "syntax"),
        (b"1.", "syntax"),
        (b".5", "syntax"),
        (b"1e", "syntax"),
        (b"0x1", "syntax"),
        (b'"\x01"', "syntax"),
        (b'"\n"', "syntax"),
        (rb'"\x41"', "syntax"),
        (rb'"\u12"', "syntax"),
        (b'"open', "syntax"),
        (b"[" * 60, "syntax"),
        (b"\x0b1", "syntax"),
        ("\u00a01".encode(), "syntax"),
        ("[\u0661]".encode(), "syntax"),
        (b"1 /* no */", "syntax"),
        (b"\xef\xbb\xbf1", "utf8"),
        (b'"\xff"', "utf8"),
        (b'"\xed\xa0\x80"', "utf8"),
        (b'"\xc0\x80"', "utf8"),
        ('{"a":1}'.encode("utf-16"), "utf8"),
        (b'{"a":1,"a":1}', "duplicate_name"),
        (rb'{"a":1,"\u0061":2}', "duplicate_name"),
        (b'[{"b":{"a":1,"c":0,"a":{"d":2}}}]', "duplicate_name"),
        (rb'{"a":"\u003a","a":2}', "duplicate_name"),
        (rb'{"\u003A\u003a":1,"a":2,"a":3}', "duplicate_name"),
        (b"NaN", "not_a_number"),
        (b"[Infinity]", "not_a_number"),
        (b'{"a":-Infinity}', "not_a_number"),
        (b"1e400", "overflow"),
        (b"[-1e309]", "overflow"),
        (b"9" * 5000, "digits"),
        (b"[" * 65 + b"]" * 65, "depth"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "depth"),
        (b"[" * 200_000, "depth"),
        (b'[{"a":' * 100_000, "depth"),
    ],
)
def test_a_bad_text_is_refused(raw: bytes, kind: str) -> None:
    assert refusal(parse, raw).kind == kind
    assert refusal(canonicalize, raw, Integers.EXACT, Surrogates.ESCAPE).kind == kind


def test_the_depth_limit_is_exact() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert strict(deepest) == deepest
    mixed = b'[{"a":' * 32 + b'"[[[]{{"' + b"}]" * 32
    assert strict(mixed) == mixed
    wide = b"[" + b"[[]]," * 1000 + b"[]]"
    assert strict(wide) == wide


def test_brackets_in_strings_are_not_depth() -> None:
    for text in ("[" * 100, '"' + "[" * 100, "\\" + "[" * 100, '\\"' + "{" * 100, "a\\\\"):
        raw = json.dumps({"a": [text, text]}, separators=(",", ":")).encode()
        assert strict(raw) == raw


def test_a_refusal_never_repeats_more_than_a_prefix_of_the_input() -> None:
    name = "\ud800n" * 5000
    error = refusal(parse, json.dumps({name: 1})[:-1].encode() + b"," + json.dumps({name: 1})[1:].encode())
    assert error.kind is JsonKind.DUPLICATE_NAME


def test_a_refusal_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(refusal(parse, b"1e999")))
    assert (error.kind, str(error)) == ("overflow", str(refusal(parse, b"1e999")))


# Values


class Word(StrEnum):
    HELLO = "hello"


class Number(IntEnum):
    SEVEN = 7


@pytest.mark.parametrize(
    "value", [(1,), {1: 2}, {None: 1}, {1: 1, "a": 2}, b"x", {1}, UUID(int=1), object(), {"é": 1, 2: 3}]
)
def test_a_foreign_type_is_a_type_error(value: Any) -> None:
    for wrapped in (value, [value], {"a": value}):
        with pytest.raises(TypeError):
            canonical(wrapped, Integers.EXACT, Surrogates.ESCAPE)


def test_subclasses_print_as_what_they_are() -> None:
    value: Any = {"a": Word.HELLO, "b": Number.SEVEN, "c": [True, 1]}
    expected = b'{"a":"hello","b":7,"c":[true,1]}'
    assert canonical(value, Integers.REFUSE, Surrogates.REFUSE) == expected
    assert canonical_slowly(value, Integers.REFUSE, Surrogates.REFUSE) == expected


def test_a_deep_or_cyclic_value_is_refused() -> None:
    value: Any = "leaf"
    for _ in range(MAX_DEPTH):
        value = [value]
    assert canonical(value, Integers.EXACT, Surrogates.ESCAPE).startswith(b"[" * MAX_DEPTH)
    assert refusal(canonical, {"a": value}, Integers.EXACT, Surrogates.ESCAPE).kind == "depth"
    value.append(value)
    assert refusal(canonical, value, Integers.EXACT, Surrogates.ESCAPE).kind == "depth"


def test_a_hundred_thousand_levels_of_value_are_refused() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    assert refusal(canonical, value, Integers.EXACT, Surrogates.ESCAPE).kind == "depth"


# The quick path


ORDINARY = [
    b'{"kind":"echo_test","params":{"msg":"hello","n":1}}',
    b'{"b":[1,2.5,-3],"a":{"t":true,"f":false,"n":null,"e":"1e5 1.0 12345678901234567890"}}',
    '{"name":"naïve café — 日本語","at":"12:30:00","path":"a\\\\b\\"c"}'.encode(),
    b'{"price":30.05,"deep":[[[[0.125]]]]}',
    rb'{"html":"\u003cb\u003e","ascii":"caf\u00e9"}',
]


@pytest.mark.parametrize("raw", ORDINARY)
def test_ordinary_documents_take_the_quick_path(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = canonical_slowly(parse_slowly(raw), Integers.REFUSE, Surrogates.REFUSE)

    def forbidden(*_: object) -> None:
        raise AssertionError("the slow path was taken")

    monkeypatch.setattr("semel.kernel.json.canonical.canonical_slowly", forbidden)
    monkeypatch.setattr("semel.kernel.json.canonical.parse_slowly", forbidden)
    monkeypatch.setattr("semel.kernel.json.parse.parse_slowly", forbidden)
    assert canonicalize(raw, Integers.REFUSE, Surrogates.REFUSE) == expected
    assert canonical(parse(raw), Integers.REFUSE, Surrogates.REFUSE) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}',
        rb'{"a":1,"b":"\u003a"}',
        b"[12345678901234567890]",
        rb'["\ud800"]',
        b"[1e400]",
        b"[" * 65 + b"]" * 65,
    ],
)
def test_what_the_quick_parser_may_get_wrong_is_left_to_the_strict_one(raw: bytes) -> None:
    assert load(raw) is None


@pytest.mark.parametrize(
    "value",
    [1.0, [-0.0], {"a": 1e16}, 1e-6, 2**53 + 1, 2**70, {"\U0001f600": 1}, 0.30000000000000004, "\ud800"],
)
def test_what_the_quick_printer_may_get_wrong_is_left_to_the_strict_one(value: Any) -> None:
    assert print_proved(value) is None


def test_a_number_at_the_very_end_is_seen() -> None:
    assert not prints_canonically(b"1.0")
    assert prints_canonically(b"1.05")
