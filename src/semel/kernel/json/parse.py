"""Strict JSON: one text is parsed into one Python value, without loss.

Promise: exactly I-JSON is accepted: UTF-8 without a byte order mark, nothing after the value, no name twice in one
object, no NaN or Infinity, no double that overflows, integers of at most 4,300 digits and kept exactly, nesting at most
MAX_DEPTH. Everything else raises JsonError, and no other exception is raised. Lone surrogates, which can only arrive as
escapes, are kept as Python keeps them: the caller's policy says whether they are refused.

The quick path uses orjson, which is several times faster and more lenient: of two members with one name it keeps the
last, integers beyond 64 bits become doubles, it accepts deeper nesting, it prints Python types that are not JSON, and
its numbers and its order of names are not always those of RFC 8785. `load` and `print_proved` return the result of
orjson only if a cheap check shows that none of this happened. A check that passes is a proof; a check that fails means
only that the strict path has to decide. What orjson refuses itself (anything that is not RFC 8259, invalid UTF-8, a
byte order mark, lone surrogates, doubles that overflow) goes to the strict path too, which words the refusal or, for
surrogates, applies the caller's policy.

A message carries many items, and a number that no double holds or a value nested too deep is the fault of one item.
`parse_marked` therefore returns the value of the whole text with a `JsonError` as a marker in place of each value that
is not accepted. Errors of the text itself (syntax, UTF-8, a repeated name, NaN) are still raised. Values nested deeper
than allowed are cut out before a recursive parser runs; inside them only the brackets are checked.
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
    """A value equal to that of the strict parser, and its text as orjson prints it with sorted names."""

    value: Json
    printed: bytes


def load(raw: bytes) -> LoadedJson | None:
    """The value of `raw`, or None if the result of orjson cannot be proved equal to that of the strict parser."""
    try:
        refuse_deep(raw)
        value = orjson.loads(raw)
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (JsonError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if lost_members(raw, printed) or _has_long_integer(raw):
        return None
    return LoadedJson(value, printed)


def print_proved(value: Json) -> bytes | None:
    """The canonical text of a value, or None if the output of orjson cannot be proved canonical.

    orjson prints tuples, dates, NaN and more; none of them is equal to the value that its text is parsed into.
    """
    try:
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        refuse_deep(printed)
    except (JsonError, orjson.JSONEncodeError):
        return None
    return printed if prints_canonically(printed) and orjson.loads(printed) == value else None


def print_parsed(value: Json) -> bytes | None:
    """As `print_proved`, for a value that a parser made: it has only JSON types and is nested no deeper than
    allowed.
    """
    try:
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    return printed if _prints_plainly(printed) or prints_canonically(printed) else None


def prints_canonically(printed: bytes) -> bool:
    """Whether text that orjson printed with sorted names is RFC 8785 under every policy for integers."""
    # orjson sorts names by code point, RFC 8785 by UTF-16 unit: both agree if no character is beyond U+FFFF.
    if not printed.isascii() and printed.translate(None, _BELOW_FOUR_BYTES):
        return False
    outside = outside_strings(printed)
    # An `e` that is not part of true or false is an exponent; orjson and RFC 8785 use exponents for different sizes.
    if outside.count(b"e") != outside.count(b"t") + outside.count(b"f") or b"E" in outside:
        return False
    # An integer of up to 15 digits is exact as a double, so every policy prints it alike.
    if _has_digits_in_a_row(outside, len(_LONG_INTEGER)):
        return False
    # A double without a fraction ends in `.0`, which RFC 8785 leaves out.
    return b"." not in outside or _WHOLE_DOUBLE.search(outside) is None


def _prints_plainly(printed: bytes) -> bool:
    """As `prints_canonically` but faster: only for ASCII texts whose strings contain nothing that looks like a
    number.
    """
    if not printed.isascii():
        return False
    zeros = printed.translate(_EVERY_DIGIT_TO_ZERO)
    return b"0." not in zeros and b"0e" not in zeros and _LONG_INTEGER not in zeros


def lost_members(raw: bytes, printed: bytes) -> bool:
    """Whether a member may have been dropped because its name occurs twice.

    Each member has one colon outside strings, and each colon inside a string is printed as it was read. A dropped
    member, with its value, therefore leaves fewer colons than were written. Only a colon written as an escape could
    make up for a missing one.
    """
    if b"\\" in raw and (b"\\u003a" in raw or b"\\u003A" in raw):
        return True
    return raw.count(b":") != printed.count(b":")


def _has_long_integer(raw: bytes) -> bool:
    """Whether an integer may have become a double: one of up to 18 digits and a sign fits into 64 bits."""
    return _has_digits_in_a_row(raw, 19) and _has_digits_in_a_row(outside_strings(raw), 19)


def _has_digits_in_a_row(text: bytes, count: int) -> bool:
    return b"0" * count in text.translate(_EVERY_DIGIT_TO_ZERO)


def parse(raw: bytes) -> Json:
    """The value of one strict JSON text."""
    loaded = load(raw)
    return parse_slowly(raw) if loaded is None else loaded.value


def parse_slowly(raw: bytes) -> Json:
    """The value of one strict JSON text, by the reference parser that defines what is strict."""
    refuse_deep(raw)
    text = decode(raw)
    try:
        value: Json = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise syntax_error(error) from None
    return value


def members_once(members: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object of these members; a name that occurs twice is refused."""
    value = dict(members)
    if len(value) != len(members):
        raise repeated_name(_repeated(members))
    return value


def repeated_name(name: str) -> JsonError:
    """The refusal of an object in which this name occurs twice."""
    return JsonError(JsonKind.DUPLICATE_NAME, f"The name {shown(name)} occurs twice in one object.")


def _repeated(members: list[tuple[str, Json]]) -> str:
    names = Counter(name for name, _ in members)
    return names.most_common(1)[0][0]


_decoder = json.JSONDecoder(
    object_pairs_hook=members_once, parse_float=read_double, parse_int=read_integer, parse_constant=refuse_constant
)


# Match each string as a whole, also one without an end: searching for its end again from each later quote would take
# quadratic time.
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_CUT = "6.4e99999"
"""Replaces a value that is nested too deep: no double holds this number, so the parser turns it into a marker."""


class Marked(NamedTuple):
    """A parsed text. If it `prints_canonically`, orjson alone prints every value inside in canonical form."""

    value: Any
    prints_canonically: bool


def parse_marked(raw: bytes, levels: int) -> Marked:
    """The value of a text of at most `levels` levels, with a `JsonError` in place of each value that is not
    accepted.
    """
    assert levels >= MAX_DEPTH  # the quick parser accepts that depth
    loaded = load(raw)
    if loaded is not None:
        return Marked(loaded.value, prints_canonically(loaded.printed))
    text = decode(raw)
    try:
        return Marked(decode_marked(without_deep(text, levels) if depth_of(raw) > levels else text), False)
    except json.JSONDecodeError as error:
        raise syntax_error(error) from None


def decode_marked(text: str) -> Any:
    """The value of a text that is not too deep; `JSONDecodeError` if it is not JSON."""
    return _marking_decoder.decode(text)


def first_mark(value: Any) -> JsonError | None:
    """The first error marker inside a value; None without one."""
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
    """The text with each value that is nested deeper than this replaced by a number that no double holds."""
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
        kept_from = len(text)  # the container is never closed; the parser will report it
    return "".join((*pieces, text[kept_from:]))


def _double(token: str) -> float | JsonError:
    try:
        return read_double(token)
    except JsonError as error:
        return too_deep() if token == _CUT else error.with_traceback(None)  # the traceback would keep the frames alive


def _integer(token: str) -> int | JsonError:
    try:
        return read_integer(token)
    except JsonError as error:
        return error.with_traceback(None)


_marking_decoder = json.JSONDecoder(
    object_pairs_hook=members_once, parse_float=_double, parse_int=_integer, parse_constant=refuse_constant
)
