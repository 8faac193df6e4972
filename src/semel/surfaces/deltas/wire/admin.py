"""Parsers of the bodies of administrators: the schema of a table, and clients to forget."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.kernel.hashes import json_text
from semel.kernel.json.parse import parse
from semel.kernel.json.text import Json, JsonError
from semel.surfaces.deltas.commands import RefusedDeltas
from semel.surfaces.deltas.limits import MAX_CLIENT_CHARACTERS, MAX_COLUMNS

MAX_CLIENTS = 100
"""Clients that one request names."""


def parse_clients(raw: bytes) -> list[str]:
    """The texts of the ids in `{"clients": [...]}`, each once."""
    try:
        body = parse(raw)
    except JsonError as error:
        raise RefusedDeltas("VALIDATION_ERROR", str(error)) from None
    names = body.get("clients") if isinstance(body, dict) else None
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_CLIENTS:
        raise RefusedDeltas("VALIDATION_ERROR", f"clients is a list of 1 to {MAX_CLIENTS} client ids.")
    found = []
    for index, name in enumerate(names):
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_CLIENT_CHARACTERS:
            message = f"clients[{index}] is not a text of 1 to {MAX_CLIENT_CHARACTERS} characters."
            raise RefusedDeltas("VALIDATION_ERROR", message)
        found.append(json_text(name))
    return list(dict.fromkeys(found))


TYPES = ("string", "number", "boolean", "json", "null")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class TableSchema(NamedTuple):
    """A table, and name and type of each of its columns."""

    table: str
    columns: tuple[tuple[str, str], ...]


def parse_schema(raw: bytes) -> TableSchema:
    """The schema in a body; what else the body has is ignored."""
    try:
        body = parse(raw)
    except JsonError as error:
        raise _ill_formed(str(error)) from None
    if not isinstance(body, dict):
        raise _ill_formed("A schema is a JSON object with table and columns.")
    columns = body.get("columns")
    if not isinstance(columns, list) or len(columns) > MAX_COLUMNS:
        raise _ill_formed(f"columns is a list of at most {MAX_COLUMNS} objects with name and type.")
    table = _identifier(body.get("table"), "table")
    named = tuple(_column(column, index) for index, column in enumerate(columns))
    if len(dict(named)) != len(named):
        raise _ill_formed("A column is named twice.")
    return TableSchema(table, named)


def _column(column: Json, index: int) -> tuple[str, str]:
    if not isinstance(column, dict):
        raise _ill_formed(f"columns[{index}] is not an object with name and type.")
    kind = column.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise _ill_formed(f"columns[{index}].type is one of {', '.join(TYPES)}.")
    return _identifier(column.get("name"), f"columns[{index}].name"), kind


def _identifier(value: Json, place: str) -> str:
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise _ill_formed(f"{place} begins with a letter or _, goes on with these and digits, and has at most 64.")
    return value


def _ill_formed(message: str) -> RefusedDeltas:
    return RefusedDeltas("SCHEMA_ERROR", message, 400)
