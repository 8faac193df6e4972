"""The body of the admin call that saves the schema of a table."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.contracts.deltas.limits import MAX_COLUMNS
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.kernel.json_error import JsonError
from semel.kernel.json_parse import parse
from semel.kernel.json_text import Json

TYPES = ("string", "number", "boolean", "json", "null")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Schema(NamedTuple):
    """A table, and name and type of each of its columns."""

    table: str
    columns: tuple[tuple[str, str], ...]


def parse_schema(raw: bytes) -> Schema:
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
    return Schema(table, named)


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
