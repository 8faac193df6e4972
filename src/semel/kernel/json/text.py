"""JSON as text: what can be checked, and cut out of it, without changing a byte; and `JsonError`."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import accumulate
from typing import NoReturn, TypeAlias

_SHOWN_CHARACTERS = 32


class JsonKind(StrEnum):
    """The rule that the input broke."""

    SYNTAX = "syntax"
    UTF8 = "utf8"
    DUPLICATE_NAME = "duplicate_name"
    NOT_A_NUMBER = "not_a_number"
    OVERFLOW = "overflow"
    INTEGER = "integer"
    SURROGATE = "surrogate"
    DEPTH = "depth"
    DIGITS = "digits"


class JsonError(ValueError):
    """The input is not JSON that this server accepts."""

    def __init__(self, kind: JsonKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[JsonError], tuple[JsonKind, str]]:
        return type(self), (self.kind, str(self))


_OF_VALUES = frozenset({JsonKind.OVERFLOW, JsonKind.DIGITS, JsonKind.INTEGER, JsonKind.SURROGATE, JsonKind.DEPTH})


def is_flaw_of_value(error: JsonError) -> bool:
    """Whether a single value is not accepted, while the text around it is valid."""
    return error.kind in _OF_VALUES


def shown(text: str) -> str:
    """A short prefix of the input in plain ASCII, safe to log and to send for any input."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")


MAX_DEPTH = 64

# The type of a parsed text.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level deeper, one level up
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PIECE = 4_096
_SPLIT_BYTES = 64 * 1024
"""A text is split in pieces of this many bytes: the parts of a large text would take 15 times its size."""


def decode(raw: bytes) -> str:
    """The characters of strict UTF-8 without a byte order mark."""
    refuse_byte_order_mark(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error.start) from None


def trimmed(printed: bytes) -> bytes:
    """A copy of a text that orjson has printed and that is kept: the original holds about 4 KiB at least."""
    return b"%b" % printed


def refuse_byte_order_mark(raw: bytes) -> None:
    """Refuse a text that begins with a byte order mark."""
    if raw.startswith(_BYTE_ORDER_MARK):
        raise JsonError(JsonKind.UTF8, "The text begins with a byte order mark; leave it out.")


def not_utf8(byte: int) -> JsonError:
    """The refusal of a text that is not UTF-8 at this byte."""
    return JsonError(JsonKind.UTF8, f"The text is not UTF-8 at byte {byte}.")


def refuse_deep(raw: bytes, levels: int = MAX_DEPTH) -> None:
    """Refuse a text nested deeper than `levels`, whether or not it is JSON."""
    if raw.count(b"[") + raw.count(b"{") <= levels:
        return  # fewer brackets than levels, even with the brackets inside strings
    if _depth(outside_strings(raw), levels) > levels:
        raise too_deep()


def depth_of(raw: bytes) -> int:
    """The depth of a text, whether or not it is JSON."""
    return _depth(outside_strings(raw), len(raw))


def too_deep() -> JsonError:
    """The refusal of a text or value that is nested too deep."""
    return JsonError(JsonKind.DEPTH, f"The value is nested more than {MAX_DEPTH} levels deep.")


def outside_strings(text: bytes) -> bytes:
    """The text without its strings: brackets, commas, colons, numbers, literals and white space.

    Exact for JSON; for other texts, exact up to the first error. A backslash occurs only in strings. Removing pairs of
    backslashes from the left leaves one only where it escapes the next character; removing escaped quotes as well
    leaves exactly the quotes that open and close strings.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if len(text) <= _SPLIT_BYTES:
        return b"".join(text.split(b'"')[::2])
    found: list[bytes] = []
    is_inside = False
    for start in range(0, len(text), _SPLIT_BYTES):
        parts = text[start : start + _SPLIT_BYTES].split(b'"')
        found.append(b"".join(parts[is_inside::2]))
        is_inside ^= len(parts) % 2 == 0
    return b"".join(found)


def without_escapes(text: bytes) -> bytes:
    """The text with escaped backslashes and quotes masked: of the same length, and each quote opens or closes a
    string.
    """
    return text.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in text else text


def brackets_of(outside: bytes) -> bytes:
    """The brackets of a text without strings, in order."""
    return outside.translate(None, _NOT_BRACKETS)


def bracket_steps(outside: bytes) -> memoryview:
    """For each bracket of a text without strings: one level deeper or one level up."""
    return memoryview(outside.translate(_STEPS, _NOT_BRACKETS)).cast("b")


def refuse_constant(token: str) -> NoReturn:
    """Refuse NaN, Infinity and -Infinity, which Python's parser reads but which are not JSON."""
    raise JsonError(JsonKind.NOT_A_NUMBER, f"{token} is not JSON; send null or a string.")


def syntax_error(error: json.JSONDecodeError) -> JsonError:
    """The refusal with the reason of Python's parser; the text itself is not kept, though Python's error carries it."""
    return not_json(error.pos, syntax_reason(error))


def syntax_reason(error: json.JSONDecodeError) -> str:
    """The reason of Python's parser, as a part of a sentence."""
    reason = error.msg.removesuffix(" at").removesuffix(" starting").rstrip(": ")  # some reasons end in mid-sentence
    return reason[:1].lower() + reason[1:]


def _depth(outside: bytes, enough: int) -> int:
    """The depth, or the first depth found above `enough`. Counted in pieces, so that other threads can run in
    between.
    """
    steps = bracket_steps(outside)
    deepest = level = 0
    for start in range(0, len(steps), _PIECE):
        piece = list(accumulate(steps[start : start + _PIECE], initial=level))
        deepest, level = max(deepest, *piece), piece[-1]
        if deepest > enough:
            break
    return deepest


def not_json(character: int, reason: str) -> JsonError:
    """The refusal of a text that is not JSON from this character."""
    return JsonError(JsonKind.SYNTAX, f"The text is not JSON at character {character}: {reason}.")
