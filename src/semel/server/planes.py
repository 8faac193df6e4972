"""Data and control listener: which path belongs to which port.

A pure table. With one listener there is nothing to guard. With two, a path of one listener is refused on the other, so
that a firewall rule for a port means what it says. A path that is not in the table does not exist on the control
listener, whatever it is on the data listener: a path that was forgotten here is not exposed.
"""

from __future__ import annotations

from enum import Enum

from semel.contracts.deltas.wire.paths import ROOTS as DELTAS


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
    b"/v1/streams": Plane.DATA,
    b"/v1/events": Plane.DATA,
    b"/v1/jobs": Plane.DATA,
    b"/ledger/v1": Plane.DATA,
    **dict.fromkeys(DELTAS, Plane.DATA),
}
_PREFIXES = {
    b"/v1/stream/": Plane.DATA,
    b"/v1/jobs/": Plane.DATA,
    b"/mesh/": Plane.DATA,
    b"/ledger/v1/": Plane.DATA,
    **{path + b"/": Plane.DATA for path in DELTAS},
}
_JOBS = (b"/v1/jobs/", b"/mesh/")


class Place(Enum):
    """Whether a path belongs to a listener."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    NOWHERE = "nowhere"


def plane_of(raw_path: bytes) -> Plane | None:
    """The plane of a path; None for a path that is not in the table."""
    plane = _PATHS.get(raw_path)
    if plane is not None:
        return plane
    return next((plane for prefix, plane in _PREFIXES.items() if raw_path.startswith(prefix)), None)


def place_of(raw_path: bytes, listener: Plane) -> Place:
    """Whether a listener answers for a path."""
    plane = plane_of(raw_path)
    if plane is None:
        return Place.NOWHERE if listener is Plane.CONTROL else Place.HERE
    return Place.HERE if plane in (listener, Plane.BOTH) else Place.ELSEWHERE


def is_of_jobs(raw_path: bytes) -> bool:
    """Whether refusals at a path have the shape of those of jobs."""
    return raw_path == b"/v1/jobs" or raw_path.startswith(_JOBS)
