"""Binary encoding of values for PostgreSQL, which the server reads without parsing.

A batch sends each column of a table as one array, so a statement costs the same whatever the number of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_BYTEA, _INT8 = 17, 20
_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i").pack
_NUMBER = struct.Struct(">q").pack
_EIGHT = struct.Struct(">iq").pack
_NOTHING = _LENGTH(-1)


def number(value: int) -> bytes:
    """One int8."""
    return _NUMBER(value)


def bytes_array(values: Sequence[bytes | None]) -> bytes:
    """A bytea[]; None is NULL."""
    header = _HEADER.pack(1, None in values, _BYTEA, len(values), 1)
    sizes = {-1 if value is None else len(value) for value in values}
    if len(sizes) == 1 and None not in values:
        # Ids, keys and hashes of one column are mostly of one size: then there is one length to write between them.
        length = _LENGTH(sizes.pop())
        return b"".join((header, length, length.join(values)))  # type: ignore[arg-type]
    return header + b"".join([_NOTHING if value is None else _LENGTH(len(value)) + value for value in values])


def number_array(values: Sequence[int | None]) -> bytes:
    """An int8[]; None is NULL."""
    count = len(values)
    header = _HEADER.pack(1, None in values, _INT8, count, 1)
    if count and values.count(values[0]) == count:
        return header + _item(values[0]) * count
    return header + b"".join(map(_item, values))


def _item(value: int | None) -> bytes:
    return _NOTHING if value is None else _EIGHT(8, value)
