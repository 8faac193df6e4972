"""CSV files (RFC 4180): a header line, CRLF, quotes where they are needed.

Nothing is an empty field, and an empty string is a pair of quotes, so that loaders which look can tell them apart. What
a spreadsheet makes of a text such as `=1+1` is its own affair: a value is written as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import BinaryIO

from semel.cli.deltas.kinds import NULL, Field, Kind, string_of

_PLAIN = re.compile(r'[^,"\r\n]*[^,"\r\n\s]|[^,"\r\n\s]')
"""Text that needs no quotes: not empty, and without a blank at its end, which some loaders would drop."""


class CsvFile:
    """Written line by line."""

    def __init__(self, out: BinaryIO, fields: Sequence[Field]) -> None:
        self._out = out
        self._kinds = [field.kind for field in fields]
        self._write([_quoted(field.name) for field in fields])

    def add(self, cells: Sequence[str | None]) -> None:
        """One row: the text of each value."""
        self._write([_cell(text, kind) for text, kind in zip(cells, self._kinds, strict=True)])

    def finish(self) -> None:
        """There is no end to write."""

    def _write(self, fields: list[str]) -> None:
        self._out.write(f"{','.join(fields)}\r\n".encode())


def _cell(text: str | None, kind: Kind) -> str:
    if text is None or text == NULL:
        return ""
    return _quoted(string_of(text) if kind is Kind.STRING else text)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text[0].isspace():
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
