"""Deltas that this replica creates, and the names in them, validated before they are stored.

A delta is created once, with its time and its id, and its bytes never change. It has only changed columns, and a write
that changes nothing creates no delta. Values are equal if their canonical JSON is: 1 equals 1.0, and the order of names
and the sign of zero do not matter. A replica cannot rename itself later, so names that the server would refuse are
refused here.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.deltas.rows import Columns, Op, ReplicaChange, ReplicaStamp
from semel.client.errors import ConfigurationError
from semel.kernel.hashes import columns_text, delta_id, json_text, plain_column
from semel.kernel.json.canonical import MAX_DEPTH, Integers, Surrogates, canonical, parse
from semel.kernel.json.text import depth_of

MAX_ROW_CHARACTERS = 1_024
MAX_CLIENT_CHARACTERS = 256
MAX_VALUE_LEVELS = MAX_DEPTH - 5
"""The levels of a push around a value: column, columns, delta, deltas and body."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Texts = Mapping[str, str]
"""Canonical JSON of values, by column name."""


class ReplicaDraft(NamedTuple):
    """A delta that may be sent repeatedly."""

    delta_id: str
    table: str
    row: str
    """Canonical JSON of the row's id."""
    body: bytes


def table_name(table: str) -> str:
    """A validated table name."""
    if not NAME.fullmatch(table):
        raise ValueError(f"a table's name must match {NAME.pattern}")
    return table


def row_text(row_id: str) -> str:
    """Canonical JSON of a validated row id."""
    if not isinstance(row_id, str):
        raise TypeError("a row's id is a string")
    if not 1 <= len(row_id) <= MAX_ROW_CHARACTERS:
        raise ValueError(f"a row's id has 1 to {MAX_ROW_CHARACTERS} characters")
    return json_text(row_id)


def row_id(text: str) -> str:
    """The row id of its canonical JSON."""
    value = parse(text.encode())
    assert isinstance(value, str)
    return value


def value_texts(columns: Mapping[str, Any]) -> Texts:
    """Canonical JSON of each value. Raises TypeError or ValueError for values that JSON cannot represent exactly."""
    texts = {}
    for name, value in columns.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"a column's name must match {NAME.pattern}")
        raw = canonical(value, Integers.REFUSE, Surrogates.ESCAPE)
        if depth_of(raw) > MAX_VALUE_LEVELS:
            raise ValueError(f"a value is nested at most {MAX_VALUE_LEVELS} levels deep")
        texts[name] = raw.decode()
    return texts


def changed(before: Columns, texts: Texts) -> Texts:
    """The columns that change. Clearing a column that is not set changes nothing."""
    return {name: text for name, text in texts.items() if text != json_text(before.get(name))}


def draft(op: Op, table: str, row: str, texts: Texts, client: str, hlc: int) -> ReplicaDraft:
    """The delta of a change; `row` and `client` are canonical JSON."""
    columns = columns_text([plain_column(name, text) for name, text in texts.items()])
    name = delta_id(client, columns, hlc, row, table).hex()
    body = (
        f'{{"op":"{op}","table":"{table}","rowId":{row},"clientId":{client},"columns":{columns},'
        f'"hlc":"{hlc}","deltaId":"{name}"}}'
    )
    return ReplicaDraft(name, table, row, body.encode())


def written(body: bytes) -> ReplicaChange:
    """The change of an own delta, from its bytes."""
    facts: Any = parse(body)
    columns = {one["column"]: one["value"] for one in facts["columns"]}
    return ReplicaChange(facts["op"], ReplicaStamp(int(facts["hlc"]), facts["clientId"]), columns)


def stamped_again(body: bytes, hlc: int) -> ReplicaDraft:
    """The same change at another time, as a new delta."""
    facts: Any = parse(body)
    texts = {one["column"]: json_text(one["value"]) for one in facts["columns"]}
    client, row = json_text(facts["clientId"]), json_text(facts["rowId"])
    return draft(facts["op"], facts["table"], row, texts, client, hlc)


MAX_GATEWAY_CHARACTERS = 256


def checked_gateway(gateway: str) -> str:
    """A validated gateway name. A name of dots only would be resolved as a path segment of the URL."""
    if gateway in (".", ".."):
        raise ConfigurationError("A gateway's name must not consist of dots only.")
    return _checked("A gateway's name", gateway, MAX_GATEWAY_CHARACTERS)


def checked_client(client: str) -> str:
    """A validated replica name."""
    return _checked("A client's id", client, MAX_CLIENT_CHARACTERS)


def _checked(what: str, name: str, most: int) -> str:
    if not 1 <= len(name) <= most or any("\ud800" <= one <= "\udfff" for one in name):
        raise ConfigurationError(f"{what} must have 1 to {most} characters, and no lone surrogate.")
    return name


def client_of_token(token: str | None) -> str | None:
    """The unverified `sub` of a JWT, or None. The server verifies it and accepts changes of no other name."""
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parse(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        subject = claims.get("sub") if isinstance(claims, dict) else None
        return checked_client(subject) if isinstance(subject, str) else None
    except (Base64Error, ValueError, ConfigurationError):
        return None
