"""The data listener and the control listener: which path is answered on which."""

from __future__ import annotations

from enum import Enum

from semel.server.console.files import is_of_console
from semel.surfaces.registry import surface_at


class Plane(Enum):
    """The purpose of a listener or a path: data or control."""

    DATA = "data"
    CONTROL = "control"
    BOTH = "both"


_PATHS = {
    b"/metrics": Plane.BOTH,
    b"/health": Plane.BOTH,
    b"/livez": Plane.BOTH,
    b"/readyz": Plane.BOTH,
    b"/ready": Plane.BOTH,
    b"/openapi.json": Plane.BOTH,
    b"/v1/live": Plane.BOTH,
    b"/v1/caller": Plane.BOTH,
    b"/v1/diagnose": Plane.CONTROL,
    b"/v1/settings": Plane.CONTROL,
    b"/v1/audit": Plane.CONTROL,
}
"""The server's own paths; the paths of surfaces are data."""
_TOKENS = b"/v1/tokens"
"""The calls of stored tokens, with all below, are control; so is the console."""


class PathPlace(Enum):
    """Whether a path belongs to a listener."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    NOWHERE = "nowhere"


_WRITES = b"/v1/writes/"
"""Look-ups of writes are for those who write and for those who operate."""


def plane_of(raw_path: bytes) -> Plane | None:
    """The plane of a path; None for a path that the table does not have."""
    if raw_path == _TOKENS or raw_path.startswith(_TOKENS + b"/") or is_of_console(raw_path):
        return Plane.CONTROL
    if raw_path.startswith(_WRITES):
        return Plane.BOTH
    return _PATHS.get(raw_path) or (None if surface_at(raw_path) is None else Plane.DATA)


def place_of(raw_path: bytes, listener: Plane) -> PathPlace:
    """Whether a listener serves a path."""
    plane = plane_of(raw_path)
    if plane is None:
        return PathPlace.NOWHERE if listener is Plane.CONTROL else PathPlace.HERE
    return PathPlace.HERE if plane in (listener, Plane.BOTH) else PathPlace.ELSEWHERE
