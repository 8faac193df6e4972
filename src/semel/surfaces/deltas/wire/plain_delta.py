"""The quick reader of plain pushes and deltas: shape, canonical text and identity in one pass.

Almost every delta is plain: its columns have a name and a short value and nothing else. orjson prints such columns
canonically, all at once, so the id is the hash of that text. A delta is taken here only if its id is the hash, which
also proves that the id has the right form. Everything else is left to the full reader in `push_body`, which words the
refusal; for a delta that is taken here the full reader gives an equal one (a differential test compares both).

A push of plain deltas with no other members needs no check of its depth, nor of long numbers: every value in it has
been looked at. Of two members with one name orjson keeps the last one; that is noticed by the number of colons.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from types import NoneType
from typing import Any, NamedTuple

import orjson

from semel.kernel.hlc import read_hlc
from semel.kernel.json.parse import lost_members
from semel.kernel.json.text import trimmed
from semel.surfaces.deltas.limits import (
    MAX_CLIENT_CHARACTERS,
    MAX_COLUMNS,
    MAX_ROW_CHARACTERS,
    MAX_TABLE_CHARACTERS,
)
from semel.surfaces.deltas.model import Delta, DeltaOp, PlainColumns

_BODY = frozenset(("clientId", "deltas", "lastSeenHlc", "cursor"))
_TIMES = ("lastSeenHlc", "cursor")
_MEMBERS = 7
"""The number of members of a delta that has no others."""
_OPS = {op.name: op for op in DeltaOp}
_PLAIN = frozenset((str, bool, NoneType))
"""orjson prints every value of these types canonically; it refuses lone surrogates."""
_SAFE = 10**15
"""Whole numbers below this are exact as doubles, and are printed without an exponent."""
_KEPT = 4_096
"""Size of the caches of names and clients."""


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a table or column."""
    return len(text) <= MAX_TABLE_CHARACTERS and _is_identifier(text)


@lru_cache(_KEPT)
def _is_identifier(text: str) -> bool:
    """Python's ASCII identifiers match the pattern of names exactly."""
    return text.isascii() and text.isidentifier()


def named_op(item: dict[str, Any]) -> Any:
    """The operation that a delta names: its `op`, or else its `deltaType`; None if it has both and they differ."""
    op, alias = item.get("op"), item.get("deltaType")
    return alias if op is None else op if alias is None or alias == op else None


@lru_cache(_KEPT)
def _client_text(client: str) -> str:
    """The canonical text of a client's id, which has been found to be short."""
    return orjson.dumps(client).decode()


class PlainPush(NamedTuple):
    """A push of plain deltas."""

    client: str
    """Text of the client's id."""
    deltas: tuple[Delta, ...]
    cursor: int | None


def plain_push(raw: bytes, author: str | None, most: int) -> PlainPush | None:
    """A push of at most `most` plain deltas; None if the full reader has to decide."""
    try:
        value = orjson.loads(raw)
        if type(value) is not dict or not value.keys() <= _BODY or lost_members(raw, orjson.dumps(value)):
            return None
        client, items = value["clientId"], value["deltas"]
        if type(client) is not str or type(items) is not list or len(items) > most:
            return None
        if not 0 < len(client) <= MAX_CLIENT_CHARACTERS or (author is not None and _client_text(client) != author):
            return None
        times = {name: read_hlc(value[name]) for name in _TIMES if value.get(name) is not None}
        if None in times.values():
            return None
        deltas = []
        for item in items:
            delta = plain_delta(item, author) if len(item) == _MEMBERS else None
            if delta is None:
                return None
            deltas.append(delta)
    except (KeyError, TypeError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return PlainPush(_client_text(client), tuple(deltas), times.get("cursor"))


def plain_delta(item: Any, author: str | None) -> Delta | None:
    """A delta whose id is the hash of its content; None if the full reader has to decide.

    `author` is the text of the only client id that the caller may push as; None for any.
    """
    try:
        row, client, time, columns = item["rowId"], item["clientId"], item["hlc"], item["columns"]
        op, table, name = named_op(item), item["table"], item["deltaId"]
        if not (type(row) is type(client) is type(time) is type(op) is type(table) is str and type(columns) is list):
            return None
        if not (0 < len(row) <= MAX_ROW_CHARACTERS and 0 < len(client) <= MAX_CLIENT_CHARACTERS):
            return None
        if not (is_name(table) and _are_plain(columns)):
            return None
        hlc, client_text, row_text = read_hlc(time), _client_text(client), orjson.dumps(row)
        text = trimmed(orjson.dumps(columns))
        if hlc is None or (author is not None and client_text != author):
            return None
        hashed = b'{"clientId":%b,"columns":%b,"hlc":"%b","rowId":%b,"table":"%b"}'
        found = sha256(hashed % (client_text.encode(), text, time.encode(), row_text, table.encode()))
        if found.hexdigest() != name:
            return None
        return Delta(
            _OPS[op], table, row_text.decode(), client_text, PlainColumns(text, len(columns)), text, hlc, found.digest()
        )
    except (KeyError, TypeError, orjson.JSONEncodeError):
        return None


def _are_plain(columns: list[Any]) -> bool:
    """Whether orjson prints these columns canonically, and the full reader accepts them."""
    names = set()
    for column in columns:
        if type(column) is not dict or len(column) != 2 or next(iter(column)) != "column":
            return False
        name, value = column["column"], column["value"]
        kind = type(value)
        if type(name) is not str or not is_name(name):
            return False
        if kind not in _PLAIN and not (kind is int and -_SAFE < value < _SAFE):
            return False
        names.add(name)
    return len(names) == len(columns) <= MAX_COLUMNS
