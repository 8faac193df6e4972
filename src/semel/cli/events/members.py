"""The members of a JSON object, each with its own text byte for byte, so that no number changes."""

from __future__ import annotations

import json
import re

_SPACE = re.compile(r"[ \t\r\n]*")

# Only where a value ends matters, so numbers are read in the way that takes any size.
_scanner = json.JSONDecoder(parse_int=float, parse_float=float)


def members(text: str) -> dict[str, str]:
    """The texts of an object's members by their names; a ValueError for what is no object."""
    found: dict[str, str] = {}
    at = _past(text, 0, "{")
    while text[at : at + 1] != "}":
        if found:
            at = _past(text, at, ",")
        name, at = _scanner.raw_decode(text, at)
        start = _past(text, _skip(text, at), ":")
        _, end = _scanner.raw_decode(text, start)
        found[name] = text[start:end]
        at = _skip(text, end)
    return found


def _past(text: str, at: int, sign: str) -> int:
    """Behind a sign, and the white space on both of its sides."""
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign} was expected")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
