"""Declared tables: what a declaration says, and which ones are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from semel.store.table import ColumnKind, Table, TableColumn
from tests.store.conformance import PARCEL, THING, TICKET, ParcelRow, thing


class Text(NamedTuple):
    """A row that no table can have."""

    name: str


class Pair(NamedTuple):
    """A row whose second column may be empty."""

    name: bytes
    number: int | None


def test_columns_come_from_the_row() -> None:
    assert TICKET.columns == (
        TableColumn("scope", ColumnKind.BYTES),
        TableColumn("serial", ColumnKind.U64),
        TableColumn("used_at", ColumnKind.I64),
    )
    assert THING.columns[6] == TableColumn("note", ColumnKind.BYTES, nullable=True)
    assert THING.columns[9] == TableColumn("price", ColumnKind.I64, nullable=True)
    assert THING.key_columns == ("shelf", "number", "serial")


def test_an_index_ends_with_the_key_so_that_every_place_is_one_rows() -> None:
    assert THING.ordering("") == ("shelf", "number", "serial")
    assert THING.ordering("weight") == ("shelf", "weight", "number", "serial")
    assert THING.ordering("rank") == ("rank", "label", "shelf", "number", "serial")
    row = thing(b"s", 2, 3, weight=4, rank=5, label=b"l")
    assert THING.index_key("", row) == THING.key_of(row) == (b"s", 2, 3)
    assert THING.index_key("weight", row) == (b"s", 4, 2, 3)
    assert THING.index_key("rank", row) == (5, b"l", b"s", 2, 3)
    assert PARCEL.index_key("", ParcelRow(7, b"o", b"")) == (7,)


REFUSED: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "a column of text": (Text, {"key": 1}),
    "a key that may be empty": (Pair, {"key": 2}),
    "an index of a generational table": (Pair, {"key": 1, "generational": True, "indexes": {"name": ("name",)}}),
    "an index over a column that may be empty, which has no place in an order": (
        Pair,
        {"key": 1, "indexes": {"number": ("number",)}},
    ),
}


@pytest.mark.parametrize(("row", "rest"), REFUSED.values(), ids=REFUSED)
def test_declarations_that_are_refused(row: type[Any], rest: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Table("refused", row, **rest)
