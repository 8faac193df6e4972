"""JSON as text: what can be said of it, and cut out of it, without changing a byte.

Promise: `split_messages` accepts exactly the texts of RFC 8259 (UTF-8, no byte order mark) nested at most
MAX_DEPTH deep, and every message it returns is, byte for byte, what the client wrote. Numbers of any size,
duplicate names and escapes of lone surrogates are text like any other here.

Depth is measured on the text before anything recursive sees it, so no input can exhaust the stack. All work
is linear in the length of the input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import NoReturn, TypeAlias

import orjson

from semel.kernel.json_error import JsonError, JsonKind

MAX_DEPTH = 64

# What a text means once it is parsed.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_WHITE_SPACE = b" \t\n\r"
_SPACES = re.compile(r"[ \t\n\r]+")
_EMPTY_ARRAY = re.compile(r"\[[ \t\n\r]*\]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level up, one level down
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PIECE = 4_096


def split_messages(raw: bytes) -> list[bytes]:
    """The texts of the elements of an array, or the one text of anything else, without white space around."""
    refuse_deep(raw)
    text = raw.strip(_WHITE_SPACE)
    if text.startswith(b"["):
        return [element.encode() for element in _elements(decode(text))]
    _refuse_broken(text)
    return [text]


def decode(raw: bytes) -> str:
    """The characters of strict UTF-8 without a byte order mark."""
    if raw.startswith(_BYTE_ORDER_MARK):
        raise JsonError(JsonKind.UTF8, "The text begins with a byte order mark; leave it out.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(JsonKind.UTF8, f"The text is not UTF-8 at byte {error.start}.") from None


def refuse_deep(raw: bytes) -> None:
    """Refuse a text nested deeper than MAX_DEPTH, whether or not it is JSON."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return  # fewer brackets than levels, even counting those inside strings
    if _depth(outside_strings(raw), MAX_DEPTH) > MAX_DEPTH:
        raise too_deep()


def depth_of(raw: bytes) -> int:
    """How deep a text is nested, whether or not it is JSON."""
    return _depth(outside_strings(raw), len(raw))


def too_deep() -> JsonError:
    """The refusal of deep nesting, in a text or in a value."""
    return JsonError(JsonKind.DEPTH, f"The value is nested more than {MAX_DEPTH} levels deep.")


def outside_strings(text: bytes) -> bytes:
    """The text without its strings: brackets, commas, colons, numbers, literals and white space.

    Exact for JSON, and for a text that stops being JSON somewhere, exact up to there. A backslash occurs only
    in strings. Dropping pairs of them from the left leaves one only where it escapes the character after it;
    dropping those before a quote as well leaves exactly the quotes that open and close strings.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(text.split(b'"')[::2])


def refuse_constant(token: str) -> NoReturn:
    """NaN, Infinity and -Infinity are not JSON, though Python's parser reads them."""
    raise JsonError(JsonKind.NOT_A_NUMBER, f"{token} is not JSON; send null or a string.")


def syntax_error(error: json.JSONDecodeError) -> JsonError:
    """What Python's parser says of a text, without the text itself, which its error carries."""
    reason = error.msg.removesuffix(" at").removesuffix(" starting").rstrip(": ")  # some end in mid-sentence
    return _broken(reason[:1].lower() + reason[1:], error.pos)


def _depth(outside: bytes, enough: int) -> int:
    """The depth, or the first depth found above `enough`. In pieces, so that other threads get their turn between."""
    steps = memoryview(outside.translate(_STEPS, _NOT_BRACKETS)).cast("b")
    deepest = level = 0
    for start in range(0, len(steps), _PIECE):
        piece = list(accumulate(steps[start : start + _PIECE], initial=level))
        deepest, level = max(deepest, *piece), piece[-1]
        if deepest > enough:
            break
    return deepest


# Only the end of each value matters, so numbers are read in the one way that never raises at any size.
_scanner = json.JSONDecoder(parse_int=float, parse_float=float, parse_constant=refuse_constant)


def _refuse_broken(text: bytes) -> None:
    try:
        orjson.loads(text)  # quicker, and takes nothing that is not JSON
    except orjson.JSONDecodeError:  # but it refuses numbers that overflow and lone surrogates
        characters = decode(text)
        end = _end_of_value(characters, 0)
        if end != len(characters):
            raise _text_after(end) from None


def _elements(text: str) -> Iterator[str]:
    """The texts of an array's elements; `text` begins with its bracket and has no white space at its ends."""
    if _EMPTY_ARRAY.fullmatch(text):
        return
    mark = 0
    while mark == 0 or text[mark : mark + 1] == ",":
        start = _past_white_space(text, mark + 1)
        end = _end_of_value(text, start)
        yield text[start:end]
        mark = _past_white_space(text, end)
    if text[mark : mark + 1] != "]":
        raise _broken("expecting a comma or the end of the array", mark)
    if mark + 1 != len(text):
        raise _text_after(mark + 1)


def _past_white_space(text: str, at: int) -> int:
    if text[at : at + 1] > " ":
        return at  # the usual case, without the cost of a search
    found = _SPACES.match(text, at)
    return found.end() if found else at


def _end_of_value(text: str, start: int) -> int:
    try:
        return _scanner.raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        raise syntax_error(error) from None


def _text_after(character: int) -> JsonError:
    return _broken("there is more after the value", character)


def _broken(reason: str, character: int) -> JsonError:
    return JsonError(JsonKind.SYNTAX, f"The text is not JSON at character {character}: {reason}.")
