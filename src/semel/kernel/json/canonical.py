"""Canonical JSON (RFC 8785): one text for each value, so that equal writes have equal fingerprints.

Promise: two JSON texts have the same canonical bytes if and only if they mean the same value under the caller's
policies. All contracts share this canonicalizer. Two policies name what differs between contracts. Neither has a
default, because a wrong guess would merge two different writes or refuse a valid one:

- `Integers`: an integer that a double cannot hold is refused, printed exactly, or rounded.
- `Surrogates`: a lone surrogate, which UTF-8 cannot carry, is refused or printed as its escape.

There is no white space; names are sorted by UTF-16 code units; strings escape only the quote, the backslash and U+0000
to U+001F; doubles are printed as ECMAScript does; Unicode is not normalised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from json.encoder import encode_basestring

import orjson

from semel.kernel.json.fragment import JsonObject, fragment_of, is_plain
from semel.kernel.json.number import Integers, print_double, print_integer
from semel.kernel.json.parse import load, parse, parse_slowly, print_parsed, print_proved, prints_canonically
from semel.kernel.json.text import MAX_DEPTH, Json, JsonError, JsonKind, too_deep

__all__ = [
    "MAX_DEPTH",
    "Integers",
    "Json",
    "JsonError",
    "JsonKind",
    "Surrogates",
    "canonical",
    "canonical_outlined",
    "canonical_parsed",
    "canonicalize",
    "parse",
]

_LITERALS = {None: b"null", True: b"true", False: b"false"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Surrogates(Enum):
    """The policy for lone surrogates."""

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
    """The canonical bytes of a parsed value; TypeError for a value that is not JSON."""
    return print_proved(value) or canonical_slowly(value, integers, surrogates)


def canonical_parsed(value: Json, integers: Integers, surrogates: Surrogates) -> bytes:
    """As `canonical`, for a value that one of our parsers made: the check that it is JSON is skipped."""
    return print_parsed(value) or canonical_slowly(value, integers, surrogates)


def canonical_outlined(value: Json | JsonObject, integers: Integers, surrogates: Surrogates) -> bytes:
    """As `canonical_parsed`, for an object of which some members or all are kept as text."""
    fragment = fragment_of(value)
    if fragment is not None:
        if fragment.flaw is not None:
            raise fragment.flaw
        return fragment.canonical
    if not isinstance(value, dict) or is_plain(value):
        return canonical_parsed(value, integers, surrogates)  # type: ignore[arg-type]
    members = [
        b"%s:%s" % tuple(canonical_outlined(part, integers, surrogates) for part in (name, value[name]))
        for name in _sorted(value)
    ]
    return b"{%s}" % b",".join(members)


def canonical_slowly(value: Json, integers: Integers, surrogates: Surrogates) -> bytes:
    """The same bytes, by the reference printer that defines the canonical form."""
    return _Printer(integers, surrogates).text(value, MAX_DEPTH)


class _Printer:
    """Prints values as bytes from the start: one wide character makes a Python string four times as large as
    its bytes.
    """

    def __init__(self, integers: Integers, surrogates: Surrogates) -> None:
        self._integers = integers
        self._surrogates = surrogates

    def text(self, value: Json, levels_left: int) -> bytes:
        """The text of a value that may be nested at most `levels_left` deep."""
        if isinstance(value, str):
            return self._string(value)
        if value is None or value is True or value is False:
            return _LITERALS[value]
        if isinstance(value, int):
            return print_integer(int(value), self._integers).encode()
        if isinstance(value, float):
            return print_double(float(value)).encode()
        if isinstance(value, dict):
            return self._object(value, _one_level_less(levels_left))
        if isinstance(value, list):
            return self._array(value, _one_level_less(levels_left))
        raise TypeError(f"{type(value).__name__} is not a JSON type")

    def _array(self, value: list[Json], levels_left: int) -> bytes:
        return b"[%s]" % b",".join([self.text(element, levels_left) for element in value])

    def _object(self, value: dict[str, Json], levels_left: int) -> bytes:
        members = [b"%s:%s" % (self._string(name), self.text(value[name], levels_left)) for name in _sorted(value)]
        return b"{%s}" % b",".join(members)

    def _string(self, value: str) -> bytes:
        try:
            return orjson.dumps(value)  # orjson and Python escape exactly what RFC 8785 escapes, in the same spelling
        except orjson.JSONEncodeError:  # a lone surrogate
            return _encode(encode_basestring(value), self._surrogates)


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
    # Two adjacent halves are one character: our parser joins them, but the value may come from other code.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(_escape, whole).encode("utf-8")


def _escape(half: re.Match[str]) -> str:
    return f"\\u{ord(half[0]):04x}"
