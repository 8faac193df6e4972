"""The identity of a delta: the hash of its content, so that the same change has the same name wherever it is sent.

The hashed text is the canonical JSON of author, columns, time, row and table. Operation and everything else a delta
carries stay out. Strings, values and columns travel through the server as their canonical texts, made once here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from types import NoneType
from typing import Any

import orjson

from semel.kernel.canonical import Integers, Json, Surrogates, canonical_parsed
from semel.kernel.json_number import print_double
from semel.kernel.json_proof import prints_plainly

_SAFE = 2**53
_ALWAYS = frozenset((str, bool, NoneType))
"""orjson prints these as they must be, whatever they are; half a surrogate pair it refuses."""
_TREES = frozenset((dict, list))


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


def column_text(column: dict[str, Json], value: str) -> str:
    """The canonical JSON of one column as it was sent; `value` is the text of its value."""
    if len(column) == 2 and "value" in column:
        return f'{{"column":{json_text(column["column"])},"value":{value}}}'
    return json_text(column)


def sent_columns_text(columns: Sequence[dict[str, Json]]) -> str:
    """The canonical JSON of all columns as they were sent."""
    if _are_plain(columns):
        try:
            return orjson.dumps(columns, option=orjson.OPT_SORT_KEYS).decode()
        except orjson.JSONEncodeError:
            pass
    return columns_text([column_text(column, json_text(column.get("value"))) for column in columns])


def content_id(delta: dict[str, Any]) -> bytes:
    """The id that a delta must have: of a parsed one, whose shape has been looked at.

    The same as `delta_id` of its texts; where the quick printer makes no other text, all of it is printed at once.
    """
    client, columns, hlc = delta["clientId"], delta["columns"], delta["hlc"]
    row, table = delta["rowId"], delta["table"]
    if _are_plain(columns):
        hashed = {"clientId": client, "columns": columns, "hlc": hlc, "rowId": row, "table": table}
        try:
            return sha256(orjson.dumps(hashed, option=orjson.OPT_SORT_KEYS)).digest()
        except orjson.JSONEncodeError:
            pass
    return delta_id(json_text(client), sent_columns_text(columns), int(hlc), json_text(row), table)


def _are_plain(columns: Sequence[dict[str, Json]]) -> bool:
    """Whether orjson prints columns as they must be; it refuses by itself what has no UTF-8."""
    for column in columns:
        if len(column) != 2 or "value" not in column:  # the order of other names may be another
            return False
        value = column["value"]
        kind = type(value)
        if kind in _ALWAYS:
            continue
        if not (_is_plain_tree(value) if kind in _TREES else _is_plain_number(value)):  # type: ignore[arg-type]
            return False
    return True


def _is_plain_tree(value: Json) -> bool:
    try:
        return prints_plainly(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return False


def _is_plain_number(value: float) -> bool:
    """Whether a number has one notation: digits alone, or digits with a fraction."""
    if type(value) is int:
        return -_SAFE <= value <= _SAFE
    return 1e-5 <= abs(value) < 1e15 and not value.is_integer()


def plain_column(name: str, value: str) -> str:
    """The canonical JSON of a column that is a name and a value, by the text of the value."""
    return f'{{"column":"{name}","value":{value}}}'


def columns_text(columns: Sequence[str]) -> str:
    """The canonical JSON of all columns, from the text of each."""
    return f"[{','.join(columns)}]"


def delta_id(client: str, columns: str, hlc: int, row: str, table: str) -> bytes:
    """The 32 bytes that name a delta; author, columns and row are canonical texts, the table is an identifier."""
    text = f'{{"clientId":{client},"columns":{columns},"hlc":"{hlc}","rowId":{row},"table":"{table}"}}'
    return sha256(text.encode()).digest()
