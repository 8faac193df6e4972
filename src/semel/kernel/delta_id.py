"""The id of a delta: the hash of its content, so that the same change has the same id wherever it is sent.

The hashed text is the canonical JSON of author, columns, time, row and table. Operation and everything else a delta
carries stay out. Strings, values and columns travel through the server as their canonical texts, made once here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from types import NoneType

import orjson

from semel.kernel.canonical import Integers, Json, Surrogates, canonical_parsed
from semel.kernel.json_number import print_double

_SAFE = 2**53
_ALWAYS = frozenset((str, bool, NoneType))
"""orjson prints these as they must be, whatever they are; half a surrogate pair it refuses."""


def json_text(value: Json) -> str:
    """The canonical JSON of a parsed value; halves of surrogate pairs are escaped, so any text can be encoded."""
    kind = type(value)
    if kind in _ALWAYS or (kind is int and -_SAFE <= value <= _SAFE):  # type: ignore[operator]
        try:
            return orjson.dumps(value).decode()
        except orjson.JSONEncodeError:
            pass
    elif kind is float:
        return print_double(value)  # type: ignore[arg-type]
    return canonical_parsed(value, Integers.ROUND, Surrogates.ESCAPE).decode()


def plain_column(name: str, value: str) -> str:
    """The canonical JSON of a column that is a name and a value, by the text of the value."""
    return f'{{"column":"{name}","value":{value}}}'


def columns_text(columns: Sequence[str]) -> str:
    """The canonical JSON of all columns, from the text of each."""
    return f"[{','.join(columns)}]"


def plain_column_bytes(name: str, value: str) -> bytes:
    """The same in UTF-8: a single wide character makes a text four times as large as its bytes."""
    return b'{"column":"%b","value":%b}' % (name.encode(), value.encode())


def columns_bytes(columns: Iterable[bytes]) -> bytes:
    """The canonical JSON of all columns in UTF-8, from that of each."""
    return b"[%b]" % b",".join(columns)


def delta_id(client: str, columns: str | bytes, hlc: int, row: str, table: str) -> bytes:
    """The 32 bytes that name a delta; author, columns and row are canonical texts, the table is an identifier."""
    hashed = sha256(f'{{"clientId":{client},"columns":'.encode())
    hashed.update(columns if isinstance(columns, bytes) else columns.encode())
    hashed.update(f',"hlc":"{hlc}","rowId":{row},"table":"{table}"}}'.encode())
    return hashed.digest()
