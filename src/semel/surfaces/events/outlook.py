"""Events at a glance: the end of the log."""

from __future__ import annotations

from semel.engine.reading import Reading
from semel.server.ops.surface_outlook import SurfaceOutlook
from semel.server.settings import ServerSettings
from semel.surfaces.events.reading import head_of


def outlook(reading: Reading, settings: ServerSettings) -> SurfaceOutlook:
    """The number of events."""
    return SurfaceOutlook(f"{head_of(reading).last_id:,} events committed", [])
