"""The messages of a JSON text by Python's own parser, one element after the other: the judge of the quick way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from semel.kernel.json.text import JsonError, decode, not_json, refuse_constant, refuse_deep, syntax_error

_WHITE_SPACE = b" \t\n\r"
_SPACES = re.compile(r"[ \t\n\r]+")
_EMPTY_ARRAY = re.compile(r"\[[ \t\n\r]*\]")


def split_one_by_one(raw: bytes) -> list[bytes]:
    """The texts of the elements of an array, or the one text of anything else, without white space around."""
    refuse_deep(raw)
    text = raw.strip(_WHITE_SPACE)
    if text.startswith(b"["):
        return [element.encode() for element in _elements(decode(text))]
    characters = decode(text)
    end = _end_of_value(characters, 0)
    if end != len(characters):
        raise _text_after(end) from None
    return [text]


# Only the end of each value matters, so numbers are read in the one way that never raises at any size.
_scanner = json.JSONDecoder(parse_int=float, parse_float=float, parse_constant=refuse_constant)


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
        raise not_json(mark, "expecting a comma or the end of the array")
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
    return not_json(character, "there is more after the value")
