"""Apache Parquet files: one typed column for each field, compressed, in row groups of limited size.

pyarrow is an extra, and large: it is loaded when such a file is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import click

from semel.cli.deltas.kinds import NULL, Field, Kind, string_of

GROUP_ROWS = 100_000
GROUP_BYTES = 64 * 1024 * 1024
"""Approximate limit of bytes in memory of a file that is being written."""
CELL_BYTES, VALUE_BYTES = 8, 48
"""Bytes in memory of a cell, and of a value besides its text."""

MISSING = "Parquet needs pyarrow: install it with pip install 'semel[parquet]'."

_VALUES: Mapping[Kind, Callable[[str], Any]] = {
    Kind.NOTHING: string_of,
    Kind.BOOLEAN: "true".__eq__,
    Kind.INTEGER: int,
    Kind.UNSIGNED: int,
    Kind.DOUBLE: float,
    Kind.STRING: string_of,
    Kind.JSON: str,
}


def require_pyarrow() -> None:
    """Refuse at once where it is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise click.ClickException(MISSING) from None


class ParquetFile:
    """Written group by group; `about` is put into the file's metadata."""

    def __init__(self, out: BinaryIO, fields: Sequence[Field], about: Mapping[str, str]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow.parquet import ParquetWriter  # noqa: PLC0415 - an extra

        types = {
            Kind.NOTHING: pa.string(),  # a column without a value has to be something
            Kind.BOOLEAN: pa.bool_(),
            Kind.INTEGER: pa.int64(),
            Kind.UNSIGNED: pa.uint64(),
            Kind.DOUBLE: pa.float64(),
            Kind.STRING: pa.string(),
            Kind.JSON: pa.string(),
        }
        made = [pa.field(field.name, types[field.kind], metadata={"semel.kind": field.kind.value}) for field in fields]
        self._arrow = pa
        self._schema = pa.schema(made, {f"semel.{name}": value for name, value in about.items()})
        self._writer = ParquetWriter(out, self._schema, compression="zstd")
        self._values = [_VALUES[field.kind] for field in fields]
        self._begin()

    def add(self, cells: Sequence[str | None]) -> None:
        """One row: the text of each value."""
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
        """The last group, and the end of the file."""
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
