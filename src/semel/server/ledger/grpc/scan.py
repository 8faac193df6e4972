"""A scan of the bytes of a protobuf message that counts its fields before it is decoded.

Two bytes on the wire can become an object of a hundred, and unknown fields become objects as well once they are
looked at. So the fields of a message are counted first, which stops as soon as there are too many of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from semel.contracts.ledger.refusals import RefusedLedger, invalid

Content = bytes | bytearray
"""A message as it arrived."""
_SHORTEST = 2
"""Bytes of a field: its tag and a value."""
_VARINT, _FIXED64, _PIECE, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class Piece(NamedTuple):
    """A field: its number, and the position of its content; numbers have none."""

    number: int
    start: int
    end: int
    has_content: bool = False


def unreadable(name: str) -> RefusedLedger:
    """The refusal of bytes that are no such message."""
    return invalid(f"The message cannot be read as {name}.", "message")


def may_exceed(content: Content, most: int) -> bool:
    """Whether a message is long enough to have more fields than that: short ones need no scan."""
    return len(content) > _SHORTEST * most


def count_pieces(content: Content, most: int, start: int = 0, end: int | None = None) -> int:
    """How many fields a message has, or lie in a part of it; those beyond one too many are not counted."""
    return sum(1 for _ in islice(pieces(content, start, end), most + 1))


def pieces(content: Content, start: int = 0, end: int | None = None) -> Iterator[Piece]:
    """The fields of a message, one by one; nested fields are skipped."""
    place, end = start, len(content) if end is None else end
    while place < end:
        tag, start = _varint(content, place)
        kind = tag & 7
        if kind == _PIECE:
            size, start = _varint(content, start)
            place = start + size
        elif kind == _VARINT:
            _, place = _varint(content, start)
            start = place
        elif kind in (_FIXED64, _FIXED32):
            place = start = start + (8 if kind == _FIXED64 else 4)
        else:
            raise unreadable("one of ours: there is a group in it")
        if place > end:
            raise unreadable("one of ours: its end is missing")
        yield Piece(tag >> 3, start, place, kind == _PIECE)


def _varint(content: Content, place: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = 0
    for turn, byte in enumerate(content[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * turn)
        if byte < 0x80:
            return value, place + turn + 1
    raise unreadable("one of ours: a number in it has no end")
