"""The body of a push and each of its deltas: parsed and validated before anything is read.

In this order: JSON (3), the caller's own name (4), their number (5), the shape of each delta (6), its identity (7). A
step is finished for all deltas before the next begins, so that the answer does not hang on their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from semel.contracts.deltas.limits import (
    MAX_CLIENT_CHARACTERS,
    MAX_COLUMNS,
    MAX_ROW_CHARACTERS,
    MAX_TABLE_CHARACTERS,
    Policy,
)
from semel.contracts.deltas.model import Column, Delta, Op
from semel.contracts.deltas.refusals import MAX_FLAWS, Flaw, RefusedDeltas, refusal_of
from semel.kernel.canonical import MAX_DEPTH, Integers, Json, JsonError, Surrogates, parse
from semel.kernel.delta_id import columns_bytes, delta_id, json_text, plain_column_bytes
from semel.kernel.hlc import read_hlc
from semel.kernel.json_marks import first_mark
from semel.kernel.json_text import too_deep
from semel.kernel.large_json import LargeJson, is_light, read_json

_NAME = f"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_TABLE_CHARACTERS - 1}}}"
_ID = re.compile(r"[0-9a-f]{64}")
_OPS = {op.name: op for op in Op}
_MEMBERS = frozenset(("op", "table", "rowId", "clientId", "columns", "hlc", "deltaId"))

INVALID, SCHEMA, FORBIDDEN = ("VALIDATION_ERROR", 400), ("SCHEMA_ERROR", 422), ("FORBIDDEN", 403)
TOO_LARGE = ("VALIDATION_ERROR", 413)


class PushBody(NamedTuple):
    """A parsed push: its client, and its deltas."""

    client: str
    """Text of the client's id."""
    deltas: tuple[Delta, ...]
    cursor: int | None = None
    """The cursor of a client of the plain dialect."""


class Flawed(Exception):  # noqa: N818 - it is an answer, not a fault
    """One delta that cannot be accepted."""

    def __init__(self, kind: tuple[str, int], message: str) -> None:
        super().__init__(message)
        self.kind = kind


def parse_push(raw: bytes, policy: Policy, author: str | None = None) -> PushBody:
    """The deltas of a body. `author` is the text of the only id that the caller may push as; None for any."""
    if not is_light(raw):
        return _parse_large(raw, policy, author)
    value = parse_body(raw)
    client = client_of(value.get("clientId"))
    items = value.get("deltas")
    if not isinstance(items, list):
        raise RefusedDeltas(INVALID[0], "deltas must be an array.")
    check_last_seen(value.get("lastSeenHlc"))
    cursor = _cursor(value.get("cursor"))
    return judge_push(client, len(items), map(_same, items), policy, author)._replace(cursor=cursor)


def _parse_large(raw: bytes, policy: Policy, author: str | None) -> PushBody:
    """The same for a body of which no values can be made: each delta is read, judged and forgotten before the next."""
    try:
        value = read_json(raw)
        if isinstance(value, LargeJson) and value.levels > MAX_DEPTH:
            raise too_deep()
        if not isinstance(value, LargeJson) or not value.is_object:
            raise RefusedDeltas(INVALID[0], "The body must be a JSON object.")
        members = value.members({"clientId", "deltas", "lastSeenHlc", "cursor"}.__contains__)
        client = client_of(members.get("clientId"))
        items = members.get("deltas")
        check_last_seen(members.get("lastSeenHlc"))
        cursor = _cursor(members.get("cursor"))
        if isinstance(items, list):
            return judge_push(client, len(items), map(_unmarked, items), policy, author)._replace(cursor=cursor)
        if not isinstance(items, LargeJson) or items.is_object:
            raise RefusedDeltas(INVALID[0], "deltas must be an array.")
        return judge_push(client, 0, map(_unmarked, items.elements()), policy, author)._replace(cursor=cursor)
    except JsonError as error:
        raise RefusedDeltas(INVALID[0], str(error)) from None


Item = Callable[[], Any]
"""Makes a delta into a JSON value, large parts of it as `LargeJson`."""


def _same(item: Json) -> Item:
    return lambda: item


def _unmarked(item: Any) -> Item:
    """A delta of a large body; a value in it that cannot be taken is a flaw of the body."""
    if isinstance(item, LargeJson) and item.is_object:
        item = item.members(_MEMBERS.__contains__)
    mark = first_mark(item)
    if mark is not None:
        raise mark
    return lambda: item


def judge_push(client: str, count: int, items: Iterable[Item], policy: Policy, author: str | None) -> PushBody:
    """The same for a push in another format: each delta is converted to a JSON value when it is checked.

    That is once, and not before their number is known to be allowed. One that cannot be made is `Flawed`.
    """
    if author is not None and client != author:
        raise RefusedDeltas(FORBIDDEN[0], "clientId must be the one that the credential is for.")
    _check_number(count, policy)
    deltas: list[Delta] = []
    flaws: list[Flaw] = []
    for index, make in enumerate(items):
        _check_number(index + 1, policy)
        if len(flaws) == MAX_FLAWS:  # a refusal names no more
            break
        item: Json = None
        try:
            item = make()
            deltas.append(read_delta(item, author))
        except Flawed as flawed:
            flaws.append(_flaw(index, item, flawed))
    if flaws:
        raise RefusedDeltas.of(refusal_of(flaws))
    if policy.checks_ids:
        _check_ids(deltas)
    return PushBody(client, tuple(deltas))


def _check_number(count: int, policy: Policy) -> None:
    if count > policy.max_deltas:
        raise RefusedDeltas(INVALID[0], f"A push has at most {policy.max_deltas} deltas; this one has {count} or more.")


def parse_body(raw: bytes) -> dict[str, Json]:
    """A body that is one JSON object."""
    try:
        value = parse(raw)
    except JsonError as error:
        raise RefusedDeltas(INVALID[0], str(error)) from None
    if not isinstance(value, dict):
        raise RefusedDeltas(INVALID[0], "The body must be a JSON object.")
    return value


def client_of(value: Json) -> str:
    """The text of a client's id."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_CLIENT_CHARACTERS:
        raise RefusedDeltas(INVALID[0], f"clientId must be a string of 1 to {MAX_CLIENT_CHARACTERS} characters.")
    return json_text(value)


def check_last_seen(value: Json) -> None:
    """Validate the clock value of a client, which is used for nothing."""
    if value is not None and (not isinstance(value, str) or read_hlc(value) is None):
        raise RefusedDeltas(INVALID[0], "lastSeenHlc must be a string of decimal digits.")


def _cursor(value: Json) -> int | None:
    """The cursor of a client of the plain dialect; no other dialect has it in a push."""
    cursor = read_hlc(value) if isinstance(value, str) else None
    if value is not None and cursor is None:
        raise RefusedDeltas(INVALID[0], "cursor must be a string of decimal digits.")
    return cursor


def is_name(text: str) -> bool:
    """Whether a text names a table or a column. Python's identifiers of ASCII are exactly those of the pattern."""
    return len(text) <= MAX_TABLE_CHARACTERS and text.isascii() and text.isidentifier()


def read_delta(item: Json, author: str | None) -> Delta:
    """The shape of one delta; its identity is not judged."""
    if not isinstance(item, dict):
        raise Flawed(INVALID, "A delta must be an object.")
    op = item.get("op")
    if not isinstance(op, str) or op not in _OPS:
        raise Flawed(INVALID, "op must be INSERT, UPDATE or DELETE.")
    table = _string(item, "table")
    row = _bounded(item, "rowId", MAX_ROW_CHARACTERS)
    client = json_text(_bounded(item, "clientId", MAX_CLIENT_CHARACTERS))
    hlc = item.get("hlc")
    time = read_hlc(hlc) if isinstance(hlc, str) else None
    if time is None:
        raise Flawed(INVALID, "hlc must be a string of decimal digits below 2^64.")
    name = item.get("deltaId")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise Flawed(INVALID, "deltaId must be 64 lower-case hexadecimal digits.")
    columns = _columns(item.get("columns"))
    if not is_name(table):
        raise Flawed(SCHEMA, f"table must match {_NAME}.")
    if author is not None and client != author:
        raise Flawed(FORBIDDEN, "This credential may not push deltas of another client.")
    # A column's name has just been looked at: it needs no escapes.
    texts = columns_bytes(map(_column_bytes, columns))
    return Delta(_OPS[op], table, json_text(row), client, columns, texts, time, bytes.fromhex(name))


def _column_bytes(column: Column) -> bytes:
    return plain_column_bytes(column.name, column.value) if column.text is None else column.text.encode()


def content_id(delta: Delta) -> bytes:
    """The id that a delta must have."""
    return delta_id(delta.client, delta.columns_text, delta.hlc, delta.row, delta.table)


def _columns(value: Any) -> tuple[Column, ...]:
    is_large = isinstance(value, LargeJson) and not value.is_object
    if not is_large and not isinstance(value, list):
        raise Flawed(INVALID, "columns must be an array.")
    if isinstance(value, list):
        check_width(len(value))
    columns: list[Column] = []
    for one in value.elements() if isinstance(value, LargeJson) else value:
        check_width(len(columns) + 1)
        columns.append(_column(one))
    names = {column.name for column in columns}
    if len(names) != len(columns):
        raise Flawed(INVALID, "columns names one column twice.")
    if not all(map(is_name, names)):
        raise Flawed(SCHEMA, f"A column's name must match {_NAME}.")
    return tuple(columns)


def check_width(columns: int) -> None:
    """Refuse a delta with more columns than a row can have: it could never be stored."""
    if columns > MAX_COLUMNS:
        raise Flawed(TOO_LARGE, f"A row has at most {MAX_COLUMNS} columns; this delta has {columns} or more.")


class _Seen:
    """Which members of a large column are kept, and whether there are others."""

    has_others = False

    def keeps(self, name: str) -> bool:
        is_known = name in ("column", "value")
        self.has_others = self.has_others or not is_known
        return is_known


def _column(value: Any) -> Column:
    members, is_plain = value, isinstance(value, dict) and len(value) == 2
    if isinstance(value, LargeJson) and value.is_object:
        seen = _Seen()
        members, is_plain = value.members(seen.keeps), not seen.has_others
    if not isinstance(members, dict) or not isinstance(members.get("column"), str):
        raise Flawed(INVALID, "A column must be an object with the string column and a value.")
    has_value = "value" in members
    try:
        whole = None if is_plain and has_value else _text(value)
        return Column(members["column"], _text(members.get("value")), whole, has_value)
    except JsonError as error:
        raise Flawed(INVALID, str(error)) from None


def _text(value: Any) -> str:
    """The canonical text of a value, large or not."""
    if isinstance(value, LargeJson):
        return value.canonical(Integers.ROUND, Surrogates.ESCAPE).decode()
    return json_text(value)


def _string(item: dict[str, Json], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise Flawed(INVALID, f"{name} must be a string.")
    return value


def _bounded(item: dict[str, Json], name: str, most: int) -> str:
    value = _string(item, name)
    if not 1 <= len(value) <= most:
        raise Flawed(INVALID, f"{name} must have 1 to {most} characters.")
    return value


def _check_ids(deltas: Sequence[Delta]) -> None:
    flaws = []
    for index, delta in enumerate(deltas):
        if content_id(delta) != delta.id:
            message = "deltaId is not the hash of the delta's content."
            flaws.append(Flaw(index, delta.id.hex(), "VALIDATION_ERROR", message, 422))
            if len(flaws) == MAX_FLAWS:
                break
    if flaws:
        raise RefusedDeltas.of(refusal_of(flaws))


def _flaw(index: int, item: Json, flawed: Flawed) -> Flaw:
    name = item.get("deltaId") if isinstance(item, dict) else None
    told = name if isinstance(name, str) and _ID.fullmatch(name) else ""
    return Flaw(index, told, flawed.kind[0], str(flawed), flawed.kind[1])
