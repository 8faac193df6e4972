"""Stream names from raw paths: decoded once, after routing, and checked for forbidden characters."""

from __future__ import annotations

import re
from functools import lru_cache

from semel.kernel.errors import Refused
from semel.kernel.keys import pack

MAX_BYTES = 1_024
RESERVED = b"__ds"

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


REMEMBERED = 4_096
"""Size of the cache of checked names: the same few are used all the time."""


@lru_cache(REMEMBERED)
def parse_name(raw: bytes) -> bytes:
    """The name behind the part of the path after the stream root."""
    name = _ESCAPE.sub(_decoded, raw) if b"%" in raw else raw
    if not 1 <= len(name) <= MAX_BYTES:
        raise Refused("INVALID_REQUEST", f"A stream name has 1 to {MAX_BYTES} bytes; this one has {len(name)}.")
    if _CONTROL.search(name):
        raise Refused("INVALID_REQUEST", "A stream name has no control characters.")
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("INVALID_REQUEST", "A stream name is UTF-8, percent-encoded where need be.") from None
    if b"." in name and any(part in (b".", b"..") for part in name.split(b"/")):
        raise Refused("INVALID_REQUEST", "A stream name has no `.` or `..` segments.")
    if name == RESERVED or name.startswith(RESERVED + b"/"):
        raise Refused("NOT_FOUND", "There is nothing at this control path.")
    return name


def _decoded(found: re.Match[bytes]) -> bytes:
    if found.group(1) is None:
        raise Refused("INVALID_REQUEST", "The path has a percent sign that is not followed by two hex digits.")
    return bytes.fromhex(found.group(1).decode())


stored_name = lru_cache(REMEMBERED)(pack)
"""The key that a stream's name is stored under."""
