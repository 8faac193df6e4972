"""Paths of deltas: each with or without the version prefix, and the gateway that some of them name."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.contracts.deltas.limits import MAX_GATEWAY_CHARACTERS

AREAS = (b"sync", b"admin", b"connectors")
_VERSION = b"/v1/"
ROOTS = tuple(root + area for area in AREAS for root in (_VERSION, b"/"))
PREFIXES = tuple(root + b"/" for root in ROOTS)

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")


class Route(NamedTuple):
    """A parsed path."""

    call: str
    """The path without its version, and `{}` in the place of the gateway, such as `sync/{}/push`."""
    gateway: str
    """Empty where the path names none."""


def is_of_deltas(raw_path: bytes) -> bool:
    """Whether a path belongs to deltas, with a suffix or without."""
    return raw_path.startswith(PREFIXES) or raw_path in ROOTS


def split_path(raw_path: bytes) -> Route | None:
    """Parse a path of deltas; None for an impossible gateway name, and for another form."""
    area, *pieces = raw_path.removeprefix(_VERSION).lstrip(b"/").decode("latin-1").split("/")
    if len(pieces) == 1:
        return Route(f"{area}/{pieces[0]}", "")
    if len(pieces) != 2:
        return None
    place = 0 if area == "sync" else 1
    gateway = gateway_name(pieces[place].encode("latin-1"))
    pieces[place] = "{}"
    return None if gateway is None else Route("/".join((area, *pieces)), gateway)


def gateway_name(piece: bytes) -> str | None:
    """The gateway that a path segment names, percent-decoded once; None for an invalid name."""
    if any(found.group(1) is None for found in _ESCAPE.finditer(piece)):
        return None
    try:
        name = _ESCAPE.sub(lambda found: bytes.fromhex(found.group(1).decode()), piece).decode()
    except UnicodeDecodeError:
        return None
    return name if 1 <= len(name) <= MAX_GATEWAY_CHARACTERS else None
