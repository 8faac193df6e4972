"""Offsets: positions in a stream as clients see them.

Sixteen digits, an underscore, sixteen digits; opaque to clients, ordered bytewise, never `-1` or `now`. The second
half is the number of content bytes before it; the first is zero.
"""

from __future__ import annotations

import re

_SHAPE = re.compile(rb"[0-9]{16}_[0-9]{16}")
_BEGINNING = b"-1"
_NOW = b"now"

PAST_EVERYTHING = 10**16


def format_offset(position: int) -> bytes:
    """The offset of a position."""
    return b"%016d_%016d" % (0, position)


def parse_offset(text: bytes) -> int | None:
    """The position behind an offset, None for `now`; `-1` is the beginning; anything else is a ValueError."""
    if text == _BEGINNING:
        return 0
    if text == _NOW:
        return None
    if _SHAPE.fullmatch(text) is None:
        raise ValueError("not an offset")
    # A first half that this server never hands out lies past every stream.
    return int(text[17:]) if text[:16] == b"0" * 16 else PAST_EVERYTHING
