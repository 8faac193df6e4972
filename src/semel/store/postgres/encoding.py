"""Values in PostgreSQL's binary form, which the server reads without parsing.

A batch sends each column of a table as one array, so a statement costs the same whatever the number of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain

_BYTEA, _INT8 = 17, 20
_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i").pack
_NUMBER = struct.Struct(">q").pack
_NOTHING = _LENGTH(-1)


def number(value: int) -> bytes:
    """One int8."""
    return _NUMBER(value)


def bytes_array(values: Sequence[bytes | None]) -> bytes:
    """A bytea[]; None is NULL."""
    parts: list[bytes] = [_header(_BYTEA, len(values), None in values)]
    for value in values:
        if value is None:
            parts.append(_NOTHING)
        else:
            parts.append(_LENGTH(len(value)))
            parts.append(value)
    return b"".join(parts)


def number_array(values: Sequence[int | None]) -> bytes:
    """An int8[]; None is NULL."""
    if None in values:
        items = b"".join(_NOTHING if value is None else struct.pack(">iq", 8, value) for value in values)
        return _header(_INT8, len(values), True) + items
    flat = chain.from_iterable((8, value) for value in values)
    return _header(_INT8, len(values), False) + struct.pack(">" + "iq" * len(values), *flat)


def _header(kind: int, count: int, has_nothing: bool) -> bytes:
    return _HEADER.pack(1, has_nothing, kind, count, 1)
