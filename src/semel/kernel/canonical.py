"""Canonical JSON (RFC 8785): one text for each value, so that equal writes have equal fingerprints.

Promise: two JSON texts have the same canonical bytes if and only if they mean the same value under the
caller's policies. There is one canonicalizer for every contract. What the contracts disagree on is named by
two policies, and neither has a default, because a wrong guess would merge two different writes or refuse a
good one:

- `Integers`: an integer that a double cannot hold is refused, printed exactly, or rounded.
- `Surrogates`: half of a surrogate pair, which UTF-8 cannot carry, is refused or printed as its escape.

No white space; names sorted by UTF-16 code units; strings raw but for the quote, the backslash and U+0000 to
U+001F; doubles as ECMAScript prints them; no Unicode normalisation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from json.encoder import encode_basestring

from semel.kernel.json_error import JsonError, JsonKind
from semel.kernel.json_number import Integers, print_double, print_integer
from semel.kernel.json_parse import parse, parse_slowly
from semel.kernel.json_proof import load, print_parsed, print_proved, prints_canonically
from semel.kernel.json_text import MAX_DEPTH, Json, too_deep

__all__ = [
    "MAX_DEPTH",
    "Integers",
    "Json",
    "JsonError",
    "JsonKind",
    "Surrogates",
    "canonical",
    "canonical_parsed",
    "canonicalize",
    "parse",
]

_LITERALS = {None: "null", True: "true", False: "false"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Surrogates(Enum):
    """What becomes of half a surrogate pair."""

    REFUSE = "refuse"
    ESCAPE = "escape"


def canonicalize(raw: bytes, integers: Integers, surrogates: Surrogates) -> bytes:
    """The canonical bytes of one strict JSON text."""
    loaded = load(raw)
    if loaded is None:
        return canonical_slowly(parse_slowly(raw), integers, surrogates)
    if prints_canonically(loaded.printed):
        return loaded.printed
    return canonical_slowly(loaded.value, integers, surrogates)


def canonical(value: Json, integers: Integers, surrogates: Surrogates) -> bytes:
    """The canonical bytes of a parsed value; TypeError for anything that is not one."""
    return print_proved(value) or canonical_slowly(value, integers, surrogates)


def canonical_parsed(value: Json, integers: Integers, surrogates: Surrogates) -> bytes:
    """The same for a value that came out of a parser of ours, which spares the proof that it is JSON."""
    return print_parsed(value) or canonical_slowly(value, integers, surrogates)


def canonical_slowly(value: Json, integers: Integers, surrogates: Surrogates) -> bytes:
    """The same bytes, by the printer that defines what canonical means."""
    return _encode(_text(value, integers, MAX_DEPTH), surrogates)


def _text(value: Json, integers: Integers, levels_left: int) -> str:
    if isinstance(value, str):
        return encode_basestring(value)  # Python escapes exactly what RFC 8785 escapes, and spells it alike
    if value is None or value is True or value is False:
        return _LITERALS[value]
    if isinstance(value, int):
        return print_integer(int(value), integers)
    if isinstance(value, float):
        return print_double(float(value))
    if isinstance(value, dict):
        return _object_text(value, integers, _one_level_less(levels_left))
    if isinstance(value, list):
        return _array_text(value, integers, _one_level_less(levels_left))
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _array_text(value: list[Json], integers: Integers, levels_left: int) -> str:
    elements = [_text(element, integers, levels_left) for element in value]
    return f"[{','.join(elements)}]"


def _object_text(value: dict[str, Json], integers: Integers, levels_left: int) -> str:
    members = [f"{encode_basestring(name)}:{_text(value[name], integers, levels_left)}" for name in _sorted(value)]
    return f"{{{','.join(members)}}}"


def _sorted(names: Iterable[str]) -> list[str]:
    if "".join(names).isascii():  # raises TypeError for a name that is not a string
        return sorted(names)
    return sorted(names, key=_utf16)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _one_level_less(levels_left: int) -> int:
    if levels_left == 0:
        raise too_deep()
    return levels_left - 1


def _encode(text: str, surrogates: Surrogates) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        if surrogates is Surrogates.REFUSE:
            raise JsonError(
                JsonKind.SURROGATE, "A string holds half of a surrogate pair; send the whole character."
            ) from None
    # Two halves that stand together are one character: the parser joins them, other code may not have.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(_escape, whole).encode("utf-8")


def _escape(half: re.Match[str]) -> str:
    return f"\\u{ord(half[0]):04x}"
