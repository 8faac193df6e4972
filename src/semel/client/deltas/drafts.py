"""New deltas: validated before they are stored, since afterwards they can only be sent.

A delta is made once, with its time and its name, and its bytes are never made again. Columns that stay as they are, are
not in it; a change that changes nothing makes none. What counts as equal is the canonical JSON: 1 and 1.0 are one
number, the order of names does not matter, and so does not the sign of a zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.deltas.rows import Columns, Op, Stamp, Written
from semel.kernel.canonical import MAX_DEPTH, Integers, Surrogates, canonical, parse
from semel.kernel.delta_id import columns_text, delta_id, json_text, plain_column
from semel.kernel.json_text import depth_of

MAX_ROW_CHARACTERS = 1_024
MAX_CLIENT_CHARACTERS = 256
MAX_VALUE_LEVELS = MAX_DEPTH - 5
"""A push nests a value into a column, columns, a delta, deltas and a body."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Texts = Mapping[str, str]
"""Canonical JSON of values, by the names of their columns."""


class Draft(NamedTuple):
    """A delta that can be sent any number of times."""

    delta_id: str
    table: str
    row: str
    """The canonical JSON of the row's id."""
    body: bytes


def table_name(table: str) -> str:
    """A table's name, checked."""
    if not NAME.fullmatch(table):
        raise ValueError(f"a table's name must match {NAME.pattern}")
    return table


def row_text(row_id: str) -> str:
    """The canonical JSON of a row's id, checked."""
    if not isinstance(row_id, str):
        raise TypeError("a row's id is a string")
    if not 1 <= len(row_id) <= MAX_ROW_CHARACTERS:
        raise ValueError(f"a row's id has 1 to {MAX_ROW_CHARACTERS} characters")
    return json_text(row_id)


def row_id(text: str) -> str:
    """A row's id, from its canonical JSON."""
    value = parse(text.encode())
    assert isinstance(value, str)
    return value


def value_texts(columns: Mapping[str, Any]) -> Texts:
    """The canonical JSON of each value; TypeError or ValueError for what JSON cannot hold without changing it."""
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
    """The columns that are not as they were; one that is cleared and was not there is as it was."""
    return {name: text for name, text in texts.items() if text != json_text(before.get(name))}


def draft(op: Op, table: str, row: str, texts: Texts, client: str, hlc: int) -> Draft:
    """The delta of a change; `row` and `client` are canonical JSON."""
    columns = columns_text([plain_column(name, text) for name, text in texts.items()])
    name = delta_id(client, columns, hlc, row, table).hex()
    body = (
        f'{{"op":"{op}","table":"{table}","rowId":{row},"clientId":{client},"columns":{columns},'
        f'"hlc":"{hlc}","deltaId":"{name}"}}'
    )
    return Draft(name, table, row, body.encode())


def written(body: bytes) -> Written:
    """The change of a delta of this replica, from its bytes."""
    facts: Any = parse(body)
    columns = {one["column"]: one["value"] for one in facts["columns"]}
    return Written(facts["op"], Stamp(int(facts["hlc"]), facts["clientId"]), columns)


def stamped_again(body: bytes, hlc: int) -> Draft:
    """The same change at another time: another delta."""
    facts: Any = parse(body)
    texts = {one["column"]: json_text(one["value"]) for one in facts["columns"]}
    client, row = json_text(facts["clientId"]), json_text(facts["rowId"])
    return draft(facts["op"], facts["table"], row, texts, client, hlc)
