"""Strict JSON: bytes in, one Python value out, and nothing lost on the way.

Promise: what is accepted is one I-JSON text: UTF-8 without a byte order mark, nothing after the value, no name twice in
one object, no NaN or Infinity, no double that overflows, integers of at most 4,300 digits and kept exactly, nesting at
most MAX_DEPTH. Everything else raises JsonError, and nothing raises anything else. Lone surrogates, which can only
arrive as escapes, are kept as Python keeps them: whether they are refused is the caller's policy.

The quick path is orjson, which is several times quicker and lenient: of two members with one name it keeps the last,
integers that 64 bits cannot hold become doubles, it nests deeper than we allow, it prints Python types that are not
JSON's, and its numbers and its order of names are not always those of RFC 8785. `load` and `print_proved` return its
work only when a cheap check shows that none of this happened. Each check is exact in one direction: a yes is a proof, a
no only means that the strict path must decide. What orjson refuses by itself (anything that is not RFC 8259, invalid
UTF-8, a byte order mark, lone surrogates, doubles that overflow) goes to the strict path too, which words the refusal
or, for surrogates, asks the caller's policy.

A message carries many items, and a number that no double holds or a value nested too deep is the fault of its own item.
So `parse_marked` gives the value of a whole text with a `JsonError` as a marker in the place of each value that cannot
be taken. What breaks the text itself (its syntax, UTF-8, a name that comes twice, NaN) is still raised. What is nested
deeper than allowed is cut out before anything recursive sees it; inside of it only the brackets are read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple

import orjson

from semel.kernel.json.fragment import JsonFragment, JsonOutline
from semel.kernel.json.number import read_double, read_integer
from semel.kernel.json.text import (
    MAX_DEPTH,
    Json,
    JsonError,
    JsonKind,
    decode,
    depth_of,
    outside_strings,
    refuse_constant,
    refuse_deep,
    shown,
    syntax_error,
    too_deep,
)

_EVERY_DIGIT_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_BELOW_FOUR_BYTES = bytes(range(0xF0))
_LONG_INTEGER = b"0" * 16
_WHOLE_DOUBLE = re.compile(rb"\.0(?![0-9])")


class LoadedJson(NamedTuple):
    """A value equal to what the strict parser gives, and its text as orjson prints it with sorted names."""

    value: Json
    printed: bytes


def load(raw: bytes) -> LoadedJson | None:
    """The value of `raw`, or None when the quick parser cannot be proved right."""
    try:
        refuse_deep(raw)
        value = orjson.loads(raw)
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (JsonError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if _lost_members(raw, printed) or _has_long_integer(raw):
        return None
    return LoadedJson(value, printed)


def print_proved(value: Json) -> bytes | None:
    """The canonical text of a value, or None when the quick printer cannot be proved right.

    orjson prints tuples, dates, NaN and more, and none of them is equal to what its text reads back as.
    """
    try:
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        refuse_deep(printed)
    except (JsonError, orjson.JSONEncodeError):
        return None
    return printed if prints_canonically(printed) and orjson.loads(printed) == value else None


def print_parsed(value: Json) -> bytes | None:
    """The same for a value that a parser has made: it holds JSON's types alone, nested no deeper than allowed."""
    try:
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    return printed if _prints_plainly(printed) or prints_canonically(printed) else None


def prints_canonically(printed: bytes) -> bool:
    """Whether text that orjson printed with sorted names is RFC 8785 under every policy for integers."""
    # orjson sorts names by code point, RFC 8785 by UTF-16 unit: equal when no character is beyond U+FFFF.
    if not printed.isascii() and printed.translate(None, _BELOW_FOUR_BYTES):
        return False
    outside = outside_strings(printed)
    # An `e` that true or false does not account for is an exponent; the two use them for different sizes.
    if outside.count(b"e") != outside.count(b"t") + outside.count(b"f") or b"E" in outside:
        return False
    # An integer of up to 15 digits is a double with all its digits, so every policy prints it alike.
    if _has_digits_in_a_row(outside, len(_LONG_INTEGER)):
        return False
    # A double without a fraction ends in `.0`, which RFC 8785 leaves out.
    return b"." not in outside or _WHOLE_DOUBLE.search(outside) is None


def _prints_plainly(printed: bytes) -> bool:
    """The same, and quicker: for texts of ASCII, inside strings too without what a number could hide behind."""
    if not printed.isascii():
        return False
    zeros = printed.translate(_EVERY_DIGIT_TO_ZERO)
    return b"0." not in zeros and b"0e" not in zeros and _LONG_INTEGER not in zeros


def _lost_members(raw: bytes, printed: bytes) -> bool:
    """Whether a member may have been dropped because its name came twice.

    Each member has one colon outside strings, and each colon inside a string is printed as it was read, so a
    dropped member, with all inside it, leaves fewer colons than were written. Only a colon that was written
    as an escape could make up for one that is missing.
    """
    if b"\\" in raw and (b"\\u003a" in raw or b"\\u003A" in raw):
        return True
    return raw.count(b":") != printed.count(b":")


def _has_long_integer(raw: bytes) -> bool:
    """Whether an integer may have become a double: with up to 18 digits and a sign it fits 64 bits."""
    return _has_digits_in_a_row(raw, 19) and _has_digits_in_a_row(outside_strings(raw), 19)


def _has_digits_in_a_row(text: bytes, count: int) -> bool:
    return b"0" * count in text.translate(_EVERY_DIGIT_TO_ZERO)


def parse(raw: bytes) -> Json:
    """The value of one strict JSON text."""
    loaded = load(raw)
    return parse_slowly(raw) if loaded is None else loaded.value


def parse_slowly(raw: bytes) -> Json:
    """The value of one strict JSON text, by the parser that defines what strict means."""
    refuse_deep(raw)
    text = decode(raw)
    try:
        value: Json = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise syntax_error(error) from None
    return value


def members_once(members: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object of these members; a name that comes twice is refused."""
    value = dict(members)
    if len(value) != len(members):
        raise repeated_name(_repeated(members))
    return value


def repeated_name(name: str) -> JsonError:
    """The refusal of an object in which this name comes twice."""
    return JsonError(JsonKind.DUPLICATE_NAME, f"The name {shown(name)} occurs twice in one object.")


def _repeated(members: list[tuple[str, Json]]) -> str:
    names = Counter(name for name, _ in members)
    return names.most_common(1)[0][0]


_decoder = json.JSONDecoder(
    object_pairs_hook=members_once, parse_float=read_double, parse_int=read_integer, parse_constant=refuse_constant
)


# Strings are passed over as a whole, one without an end too: looking for its end again from each later quote would
# take the square of the text's length.
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_CUT = "6.4e99999"
"""Stands where something too deep was: no double holds it, so it is found again as a mark."""


class Marked(NamedTuple):
    """A parsed text. When it `prints_canonically`, so does every value inside, by the quick printer alone."""

    value: Any
    prints_canonically: bool


def parse_marked(raw: bytes, levels: int) -> Marked:
    """The value of a text of at most `levels` levels, with a `JsonError` for each value that cannot be taken."""
    assert levels >= MAX_DEPTH  # the quick parser takes that much
    loaded = load(raw)
    if loaded is not None:
        return Marked(loaded.value, prints_canonically(loaded.printed))
    text = decode(raw)
    try:
        return Marked(decode_marked(without_deep(text, levels) if depth_of(raw) > levels else text), False)
    except json.JSONDecodeError as error:
        raise syntax_error(error) from None


def decode_marked(text: str) -> Any:
    """The value of a text that is not too deep; `JSONDecodeError` for what is not JSON."""
    return _marking_decoder.decode(text)


def first_mark(value: Any) -> JsonError | None:
    """A mark inside a value; None when it has none."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | JsonOutline):
            waiting.extend(one.values())
            if isinstance(one, JsonOutline) and one.mark is not None:
                return one.mark
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, JsonError):
            return one
        elif isinstance(one, JsonFragment) and one.mark is not None:
            return one.mark
    return None


def without_deep(text: str, levels: int) -> str:
    """The text with a number that no double holds in the place of each value that is nested deeper than this."""
    pieces: list[str] = []
    depth = kept_from = 0
    for found in _STRUCTURE.finditer(text):
        sign = found[0]
        if sign in "[{":
            depth += 1
            if depth == levels + 1:
                pieces += text[kept_from : found.start()], _CUT
        elif sign in "]}":
            if depth == levels + 1:
                kept_from = found.end()
            depth -= 1
    if depth > levels:
        kept_from = len(text)  # what was opened is never closed, and the parser will say so
    return "".join((*pieces, text[kept_from:]))


def _double(token: str) -> float | JsonError:
    try:
        return read_double(token)
    except JsonError as error:
        return too_deep() if token == _CUT else error.with_traceback(None)  # which would keep the frames


def _integer(token: str) -> int | JsonError:
    try:
        return read_integer(token)
    except JsonError as error:
        return error.with_traceback(None)


_marking_decoder = json.JSONDecoder(
    object_pairs_hook=members_once, parse_float=_double, parse_int=_integer, parse_constant=refuse_constant
)
