"""The flat files of an export: the kind of each column, CSV and Apache Parquet.

Values are canonical JSON. A column whose values have one kind has that kind; integers mixed with other numbers become
doubles. Integers go up to 2**53: above that, canonical JSON has the shortest digits of the double, and an integer with
those digits would be another number. Objects, arrays and columns of mixed kinds are JSON text. Missing values and null
are both empty.

CSV follows RFC 4180: a header line, CRLF, quotes where needed. An empty field is no value, and a pair of quotes is an
empty string. A value such as `=1+1` is not escaped.

Parquet has one typed, compressed column per field, in row groups of limited size. pyarrow is optional, and imported
when such a file is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, BinaryIO, NamedTuple, Protocol

LARGEST_INTEGER = 2**53
NULL = "null"

_HALF = re.compile("[\ud800-\udfff]")


class ExportError(Exception):
    """The rows cannot be written in this format; the message says why."""


class FlatKind(Enum):
    """A kind of column."""

    NOTHING = "nothing"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    UNSIGNED = "unsigned"
    """Positions and times up to 2**64 - 1; never a client's value."""
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"


class FlatColumn(NamedTuple):
    """One column of a flat file."""

    name: str
    kind: FlatKind


class FlatFile(Protocol):
    """A flat file while it is written."""

    def add(self, cells: Sequence[str | None]) -> None:
        """Write one row of JSON texts."""

    def finish(self) -> None:
        """Write the end of the file."""


_FIRST = {
    "n": FlatKind.NOTHING,
    "t": FlatKind.BOOLEAN,
    "f": FlatKind.BOOLEAN,
    '"': FlatKind.STRING,
    "{": FlatKind.JSON,
    "[": FlatKind.JSON,
}


def kind_of(text: str) -> FlatKind:
    """The kind of one value."""
    found = _FIRST.get(text[0])
    if found is not None:
        return found
    if not text.removeprefix("-").isdigit():
        return FlatKind.DOUBLE
    return FlatKind.INTEGER if abs(int(text)) <= LARGEST_INTEGER else FlatKind.DOUBLE


def joined(one: FlatKind, other: FlatKind) -> FlatKind:
    """The kind of a column with values of two kinds."""
    if one is other or other is FlatKind.NOTHING:
        return one
    if one is FlatKind.NOTHING:
        return other
    return FlatKind.DOUBLE if {one, other} == {FlatKind.INTEGER, FlatKind.DOUBLE} else FlatKind.JSON


def string_of(text: str) -> str:
    """The string of a JSON text. A lone surrogate, which UTF-8 cannot encode, stays an escape."""
    if "\\" not in text:
        return text[1:-1]
    value: str = json.loads(text)
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", value)


_PLAIN = re.compile(r'[^,"\r\n]*[^,"\r\n\s]|[^,"\r\n\s]')
"""Text that needs no quotes: not empty, and without a space at its start or end, which some loaders drop."""


class CsvFile:
    """A CSV file, written line by line."""

    def __init__(self, out: BinaryIO, fields: Sequence[FlatColumn]) -> None:
        self._out = out
        self._kinds = [field.kind for field in fields]
        self._write([_quoted(field.name) for field in fields])

    def add(self, cells: Sequence[str | None]) -> None:
        """Write one row of JSON texts."""
        self._write([_cell(text, kind) for text, kind in zip(cells, self._kinds, strict=True)])

    def finish(self) -> None:
        """Does nothing: CSV has no footer."""

    def _write(self, fields: list[str]) -> None:
        self._out.write(f"{','.join(fields)}\r\n".encode())


def _cell(text: str | None, kind: FlatKind) -> str:
    if text is None or text == NULL:
        return ""
    return _quoted(string_of(text) if kind is FlatKind.STRING else text)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text[0].isspace():
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


GROUP_ROWS = 100_000
GROUP_BYTES = 64 * 1024 * 1024
"""Approximate limit of memory per open file, in bytes."""
CELL_BYTES, VALUE_BYTES = 8, 48
"""Memory of a cell, and of a value besides its text, in bytes."""

MISSING = "Parquet needs pyarrow: install it with pip install 'semel[parquet]'."

_VALUES: Mapping[FlatKind, Callable[[str], Any]] = {
    FlatKind.NOTHING: string_of,
    FlatKind.BOOLEAN: "true".__eq__,
    FlatKind.INTEGER: int,
    FlatKind.UNSIGNED: int,
    FlatKind.DOUBLE: float,
    FlatKind.STRING: string_of,
    FlatKind.JSON: str,
}


def require_pyarrow() -> None:
    """Raise an error at once if pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ExportError(MISSING) from None


class ParquetFile:
    """A Parquet file, written by row groups; `about` goes into the file's metadata."""

    def __init__(self, out: BinaryIO, fields: Sequence[FlatColumn], about: Mapping[str, str]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow.parquet import ParquetWriter  # noqa: PLC0415 - an extra

        types = {
            FlatKind.NOTHING: pa.string(),  # a column without values needs some type
            FlatKind.BOOLEAN: pa.bool_(),
            FlatKind.INTEGER: pa.int64(),
            FlatKind.UNSIGNED: pa.uint64(),
            FlatKind.DOUBLE: pa.float64(),
            FlatKind.STRING: pa.string(),
            FlatKind.JSON: pa.string(),
        }
        made = [pa.field(field.name, types[field.kind], metadata={"semel.kind": field.kind.value}) for field in fields]
        self._arrow = pa
        self._schema = pa.schema(made, {f"semel.{name}": value for name, value in about.items()})
        self._writer = ParquetWriter(out, self._schema, compression="zstd")
        self._values = [_VALUES[field.kind] for field in fields]
        self._begin()

    def add(self, cells: Sequence[str | None]) -> None:
        """Write one row of JSON texts."""
        for column, value, text in zip(self._columns, self._values, cells, strict=True):
            if text is None or text == NULL:
                column.append(None)
            else:
                column.append(value(text))
                self._bytes += VALUE_BYTES + len(text)
        self._bytes += CELL_BYTES * len(cells)
        self._rows += 1
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _begin(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in self._values]
        self._rows = self._bytes = 0

    def _flush(self) -> None:
        arrays = [
            self._arrow.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._begin()
