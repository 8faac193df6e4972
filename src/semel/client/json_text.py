"""JSON objects and arrays split into the texts of their members and elements, so that no number changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_SPACE = re.compile(r"[ \t\r\n]*")

_LINE_ENDS = str.maketrans("\r\n", "  ")
"""A line break inside a string would be an escape, so this changes only white space."""

# Only the end of a value matters, so numbers of any size are accepted.
scanner = json.JSONDecoder(parse_int=float, parse_float=float)


def members(text: str) -> dict[str, str]:
    """The texts of an object's members by name. Raises ValueError if it is not an object."""
    found: dict[str, str] = {}
    at = _past_sign(text, 0, "{")
    while text[at : at + 1] != "}":
        if found:
            at = _past_sign(text, at, ",")
        name, at = scanner.raw_decode(text, at)
        start = _past_sign(text, _skip(text, at), ":")
        _, end = scanner.raw_decode(text, start)
        found[name] = text[start:end]
        at = _skip(text, end)
    return found


def elements(text: str) -> Iterator[str]:
    """The texts of an array's elements, one line each. Raises ValueError if it is not an array."""
    at = _past_sign(text, 0, "[")
    while text[at : at + 1] != "]":
        _, end = scanner.raw_decode(text, at)
        yield text[at:end].translate(_LINE_ENDS)
        at = _skip(text, end)
        if text[at : at + 1] != "]":
            at = _past_sign(text, at, ",")


def _past_sign(text: str, at: int, sign: str) -> int:
    """The position after a sign and the white space around it."""
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign} was expected")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
