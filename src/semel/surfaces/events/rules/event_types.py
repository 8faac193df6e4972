"""The type of a stored event, read from its text, and filters by type."""

from __future__ import annotations

from collections.abc import Collection

import orjson

from semel.kernel.json.canonical import Integers, Surrogates
from semel.kernel.json.members import is_utf8
from semel.kernel.json.outline import OutlinePlan, is_heavy, outline
from semel.surfaces.events.limits import EVENT_LEVELS, MAX_TYPE_BYTES, MAX_TYPES

EventTypes = frozenset[str] | None
"""The wanted types of events; None for all."""


class TypeFilterError(ValueError):
    """The filter is invalid; the message says why."""


def checked_types(types: Collection[str]) -> EventTypes:
    """A filter by type within the limits."""
    if not 0 < len(types) <= MAX_TYPES:
        raise TypeFilterError(f"1 to {MAX_TYPES} types may be given, and there are {len(types)}")
    for kind in types:
        if not 0 < len(kind) <= MAX_TYPE_BYTES or not is_utf8(kind) or len(kind.encode()) > MAX_TYPE_BYTES:
            raise TypeFilterError(f"a type must be a string of 1 to {MAX_TYPE_BYTES} bytes")
    return frozenset(types)


_BEGINNING = b'{"type":"'
_OUTLINE = OutlinePlan(
    levels=EVENT_LEVELS,
    kept=1,
    names=frozenset({"type"}),
    lists=frozenset(),
    integers=Integers.EXACT,
    surrogates=Surrogates.ESCAPE,
    has_canonical=False,
)
"""How to find the type if the values of the event would take too much memory."""


def type_of(event: bytes) -> str:
    """The type of a stored event. Most events begin with it; the others are parsed."""
    if event.startswith(_BEGINNING):
        end = event.index(b'"', len(_BEGINNING))
        found = event[len(_BEGINNING) : end]
        if b"\\" not in found:
            return found.decode()
    members = outline(event, _OUTLINE) if is_heavy(event) else orjson.loads(event)
    kind: str = members["type"]
    return kind
