"""The quick parser and printer, and the proof that for this document they did what the strict ones do.

orjson is several times quicker than the strict path, and lenient: of two members with one name it keeps the
last, integers that 64 bits cannot hold become doubles, it nests deeper than we allow, it prints Python types
that are not JSON's, and its numbers and its order of names are not always those of RFC 8785. The functions
here return its work only when a cheap check shows that none of this happened. Each check is exact in one
direction: a yes is a proof, a no only means that the strict path must decide.

What orjson refuses by itself: anything that is not RFC 8259, invalid UTF-8, a byte order mark, lone
surrogates, doubles that overflow. Those go to the strict path too, which words the refusal or, for
surrogates, asks the caller's policy.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import orjson

from semel.kernel.json_error import JsonError
from semel.kernel.json_text import Json, outside_strings, refuse_deep

_EVERY_DIGIT_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_BELOW_FOUR_BYTES = bytes(range(0xF0))
_LONG_INTEGER = b"0" * 16
_WHOLE_DOUBLE = re.compile(rb"\.0(?![0-9])")


class Loaded(NamedTuple):
    """A value equal to what the strict parser gives, and its text as orjson prints it with sorted names."""

    value: Json
    printed: bytes


def load(raw: bytes) -> Loaded | None:
    """The value of `raw`, or None when the quick parser cannot be proved right."""
    try:
        refuse_deep(raw)
        value = orjson.loads(raw)
        printed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (JsonError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if _lost_members(raw, printed) or _has_long_integer(raw):
        return None
    return Loaded(value, printed)


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
