"""Parser of the body of a push: the checks that need no stored rows.

In this order: JSON (3), the caller's own name (4), the number of deltas (5), the shape of each delta (6), its identity
(7). A step is finished for all deltas before the next begins, so that the answer does not depend on their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.hashes import columns_bytes, delta_id, json_text, plain_column_bytes
from semel.kernel.hlc import read_hlc
from semel.kernel.json.canonical import Integers, Json, JsonError, Surrogates, parse
from semel.kernel.json.large import LargeJson, is_light
from semel.kernel.json.members import (
    LENGTH_RULE,
    STRING_RULE,
    MemberReader,
    any_string,
    is_large_list,
    matching,
    members_of,
    read_body,
    string_of,
    unmarked,
)
from semel.surfaces.deltas.commands import MAX_FLAWS, DeltaFlaw, refusal_of
from semel.surfaces.deltas.limits import (
    MAX_CLIENT_CHARACTERS,
    MAX_COLUMNS,
    MAX_ROW_CHARACTERS,
    MAX_TABLE_CHARACTERS,
    DeltaPolicy,
)
from semel.surfaces.deltas.model import Delta, DeltaColumn, DeltaOp
from semel.surfaces.deltas.wire.plain_delta import is_name, named_op, plain_delta, plain_push

_NAME = f"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_TABLE_CHARACTERS - 1}}}"
_ID = re.compile(r"[0-9a-f]{64}")
_delta_id = matching(_ID)
client_id = string_of(1, MAX_CLIENT_CHARACTERS)
"""Parser of a client id."""
_CLIENT_RULE = LENGTH_RULE.format(least=1, most=MAX_CLIENT_CHARACTERS)
_DIGITS_RULE = "must be a string of decimal digits"
_ARRAY_RULE = "must be an array"
_OP_RULE = "must be INSERT, UPDATE or DELETE, and deltaType, if it is sent too, must be the same"
_OPS = {op.name: op for op in DeltaOp}
_BODY = frozenset(("clientId", "deltas", "lastSeenHlc", "cursor"))
_MEMBERS = frozenset(("op", "deltaType", "table", "rowId", "clientId", "columns", "hlc", "deltaId"))

INVALID, SCHEMA, FORBIDDEN = ("VALIDATION_ERROR", 400), ("SCHEMA_ERROR", 422), ("FORBIDDEN", 403)
TOO_LARGE = ("VALIDATION_ERROR", 413)


class PushBody(NamedTuple):
    """A parsed push: its client, and its deltas."""

    client: str
    """Text of the client's id."""
    deltas: tuple[Delta, ...]
    cursor: int | None = None
    """The cursor of a client of the plain dialect; None in the other dialect."""


class FlawedDelta(Exception):  # noqa: N818 - it is an answer, not a fault
    """Raised for one delta that cannot be accepted."""

    def __init__(self, kind: tuple[str, int], message: str) -> None:
        super().__init__(message)
        self.kind = kind


def parse_push(raw: bytes, policy: DeltaPolicy, author: str | None = None) -> PushBody:
    """Parse a body. `author` is the text of the only client id that the caller may push as; None for any."""
    if not is_light(raw):
        return _parse_large(raw, policy, author)
    plain = plain_push(raw, author, policy.max_deltas)
    if plain is not None:
        return PushBody(*plain)
    value = parse_body(raw)
    members = MemberReader(value, refused)
    client = client_of(value.get("clientId"))
    items = members.required("deltas", _array, _ARRAY_RULE)
    cursor = _cursor(members)
    return judge_push(client, len(items), map(_same, items), policy, author)._replace(cursor=cursor)


def _parse_large(raw: bytes, policy: DeltaPolicy, author: str | None) -> PushBody:
    """Parse a body that is too large to become one value: each delta is read, checked and freed before the next."""
    try:
        value = members_of(read_body(raw), _BODY.__contains__)
        if value is None:
            raise Refused("deltas:VALIDATION_ERROR", "The body must be a JSON object.")
        members = MemberReader(value, refused)
        client = client_of(value.get("clientId"))
        cursor = _cursor(members)
        items = members.required("deltas", _array, _ARRAY_RULE)
        count, values = (0, items.elements()) if isinstance(items, LargeJson) else (len(items), items)
        return judge_push(client, count, map(_unmarked, values), policy, author)._replace(cursor=cursor)
    except JsonError as error:
        raise Refused("deltas:VALIDATION_ERROR", str(error)) from None


Item = Callable[[], Any]
"""Converts a delta to a JSON value, with large parts as `LargeJson`."""


def _same(item: Json) -> Item:
    return lambda: item


def _unmarked(item: Any) -> Item:
    """A delta of a large body; an invalid value in it is a flaw of the body."""
    members = members_of(item, _MEMBERS.__contains__)
    value = unmarked(item if members is None else members)
    return lambda: value


def judge_push(client: str, count: int, items: Iterable[Item], policy: DeltaPolicy, author: str | None) -> PushBody:
    """Check a push in any format: each delta is converted to a JSON value once, when it is checked.

    The number of deltas is checked before. A conversion that fails raises `FlawedDelta`.
    """
    if author is not None and client != author:
        raise Refused("deltas:FORBIDDEN", "clientId must be the one that the credential is for.")
    _check_number(count, policy)
    deltas: list[Delta] = []
    unproved: list[tuple[int, Delta]] = []
    flaws: list[DeltaFlaw] = []
    for index, make in enumerate(items):
        _check_number(index + 1, policy)
        if len(flaws) == MAX_FLAWS:  # a refusal lists no more
            break
        item: Json = None
        try:
            item = make()
            delta = plain_delta(item, author)
            if delta is None:
                delta = read_delta(item, author)
                unproved.append((index, delta))
            deltas.append(delta)
        except FlawedDelta as flawed:
            flaws.append(_flaw(index, item, flawed))
    if flaws:
        raise Refused.of(refusal_of(flaws))
    if policy.checks_ids:
        _check_ids(unproved)
    return PushBody(client, tuple(deltas))


def _check_number(count: int, policy: DeltaPolicy) -> None:
    if count > policy.max_deltas:
        raise Refused(
            "deltas:VALIDATION_ERROR", f"A push has at most {policy.max_deltas} deltas; this one has {count} or more."
        )


def parse_body(raw: bytes) -> dict[str, Json]:
    """Parse a body that must be one JSON object."""
    try:
        value = parse(raw)
    except JsonError as error:
        raise Refused("deltas:VALIDATION_ERROR", str(error)) from None
    if not isinstance(value, dict):
        raise Refused("deltas:VALIDATION_ERROR", "The body must be a JSON object.")
    return value


def refused(path: str, rule: str) -> Refused:
    """The refusal of a body for one of its members."""
    return Refused("deltas:VALIDATION_ERROR", f"{path} {rule}.")


def client_of(value: Json) -> str:
    """The text of a client's id."""
    return json_text(MemberReader({"clientId": value}, refused).required("clientId", client_id, _CLIENT_RULE))


def _cursor(members: MemberReader[Refused]) -> int | None:
    """The cursor of a client of the plain dialect; the other dialect sends none here. `lastSeenHlc` is only checked."""
    members.optional("lastSeenHlc", hlc_of, _DIGITS_RULE)
    return members.optional("cursor", hlc_of, _DIGITS_RULE)


def hlc_of(value: object) -> int | None:
    """A clock value in decimal digits; None for anything else."""
    return read_hlc(value) if isinstance(value, str) else None


def _array(value: Any) -> Any:
    return value if isinstance(value, list) or is_large_list(value) else None


def _op(value: object) -> DeltaOp | None:
    return _OPS.get(value) if isinstance(value, str) else None


def read_delta(item: Json, author: str | None) -> Delta:
    """Parse one delta; its id is not checked."""
    if not isinstance(item, dict):
        raise FlawedDelta(INVALID, "A delta must be an object.")
    members = MemberReader(item, _flawed)
    op = _op(named_op(item))
    if op is None:
        raise members.refuse("op", _OP_RULE)
    table = members.required("table", any_string, STRING_RULE)
    row = _bounded(members, "rowId", MAX_ROW_CHARACTERS)
    client = json_text(_bounded(members, "clientId", MAX_CLIENT_CHARACTERS))
    time = members.required("hlc", hlc_of, "must be a string of decimal digits below 2^64")
    name = members.required("deltaId", _delta_id, "must be 64 lower-case hexadecimal digits")
    columns = _columns(item.get("columns"))
    if not is_name(table):
        raise FlawedDelta(SCHEMA, f"table must match {_NAME}.")
    if author is not None and client != author:
        raise FlawedDelta(FORBIDDEN, "This credential may not push deltas of another client.")
    # The name of a column was checked above: it needs no escapes.
    texts = columns_bytes(map(_column_bytes, columns))
    return Delta(op, table, json_text(row), client, columns, texts, time, bytes.fromhex(name))


def _column_bytes(column: DeltaColumn) -> bytes:
    return plain_column_bytes(column.name, column.value) if column.text is None else column.text.encode()


def content_id(delta: Delta) -> bytes:
    """The id that a delta must have: the hash of its content."""
    return delta_id(delta.client, delta.columns_text, delta.hlc, delta.row, delta.table)


def _columns(value: Any) -> tuple[DeltaColumn, ...]:
    is_large = isinstance(value, LargeJson) and not value.is_object
    if not is_large and not isinstance(value, list):
        raise FlawedDelta(INVALID, "columns must be an array.")
    if isinstance(value, list):
        check_width(len(value))
    columns: list[DeltaColumn] = []
    for one in value.elements() if isinstance(value, LargeJson) else value:
        check_width(len(columns) + 1)
        columns.append(_column(one))
    names = {column.name for column in columns}
    if len(names) != len(columns):
        raise FlawedDelta(INVALID, "columns names one column twice.")
    if not all(map(is_name, names)):
        raise FlawedDelta(SCHEMA, f"A column's name must match {_NAME}.")
    return tuple(columns)


def check_width(columns: int) -> None:
    """Refuse a delta with more columns than a row can have: it could never be stored."""
    if columns > MAX_COLUMNS:
        raise FlawedDelta(TOO_LARGE, f"A row has at most {MAX_COLUMNS} columns; this delta has {columns} or more.")


class _Seen:
    """Selects the members of a large column to keep, and notes whether there are others."""

    has_others = False

    def keeps(self, name: str) -> bool:
        is_known = name in ("column", "value")
        self.has_others = self.has_others or not is_known
        return is_known


def _column(value: Any) -> DeltaColumn:
    members, is_plain = value, isinstance(value, dict) and len(value) == 2
    if isinstance(value, LargeJson) and value.is_object:
        seen = _Seen()
        members, is_plain = value.members(seen.keeps), not seen.has_others
    if not isinstance(members, dict) or not isinstance(members.get("column"), str):
        raise FlawedDelta(INVALID, "A column must be an object with the string column and a value.")
    has_value = "value" in members
    try:
        whole = None if is_plain and has_value else _text(value)
        return DeltaColumn(members["column"], _text(members.get("value")), whole, has_value)
    except JsonError as error:
        raise FlawedDelta(INVALID, str(error)) from None


def _text(value: Any) -> str:
    """The canonical text of a value, large or small."""
    if isinstance(value, LargeJson):
        return value.canonical(Integers.ROUND, Surrogates.ESCAPE).decode()
    return json_text(value)


def _flawed(path: str, rule: str) -> FlawedDelta:
    return FlawedDelta(INVALID, f"{path} {rule}.")


def _bounded(members: MemberReader[FlawedDelta], name: str, most: int) -> str:
    value = members.required(name, any_string, STRING_RULE)
    if not 1 <= len(value) <= most:
        raise members.refuse(name, f"must have 1 to {most} characters")
    return value


def _check_ids(deltas: Sequence[tuple[int, Delta]]) -> None:
    """Refuse deltas whose ids are not the hashes of their contents; the quick reader has checked the others."""
    flaws = []
    for index, delta in deltas:
        if content_id(delta) != delta.id:
            message = "deltaId is not the hash of the delta's content."
            flaws.append(DeltaFlaw(index, delta.id.hex(), "VALIDATION_ERROR", message, 422))
            if len(flaws) == MAX_FLAWS:
                break
    if flaws:
        raise Refused.of(refusal_of(flaws))


def _flaw(index: int, item: Json, flawed: FlawedDelta) -> DeltaFlaw:
    name = item.get("deltaId") if isinstance(item, dict) else None
    told = name if isinstance(name, str) and _ID.fullmatch(name) else ""
    return DeltaFlaw(index, told, flawed.kind[0], str(flawed), flawed.kind[1])
