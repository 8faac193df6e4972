"""Offsets: positions in a stream as clients see them.

Sixteen digits, an underscore, sixteen digits; opaque to clients, ordered bytewise, never `-1` or `now`. The first half
is the epoch in which the content before the position was appended, the second the number of content bytes before it. A
position has one offset for ever, and offsets rise with positions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SHAPE = re.compile(rb"[0-9]{16}_[0-9]{16}")
_BEGINNING = b"-1"
_NOW = b"now"


class Offset(NamedTuple):
    """A parsed offset."""

    epoch: int
    position: int


BEGINNING = Offset(0, 0)
"""The beginning of every stream, whatever the epoch in which it was made."""


def format_offset(position: int, epoch: int = 0) -> bytes:
    """The offset of a position whose content was appended in that epoch."""
    return b"%016d_%016d" % (epoch, position)


def parse_offset(text: bytes) -> Offset | None:
    """An offset, None for `now`; `-1` is the beginning; anything else is a ValueError."""
    if text == _BEGINNING:
        return BEGINNING
    if text == _NOW:
        return None
    if _SHAPE.fullmatch(text) is None:
        raise ValueError("not an offset")
    return Offset(int(text[:16]), int(text[17:]))
