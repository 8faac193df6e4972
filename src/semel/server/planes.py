"""Data and control listener: which path belongs to which port.

A pure table. With one listener there is nothing to guard. With two, a path of one listener is refused on the other, so
that a firewall rule for a port means what it says. A path that is not in the table does not exist on the control
listener, whatever it is on the data listener: a path that was forgotten here is not exposed.
"""

from __future__ import annotations

from enum import Enum

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
    b"/v1/diagnose": Plane.CONTROL,
}
"""The server's own paths; those of a surface are data."""


class Place(Enum):
    """Whether a path belongs to a listener."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    NOWHERE = "nowhere"


def plane_of(raw_path: bytes) -> Plane | None:
    """The plane that a path belongs to; None for one that the table does not know."""
    return _PATHS.get(raw_path) or (None if surface_at(raw_path) is None else Plane.DATA)


def place_of(raw_path: bytes, listener: Plane) -> Place:
    """Whether a listener answers for a path."""
    plane = plane_of(raw_path)
    if plane is None:
        return Place.NOWHERE if listener is Plane.CONTROL else Place.HERE
    return Place.HERE if plane in (listener, Plane.BOTH) else Place.ELSEWHERE
