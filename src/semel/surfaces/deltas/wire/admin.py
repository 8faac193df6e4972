"""Parsers of admin request bodies: the schema of a table, and clients to forget."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.kernel.json.members import MemberReader, matching
from semel.kernel.json.parse import parse
from semel.kernel.json.text import Json, JsonError
from semel.surfaces.deltas.limits import MAX_CLIENT_CHARACTERS, MAX_COLUMNS
from semel.surfaces.deltas.wire.push_body import client_id, refused

MAX_CLIENTS = 100
"""Limit of clients that one request names."""


def parse_clients(raw: bytes) -> list[str]:
    """The texts of the client ids in `{"clients": [...]}`, without duplicates."""
    try:
        body = parse(raw)
    except JsonError as error:
        raise Refused("deltas:VALIDATION_ERROR", str(error)) from None
    members = MemberReader(body if isinstance(body, dict) else {}, refused)
    names = members.required("clients", _few, f"is a list of 1 to {MAX_CLIENTS} client ids")
    found = []
    for index, given in enumerate(names):
        name = client_id(given)
        if name is None:
            raise members.refuse(f"clients[{index}]", f"is not a text of 1 to {MAX_CLIENT_CHARACTERS} characters")
        found.append(json_text(name))
    return list(dict.fromkeys(found))


def _few(value: Json) -> list[Json] | None:
    return value if isinstance(value, list) and 1 <= len(value) <= MAX_CLIENTS else None


TYPES = ("string", "number", "boolean", "json", "null")

_identifier = matching(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"))
_IDENTIFIER_RULE = "begins with a letter or _, goes on with these and digits, and has at most 64"


class TableSchema(NamedTuple):
    """The name of a table, and the name and type of each column."""

    table: str
    columns: tuple[tuple[str, str], ...]


def parse_schema(raw: bytes) -> TableSchema:
    """The schema in a body; other members are ignored."""
    try:
        body = parse(raw)
    except JsonError as error:
        raise _ill_formed(str(error)) from None
    if not isinstance(body, dict):
        raise _ill_formed("A schema is a JSON object with table and columns.")
    members = MemberReader(body, _broken_rule)
    rule = f"is a list of at most {MAX_COLUMNS} objects with name and type"
    columns = members.required("columns", _columns, rule)
    table = members.required("table", _identifier, _IDENTIFIER_RULE)
    named = tuple(_column(column, index) for index, column in enumerate(columns))
    if len(dict(named)) != len(named):
        raise _ill_formed("A column is named twice.")
    return TableSchema(table, named)


def _column(column: Json, index: int) -> tuple[str, str]:
    if not isinstance(column, dict):
        raise _ill_formed(f"columns[{index}] is not an object with name and type.")
    members = MemberReader(column, _broken_rule, f"columns[{index}]")
    kind = members.required("type", _type, f"is one of {', '.join(TYPES)}")
    return members.required("name", _identifier, _IDENTIFIER_RULE), kind


def _columns(value: Json) -> list[Json] | None:
    return value if isinstance(value, list) and len(value) <= MAX_COLUMNS else None


def _type(value: Json) -> str | None:
    return value if isinstance(value, str) and value in TYPES else None


def _broken_rule(path: str, rule: str) -> Refused:
    return _ill_formed(f"{path} {rule}.")


def _ill_formed(message: str) -> Refused:
    return Refused("deltas:SCHEMA_ERROR", message, own_status=400)
