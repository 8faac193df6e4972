"""The value types of deltas: deltas, entries and cursors.

A text is the canonical JSON of a value: the text of a string has its quotes. It can be put into an answer and into the
hash as it is, and half a surrogate pair, which no encoding can carry, stands in it as its escape.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Op(IntEnum):
    """The operation of a delta on its row; numbered as in the binary frames."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3


class Column(NamedTuple):
    """One column of a delta."""

    name: str
    value: str
    """Text; of a value that was left out, `null`."""
    text: str | None = None
    """The whole column as it was sent; None for one that is a name and a value and nothing else."""
    has_value: bool = True


class Delta(NamedTuple):
    """A change of one row, as its author made it."""

    op: Op
    table: str
    row: str
    """Text of the row's id."""
    client: str
    """Text of the author's id."""
    columns: tuple[Column, ...]
    columns_text: bytes
    """Text of the array, in UTF-8."""
    hlc: int
    id: bytes


class Entry(NamedTuple):
    """An entry of a pull: the effect of a delta, or a repair for an author whose write lost."""

    position: int
    op: Op
    table: str
    row: str
    client: str
    hlc: int
    id: bytes
    columns: bytes
    """Text of the array, in UTF-8."""
    is_resolved: bool = False
    """Whether the columns are not those that the id is the hash of."""


class Replica(NamedTuple):
    """One client of a gateway, under one caller."""

    gateway: str
    client: str
    """Text of the client's id."""
    subject: str
    """The subject of its credential."""


NOWHERE = -1
"""No position."""


class Cursor(NamedTuple):
    """The meaning of a replica's cursor: continue behind `start`, and skip some entries."""

    start: int
    skip: int = 0
    """Its own entries up to here: it made them."""
    mute: int = 0
    """Repairs up to here are skipped: the client began again, and gets the rows themselves."""
    back: int = NOWHERE
    """The position to begin again from when the end of the log is reached."""
    doubt: int = 0
    """Entries up to here may have been delivered already: an INSERT is preceded by a DELETE of its row."""

    @property
    def shown(self) -> int:
        """The position up to which everything has certainly arrived at a client with this cursor."""
        return self.start if self.back == NOWHERE else self.back
