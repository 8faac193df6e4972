"""Parsing of read requests: offset, mode and cursor from the query string."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from semel.contracts.streams.offsets import BEGINNING, Offset, parse_offset
from semel.kernel.errors import Refused


class Mode(Enum):
    """The way to wait for content that does not exist yet."""

    CATCH_UP = "catch-up"
    LONG_POLL = "long-poll"
    SSE = "sse"


class Read(NamedTuple):
    """A GET. `position` is None at the tail."""

    mode: Mode
    position: Offset | None
    cursor: int | None


def parse_read(query: bytes) -> Read:
    """The read in a query string; unknown parameters are ignored."""
    asked = _parameters(query)
    offsets = asked.get(b"offset", [])
    live = asked.get(b"live", [])
    if len(offsets) > 1:
        raise Refused("INVALID_OFFSET", "Give offset once.")
    if len(live) > 1:
        raise Refused("INVALID_REQUEST", "Give live once.")
    mode = _mode(live[0]) if live else Mode.CATCH_UP
    if mode is not Mode.CATCH_UP and not offsets:
        raise Refused("INVALID_OFFSET", "A live read needs an offset; use offset=-1 for the beginning.")
    return Read(mode, _position(offsets[0]) if offsets else BEGINNING, _cursor(asked.get(b"cursor", [])))


def _parameters(query: bytes) -> dict[bytes, list[bytes]]:
    asked: dict[bytes, list[bytes]] = {}
    for part in query.split(b"&") if query else ():
        name, _, value = part.partition(b"=")
        asked.setdefault(unquote_to_bytes(name), []).append(unquote_to_bytes(value))
    return asked


def _mode(text: bytes) -> Mode:
    for mode in (Mode.LONG_POLL, Mode.SSE):
        if text == mode.value.encode():
            return mode
    raise Refused("INVALID_REQUEST", "live is long-poll or sse.")


def _position(text: bytes) -> Offset | None:
    try:
        return parse_offset(text)
    except ValueError:
        raise Refused("INVALID_OFFSET", "Use an offset that this server gave out, or -1, or now.") from None


def _cursor(given: list[bytes]) -> int | None:
    return int(given[0]) if given and given[0].isdigit() and len(given[0]) <= 15 else None
