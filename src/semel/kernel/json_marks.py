"""Strict JSON in which one bad value does not spoil the rest of the text.

A message carries many items, and a number that no double holds or a value nested too deep is the fault of its own item.
So `parse_marked` gives the value of a whole text and leaves a `JsonError` in the place of each value that cannot be
taken. What breaks the text itself (its syntax, UTF-8, a name that comes twice, NaN) is still raised.

What is nested deeper than allowed is cut out before anything recursive sees it; inside of what is cut out only the
brackets are looked at.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from semel.kernel.json_error import JsonError
from semel.kernel.json_fragment import JsonFragment, JsonOutline
from semel.kernel.json_number import read_double, read_integer
from semel.kernel.json_parse import members_once
from semel.kernel.json_proof import load, prints_canonically
from semel.kernel.json_text import MAX_DEPTH, decode, depth_of, refuse_constant, syntax_error, too_deep

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
    return _decoder.decode(text)


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


_decoder = json.JSONDecoder(
    object_pairs_hook=members_once, parse_float=_double, parse_int=_integer, parse_constant=refuse_constant
)
