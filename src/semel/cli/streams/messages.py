"""JSON messages as lines: each message's own text, byte for byte but for line ends between its tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import click

_BETWEEN = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_LINE_ENDS = str.maketrans("\r\n", "  ")

# Only where a value ends matters, so numbers are read in the way that takes any size.
_scanner = json.JSONDecoder(parse_int=float, parse_float=float)


def messages(array: bytes) -> Iterator[str]:
    """The texts of an array's elements, each on one line."""
    try:
        for start, end, text in _elements(array.decode("utf-8")):
            # A line end inside a string would be an escape, so this changes white space alone.
            yield text[start:end].translate(_LINE_ENDS)
    except ValueError:
        raise click.ClickException("The server sent content that is not a JSON array.") from None


def _elements(text: str) -> Iterator[tuple[int, int, str]]:
    at = _past(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        _, end = _scanner.raw_decode(text, at)
        yield at, end, text
        at = _past(text, end)


def _past(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()
