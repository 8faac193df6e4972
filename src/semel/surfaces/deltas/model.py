"""Data types of deltas: deltas, entries, replicas and cursors.

A text is the canonical JSON of a value: the text of a string has its quotes. It can be copied into an answer and into
the hash as it is, and half a surrogate pair, which no encoding can represent, is written as its escape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import orjson

from semel.kernel.hashes import json_text


class DeltaOp(IntEnum):
    """The operation of a delta on its row; the values are those of the binary frames."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3


class DeltaColumn(NamedTuple):
    """One column of a delta."""

    name: str
    value: str
    """Text of the value; `null` if the value was omitted."""
    text: str | None = None
    """Text of the whole column as sent; None if the column has only a name and a value."""
    has_value: bool = True


class PlainColumns(Sequence[DeltaColumn]):
    """Columns that have a name and a plain value and nothing else, as their text; read from it when they are needed.

    A delta that is known, or that creates its row, is handled without them.
    """

    __slots__ = ("_count", "_made", "_text")

    def __init__(self, text: bytes, count: int) -> None:
        self._text = text
        self._count = count
        self._made: tuple[DeltaColumn, ...] | None = None

    def _columns(self) -> tuple[DeltaColumn, ...]:
        if self._made is None:
            parsed: list[dict[str, Any]] = orjson.loads(self._text)
            self._made = tuple(DeltaColumn(one["column"], json_text(one["value"])) for one in parsed)
        return self._made

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._columns()[place]

    def __iter__(self) -> Iterator[DeltaColumn]:
        return iter(self._columns())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._columns())

    def __repr__(self) -> str:
        return repr(self._columns())


class Delta(NamedTuple):
    """A change of one row, as its author made it."""

    op: DeltaOp
    table: str
    row: str
    """Text of the row's id."""
    client: str
    """Text of the author's id."""
    columns: Sequence[DeltaColumn]
    columns_text: bytes
    """Text of the array of columns, in UTF-8."""
    hlc: int
    id: bytes


class DeltaEntry(NamedTuple):
    """An entry of a pull: the effect of a delta, or a repair for an author whose write lost."""

    position: int
    op: DeltaOp
    table: str
    row: str
    client: str
    hlc: int
    id: bytes
    columns: bytes
    """Text of the array of columns, in UTF-8."""
    is_resolved: bool = False
    """Whether the columns differ from those that the id is the hash of."""


class DeltaReplica(NamedTuple):
    """One client of a gateway, under one credential."""

    gateway: str
    client: str
    """Text of the client's id."""
    subject: str
    """The subject of its credential."""


NOWHERE = -1
"""No position."""


class DeltaCursor(NamedTuple):
    """The meaning of a replica's cursor: continue after `start`, and skip some entries."""

    start: int
    skip: int = 0
    """The replica's own entries up to this position are skipped: the client made them."""
    mute: int = 0
    """Repairs up to this position are skipped: the client starts again and gets the rows themselves."""
    back: int = NOWHERE
    """The position to restart from when the end of the log is reached."""
    doubt: int = 0
    """Entries up to this position may have been delivered already: a DELETE of the row precedes each INSERT."""

    @property
    def shown(self) -> int:
        """The position up to which a client with this cursor has certainly received everything."""
        return self.start if self.back == NOWHERE else self.back
