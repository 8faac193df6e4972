"""Column types of a flat file, inferred from the values.

Values come as canonical JSON texts. A column whose values are of one kind gets that kind; whole numbers and others
together are doubles, which every number of deltas is. A whole number is one up to 2**53: beyond it the digits are the
shortest that name the double, and not its own, so an integer of those digits would be another number. Anything else,
objects, arrays, and columns of several kinds, becomes JSON text, so that nothing is bent. An absent value and a null
are the same here: nothing.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import NamedTuple

LARGEST_INTEGER = 2**53
NULL = "null"

_HALF = re.compile("[\ud800-\udfff]")


class Kind(Enum):
    """A kind of column."""

    NOTHING = "nothing"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    UNSIGNED = "unsigned"
    """Positions and times: up to 2**64 - 1. No value of a client's is one."""
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"


class Field(NamedTuple):
    """One column of a flat file."""

    name: str
    kind: Kind


_FIRST = {"n": Kind.NOTHING, "t": Kind.BOOLEAN, "f": Kind.BOOLEAN, '"': Kind.STRING, "{": Kind.JSON, "[": Kind.JSON}


def kind_of(text: str) -> Kind:
    """The kind of one value."""
    found = _FIRST.get(text[0])
    if found is not None:
        return found
    if not text.removeprefix("-").isdigit():
        return Kind.DOUBLE
    return Kind.INTEGER if abs(int(text)) <= LARGEST_INTEGER else Kind.DOUBLE


def joined(one: Kind, other: Kind) -> Kind:
    """The kind of a column that has values of both."""
    if one is other or other is Kind.NOTHING:
        return one
    if one is Kind.NOTHING:
        return other
    return Kind.DOUBLE if {one, other} == {Kind.INTEGER, Kind.DOUBLE} else Kind.JSON


def string_of(text: str) -> str:
    """The string behind its text; half a surrogate pair, which no file can hold, stays as its escape."""
    if "\\" not in text:
        return text[1:-1]
    value: str = json.loads(text)
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", value)
