"""Strict JSON: bytes in, one Python value out, and nothing lost on the way.

Promise: what is accepted is one I-JSON text: UTF-8 without a byte order mark, nothing after the value, no
name twice in one object, no NaN or Infinity, no double that overflows, integers of at most 4,300 digits and
kept exactly, nesting at most MAX_DEPTH. Everything else raises JsonError, and nothing raises anything else.
Lone surrogates, which can only arrive as escapes, are kept as Python keeps them: whether they are refused is
the caller's policy.
"""

from __future__ import annotations

import json
from collections import Counter

from semel.kernel.json_error import JsonError, JsonKind, shown
from semel.kernel.json_number import read_double, read_integer
from semel.kernel.json_proof import load
from semel.kernel.json_text import Json, decode, refuse_constant, refuse_deep, syntax_error


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
